"""This module bounds what is gathered for commits of many partitions at the same time.

A commit has objects of one partition, and is sent when it has enough of them. Until then its objects are in memory, and
so are those of each other partition: of a thousand partitions that would be a gigabyte. So there is one room for all of
them. When it is full the fullest are sent early, which have most of what they wait for, and make most room.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import nlargest
from typing import Final, Generic, TypeVar

At = TypeVar("At", bound=Hashable)

ROOM_BYTES: Final = 64_000_000
"""Memory of all that is gathered. Up to some sixty partitions each commit gets as large as it may; with a thousand that
fill evenly one has about 100 kB, where the log's cost per record does not show yet."""
OBJECT_BYTES: Final = 300
"""Memory of an object that waits, beside what it has in a record: measured, on Python 3.11."""
SHARE: Final = 32
"""One place in so many is sent at once. To look for the fullest then costs each commit the same, however many places
there are, and those that wait for commits still have something to do meanwhile."""


class Gathered(Generic[At]):
    """Knows how much memory is gathered at each place, and which places are to be sent now."""

    def __init__(self, room: int = ROOM_BYTES) -> None:
        self.bytes = 0
        """The memory of all that is gathered."""
        self._room = room
        self._of: dict[At, int] = {}

    def add(self, at: At, size: int) -> bool:
        """Count an object that has this size in a record. Say whether all together are too much now."""
        size += OBJECT_BYTES
        self.bytes += size
        self._of[at] = self._of.get(at, 0) + size
        return self.bytes > self._room

    def sent(self, at: At) -> None:
        """Forget what was gathered there."""
        self.bytes -= self._of.pop(at)

    def fullest(self) -> list[At]:
        """Return the places that are to be sent to make room, the fullest first."""
        return nlargest(1 + len(self._of) // SHARE, self._of, key=self._of.__getitem__)
