"""What became of objects whose mapping changed: lost, doubled, misplaced. Pure; the mapper is called by the caller."""

from __future__ import annotations

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
