"""The mappers of the application in test_mapper.py and test_static.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from mappers import NewObject, States, versioned

ASKED: list[tuple[str, tuple[Any, ...]]] = []


def region(type_name: str, key: tuple[Any, ...]) -> str:
    """`eu-17` belongs to eu; a region without a partition is the test's mistake."""
    ASKED.append((type_name, key))
    return str(key[0]).partition("-")[0]


ANSWERS: dict[str, Iterator[str]] = {"first": repeat("few-0")}


class Rules:
    @staticmethod
    def first(type_name: str, key: tuple[Any, ...]) -> str:
        return next(ANSWERS["first"])


DEPLOYED: dict[str, Any] = {"by_region": versioned(3)(region)}
"""The mappers of this module: what of the application's code is deployed."""


def __getattr__(name: str) -> Any:
    try:
        return DEPLOYED[name]
    except KeyError:
        raise AttributeError(name) from None


WORD = "not a mapper"


@versioned(4)
def by_miles(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    """At create: seaplanes of so many miles are together; one that has flown too far is the test's mistake."""
    return f"round-{made.fields['miles'] // 10}"
