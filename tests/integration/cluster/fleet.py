"""The application all nodes and clients of these tests run."""

from __future__ import annotations

from typing import Any

from halog.schema import Ref, managed
from mappers import NewObject, States, least_loaded

NOWHERE = -1
"""Miles of an aircraft that `by_miles` has no partition for."""


class GroundedError(Exception):
    """An application's own exception."""


@managed(key="tail")
class Aircraft:
    tail: str
    landings: int = 0
    miles: int = 0
    blob: bytes = b""

    def land(self, miles: int) -> int:
        self.landings += 1
        self.miles += miles
        return self.landings

    def ground(self, why: str) -> None:
        self.landings = -1
        raise GroundedError(why)


@managed(key=("tail", "number"), partition_by="tail")
class Flight:
    tail: str
    number: int
    of: str = ""


@managed(key=("tail", "name"), partition_by="tail")
class Pilot:
    tail: str
    name: str
    flies: Ref[Aircraft]


def by_letters(type_name: str, key: tuple[Any, ...]) -> str:
    """A mapper for four partitions: another place than the ring's for three tails of four."""
    return f"p-{sum(key[0].encode()) % 4}"


def by_miles(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    """At create: those that have flown are together by their miles, new ones where there are the fewest."""
    miles = made.fields["miles"]
    if miles == NOWHERE:
        return "nowhere"
    return partitions[miles % len(partitions)] if miles else least_loaded(made, partitions, states)
