"""This module says which merges are undone, from a history whose merges were read in its order (M2).

An undoing counts in the history that made it, and in every history that a merge brings it into, unless that very merge
is undone there. What that merge had brought is gone then, and the merge that was undone elsewhere stands again.

It is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from halog.core.log.records import EpochMerged


def undoing(name: bytes) -> bytes:
    """Return the name of what undoes a merge: there is one."""
    return b"undo" + name


class Undoings:
    """An `Undoings` says which merges one history has undone, as far as it was read."""

    def __init__(self, merges: Iterable[EpochMerged] = ()) -> None:
        self._by: dict[bytes, bytes] = {}
        """The merge that brought an undoing, by the undoing's name; "": it was made here, or before what was read."""
        for record in merges:
            self.read(record)

    def read(self, record: EpochMerged) -> None:
        """Read the next merge."""
        brings = record.merge if len(record.branches) > 1 else b""
        for name in record.undoings:
            self._by.setdefault(name, brings)
        self._by[record.merge] = b""

    def is_undone(self, merge: bytes) -> bool:
        """Say whether the merge is undone, and its undoing still counts."""
        undo = undoing(merge)
        return undo in self._by and not self.is_gone(undo) and not self.is_undone(undo)

    def is_gone(self, name: bytes) -> bool:
        """Say whether a merge that is undone had brought what is named."""
        by = self._by.get(name, b"")
        return bool(by) and self.is_undone(by)
