"""This module says what a site's client was told of its writes, by its journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from halog.demo.journal import ACKNOWLEDGED, Note, ObjectWrite, ids_of

DEPARTURE, AIRCRAFT, AIRPORT = "departure", "aircraft", "airport"


class WriteClaims(NamedTuple):
    """Holds what a site's client was told: the acknowledged writes to each object, in order, and the number of
    transactions whose outcome it never learned."""

    writes: dict[tuple[str, str], list[ObjectWrite]]
    unknown: int

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged writes."""
        return sum(len(writes) for writes in self.writes.values())


def claims(notes: Iterable[Note]) -> WriteClaims:
    """Return what these notes claim. A transaction that was unknown at first counts as what it was settled as."""
    notes, seen = list(notes), set[str]()
    writes: dict[tuple[str, str], list[ObjectWrite]] = defaultdict(list)
    for note in notes:
        if note.outcome == ACKNOWLEDGED and note.tx not in seen:
            seen.add(note.tx)
            for write in note.writes:
                writes[write.what, write.key].append(write)
    return WriteClaims(dict(writes), len(ids_of(notes).unknown))
