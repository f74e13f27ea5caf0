"""What became of objects whose mapping changed: lost, doubled, misplaced; and of writes, by what their callers were
told. Pure; the mapper is called by the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

NEW = 100_000_000
"""Numbers from here on are created while traffic runs."""

Place = Callable[[int], str]
"""Number → the partition it belongs to."""


class Verdict(NamedTuple):
    """Of all objects there are."""

    objects: int
    lost: int
    doubled: int
    misplaced: int
    moved: int
    """Of those that were there before: how many belonged elsewhere then, and are where they belong now."""


def judge(
    found: Iterable[tuple[str, int, bytes]],
    count: int,
    created: Set[int],
    perhaps: Set[int],
    before: Place,
    now: Place,
) -> Verdict:
    """`found`: (partition, number, reference) of everything there is. There must be 0 … `count` - 1 and what was
    `created`, and there may be what `perhaps` was. What is there and should not be counts as doubled."""
    missing = bytearray(b"\1") * count
    left, references = set(created), set[bytes]()
    objects = doubled = misplaced = moved = 0
    for partition, number, reference in found:
        objects += 1
        place = now(number)
        misplaced += place != partition
        first = _first(number, missing, left, perhaps)
        doubled += not first or reference in references
        references.add(reference)
        moved += first and number < NEW and place == partition != before(number)
    return Verdict(objects, sum(missing) + len(left), doubled, misplaced, moved)


def _first(number: int, missing: bytearray, left: set[int], perhaps: Set[int]) -> bool:
    """Is it there for the first time, and may it be?"""
    if number < len(missing):
        first, missing[number] = bool(missing[number]), 0
        return first
    if number in left:
        left.discard(number)
        return True
    return number in perhaps


class Writes:
    """Transactions of clients, by their ids: of unknown ones nothing can be said, so they neither count nor stand in
    for others."""

    def __init__(self) -> None:
        self.acknowledged = set[str]()
        self.failed = set[str]()

    def told(self, acknowledged: Iterable[str], failed: Iterable[str]) -> None:
        """What callers know: these happened, these did not."""
        self.acknowledged.update(acknowledged)
        self.failed.update(failed)

    def wrong(self, happened: Iterable[str]) -> int:
        """How many were not as told, by what the log has: not there, there although they failed, or there twice."""
        there = Counter(happened)
        twice = sum(n > 1 for n in there.values())
        return len(self.acknowledged - there.keys()) + len(self.failed & there.keys()) + twice
