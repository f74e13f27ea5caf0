"""This module finds what is wrong with the objects of an async replica (R2).

The log orders everything and each change carries the version it replaces, so a sound copy never contradicts a record. A
copy that does is damaged. Its object is discarded for the log's, and the rest of the transaction applies as ever. An
object it has lost comes back with the next record that changes it, or is deleted without having been there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from halog.backend import CommittedObject
from halog.core.ids import ABSENT
from halog.core.keys.directory import is_entry
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.records import CREATE, DELETE, Change, Commit, Header
from halog.core.log.transactions import Applied, DecidedTransaction

if TYPE_CHECKING:
    from halog.runtime.store.object_table import ObjectTable

logger = logging.getLogger("halog.partition")


class Consistency:
    """Checks the objects of one copy. `discarded` counts since the process began."""

    def __init__(self, name: str, objects: ObjectTable) -> None:
        self.name = name
        self.objects = objects
        self.discarded = 0

    def check(self, accepted: Sequence[Applied], *, replayed: bool = False) -> None:
        """Count and name what contradicts these records, which are to be taken next.

        That is: an object that exists although a record creates it, or that has another version than the one it
        replaces; one that is deleted and does not exist; one under another key than the object of its reference. The
        last is discarded here, since the records do not change it. An object that is newer than the record is not
        wrong. A restore begins with such objects, and therefore without some of those that `replayed` records delete.
        """
        made = [r.commit if type(r) is DecidedTransaction else r for r in accepted]
        look = _BatchCheck(self, [c for r in made if type(r) is Commit for c in r.changes], replayed)
        for record in made:
            if type(record) is Commit:
                for c in record.changes:
                    look.at(record.header, c)
            elif type(record) is AppliedMerge:
                look.merged(record)

    def count(self, header: Header, what: str) -> None:
        """Count one more object that is discarded."""
        self.discarded += 1
        logger.warning("partition %s: record %d %s: discarded for the log's", self.name, header.lsn, what)


class _BatchCheck:
    """Checks one batch of records. What a merge has touched is not looked at again: whatever stood there was allowed
    to."""

    def __init__(self, consistency: Consistency, changes: Sequence[Change], replayed: bool) -> None:
        self._consistency = consistency
        self._replayed = replayed
        objects = consistency.objects
        found = objects.held([c.key for c in changes])
        self._used = objects.keys_of([c.ref for c in changes if c.op == CREATE or _brings(c, found[c.key])])
        found |= objects.held([key for key in self._used.values() if key not in found])
        self._now: dict[bytes, tuple[bytes, int] | tuple[()] | None] = {
            key: None if f is None else (f.ref, f.version) for key, f in found.items()
        }
        """Reference and version by key; empty: not to be looked at."""

    def merged(self, record: AppliedMerge) -> None:
        for m in record.merged:
            self._now[m.key] = ()

    def at(self, header: Header, c: Change) -> None:
        """Check one change: first what it contradicts, then what it leaves."""
        lsn, key = header.lsn, c.key
        now = self._now[key]
        had = now[1] if now else ABSENT
        if now is None:
            if c.op == DELETE and not self._replayed:
                self._consistency.count(header, f"deletes {key.hex()}, which this copy does not have")
        elif had not in (c.replaced, ABSENT) and had < lsn:
            said = "creates" if c.replaced == ABSENT else f"replaces version {c.replaced} of"
            self._consistency.count(header, f"{said} {key.hex()}, of which this copy has version {had}")
        if c.ref in self._used:
            self._reference(header, c, self._used[c.ref])
        self._now[key] = None if c.value is None else (c.ref, lsn if lsn > had else had)

    def _reference(self, header: Header, c: Change, at: bytes) -> None:
        if c.value is None or at == c.key or is_entry(c.key):
            return
        now = self._now[at]
        if not now or now[0] != c.ref or now[1] >= header.lsn:
            return
        self._now[at] = None
        self._consistency.objects.discard(header, Change(DELETE, c.ref, at, None, now[1]))
        said = f"brings {c.key.hex()} with the reference of {at.hex()}, which this copy has"
        self._consistency.count(header, said)


def _brings(c: Change, found: CommittedObject | None) -> bool:
    """Say whether the reference can be new under this key, though nothing is created."""
    return c.value is not None and (found is None or found.ref != c.ref)
