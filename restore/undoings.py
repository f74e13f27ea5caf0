"""Which merges are undone, as a history says whose merges were read in its order (M2).

An undoing counts in the history that made it, and in every one that a merge brings it into: unless that very merge is
undone there. What it had brought is gone then, and the merge that was undone elsewhere stands again.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from halog.core.log.records import EpochMerged


def undoing(name: bytes) -> bytes:
    """The name of what undoes a merge: there is one."""
    return b"undo" + name


class Undoings:
    """Of one history, as far as it was read."""

    def __init__(self, merges: Iterable[EpochMerged] = ()) -> None:
        self._by: dict[bytes, bytes] = {}
        """By the name of an undoing, the merge that brought it; "": it was made here, or before what was read."""
        for record in merges:
            self.read(record)

    def read(self, record: EpochMerged) -> None:
        """The next one."""
        brings = record.merge if len(record.branches) > 1 else b""
        for name in record.undoings:
            self._by.setdefault(name, brings)
        self._by[record.merge] = b""

    def is_undone(self, merge: bytes) -> bool:
        """Is it, and was that not undone in turn?"""
        undo = undoing(merge)
        return undo in self._by and not self.is_gone(undo) and not self.is_undone(undo)

    def is_gone(self, name: bytes) -> bool:
        """Was what is named brought by a merge that is undone?"""
        by = self._by.get(name, b"")
        return bool(by) and self.is_undone(by)
