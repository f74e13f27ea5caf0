"""This module has movers, which are handed the objects that belong elsewhere: nodes move them, or code only counts
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from halog.runtime.rpc.pages import key_size, pieces


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A `Misplaced` is objects of one type that belong elsewhere: a list for each column, all of one length."""

    type_name: str
    keys: Sequence[bytes]
    targets: Sequence[str]
    lsns: Sequence[int]
    """Their versions when they were found; the mover looks at them anew."""

    def __len__(self) -> int:
        return len(self.keys)

    def slices(self, rows: int) -> Iterator[Misplaced]:
        """Yield the same, so many at a time, and no more keys than a frame takes."""
        at = 0
        for keys in pieces(self.keys, key_size, limit=rows):
            begin, at = at, at + len(keys)
            yield Misplaced(self.type_name, keys, self.targets[begin:at], self.lsns[begin:at])


Counts = Mapping[str, int]
"""What was done, by name; the finder adds it up."""


class Mover(Protocol):
    """One thread calls a `Mover`. The same object may come again: after a restart, and whenever it was written to. A
    call that raises ends the job, and is made again after a restart."""

    def move(self, partition: str, objects: Misplaced) -> Counts:
        """Move these objects, which are in `partition`, at the latest when `settle` returns."""

    def gone(self, partition: str, keys: Sequence[bytes]) -> Counts:
        """Note that the objects under these index keys were deleted since they were written to the topics; some of them
        may have been handed over before."""

    def settle(self) -> Counts:
        """Finish everything that was handed over. It is called behind each micro-batch."""


class DryRun:
    """A `DryRun` moves nothing, and counts each object once. It keeps their keys in memory: about 150 bytes for
    each."""

    def __init__(self) -> None:
        self._found: dict[str, dict[bytes, str]] = {}

    def move(self, partition: str, objects: Misplaced) -> Counts:
        here = self._found.setdefault(partition, {})
        before = len(here)
        here.update(zip(objects.keys, objects.targets))
        return {"would_move": len(here) - before}

    def gone(self, partition: str, keys: Sequence[bytes]) -> Counts:
        here = self._found.get(partition, {})
        return {"would_move": -sum(here.pop(key, None) is not None for key in keys)}

    def settle(self) -> Counts:
        return {}

    def by_target(self) -> dict[str, dict[str, int]]:
        """Return partition → target → how many would move."""
        counted: dict[str, dict[str, int]] = {}
        for partition, found in self._found.items():
            for target in found.values():
                to = counted.setdefault(partition, {})
                to[target] = to.get(target, 0) + 1
        return counted
