"""What an async replica finds wrong with its own objects (R2).

The log orders everything and each change carries the version it replaces, so a sound copy never contradicts a record.
One that does is damaged. Its object is discarded for the log's, the rest of the transaction applies as ever; an object
it has lost comes back with the next record that changes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from halog.backend import Found
from halog.core import records
from halog.core.ids import ABSENT
from halog.core.ledger import Applied, Decided

logger = logging.getLogger("halog.partition")


class Consistency:
    """Of one copy. `discarded` counts since the process began."""

    def __init__(self) -> None:
        self.discarded = 0

    def check(
        self, accepted: Sequence[Applied], held: Callable[[Iterable[bytes]], Mapping[bytes, Found | None]]
    ) -> None:
        """Count and name the objects that exist although a record creates them, or have another version than the one it
        replaces. One that is newer than the record is not wrong: a restore begins with such."""
        made = [r.commit if type(r) is Decided else r for r in accepted]
        changes = [(r.header.lsn, c) for r in made if type(r) is records.Commit for c in r.changes]
        found = held({c.key for _, c in changes})
        versions = {key: ABSENT if f is None else f.version for key, f in found.items()}
        for lsn, c in changes:
            had = versions[c.key]
            if had not in (ABSENT, c.replaced) and had < lsn:
                self.discarded += 1
                said = "creates" if c.replaced == ABSENT else f"replaces version {c.replaced} of"
                logger.warning("record %d %s %s, of which this copy has version %d: discarded for the log's",
                               lsn, said, c.key.hex(), had)  # fmt: skip
            versions[c.key] = ABSENT if c.value is None else max(lsn, had)
