"""This module takes a step in a table of states: those of partitions, zones and remote nodes are such tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
K = TypeVar("K", bound=Enum | None)


def following(table: Mapping[K, Mapping[str, S]], state: K, happening: str) -> S:
    """Return the next state, as the table has it; the state None is that of what is not known. An AssertionError names
    state and happening where the table has no entry."""
    try:
        return table[state][happening]
    except KeyError:
        was = "nothing" if state is None else state.value
        raise AssertionError(f"no transition from {was!r} on {happening!r}") from None
