"""The mappers of the application in test_at_create.py."""

from __future__ import annotations

from collections.abc import Callable

from mappers import NewObject, States, versioned

MODULE = "tests.unit.runtime.keys.at_create"
ASKED: list[tuple[NewObject, tuple[str, ...], States]] = []
Said = Callable[[NewObject, tuple[str, ...], States], str]
SAID: list[Said] = []
"""Instead of what the object says."""


@versioned(1)
def by_value(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    """Objects with the same value are together, whatever their keys are."""
    ASKED.append((made, partitions, states))
    if SAID:
        return SAID[-1](made, partitions, states)
    return partitions[made.fields.get("value", 0) % len(partitions)]


@versioned(2, earlier=by_value)
def last(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    return partitions[-1]
