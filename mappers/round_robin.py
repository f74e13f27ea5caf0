"""Round robin goes over partitions (not nodes): every create goes to the next one.

It never looks at the key, so a look-up cannot ask it where an object is (`by_key` is False). A key directory says so;
its entries are spread by consistent hashing (`halog.core.keys.directory`). Round robin evens out numbers where keys are
skewed. It is the one mapper with state, a counter per process; `start` lets several processes begin at different
partitions.
"""

from __future__ import annotations

from itertools import count
from typing import Final


class RoundRobin:
    """A `RoundRobin` gives partition start, start + 1, … and around. It is safe to call from several threads: `next` on
    a count is one step."""

    __slots__ = ("_turns", "partitions")

    by_key: Final = False

    def __init__(self, partitions: int, start: int = 0) -> None:
        if partitions < 1:
            raise ValueError(f"partitions must be at least 1, got {partitions}")
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        self.partitions = partitions
        self._turns = count(start)

    def partition(self, routing_key: bytes) -> int:
        """Return the next partition, whatever the key."""
        return next(self._turns) % self.partitions

    def __repr__(self) -> str:
        return f"RoundRobin(partitions={self.partitions})"
