"""This module decides what each site's client does. Pure: a function of the flights and the seed.

West announces most flights and lands a part of them while all is well; in the middle of that the line is cut. Then both
sites change the same flights, each as if it were alone. Every pair of changes that two sites can make to one object
occurs, again and again, each in a place that depends on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from halog.demo.model import FlightStatus
from halog.demo.rows import FlightRow

WEST, EAST = "west", "east"
ANNOUNCE, MOVE, LAND, DROP = "announce", "move", "land", "drop"


class FlightStep(NamedTuple):
    """Holds one transaction. `by` is its name."""

    number: int
    do: str
    row: FlightRow
    by: str


class StepPlan(NamedTuple):
    """Holds the steps of both sites. West's first `announced` steps come before all else; the steps after these, up to
    `together`, are under way when the line is cut; the rest, and all of east's, come behind that."""

    west: list[FlightStep]
    east: list[FlightStep]
    announced: int
    together: int


class FlightRole(NamedTuple):
    """Says what becomes of a flight at each site while they are apart, and of how many flights in a round."""

    west: tuple[str, ...]
    east: tuple[str, ...]
    times: int


KNOWN = (
    FlightRole((MOVE,), (), 2),
    FlightRole((), (MOVE,), 2),
    FlightRole((MOVE,), (MOVE,), 2),
    FlightRole((MOVE, MOVE), (MOVE, MOVE, MOVE), 1),
    FlightRole((LAND,), (), 2),
    FlightRole((), (LAND,), 2),
    FlightRole((LAND,), (LAND,), 1),
    FlightRole((LAND,), (MOVE,), 1),
    FlightRole((DROP,), (), 1),
    FlightRole((), (DROP,), 1),
    FlightRole((DROP,), (DROP,), 1),
    FlightRole((DROP,), (MOVE,), 1),
    FlightRole((MOVE,), (DROP,), 1),
    FlightRole((DROP, ANNOUNCE), (MOVE,), 1),
    FlightRole((MOVE,), (DROP, ANNOUNCE), 1),
    FlightRole((), (), 3),
)
"""Roles of flights that both sites know when they part."""
NEW = (
    FlightRole((ANNOUNCE,), (), 2),
    FlightRole((), (ANNOUNCE,), 2),
    FlightRole((ANNOUNCE,), (ANNOUNCE,), 2),
    FlightRole((ANNOUNCE, LAND), (ANNOUNCE, LAND), 2),
    FlightRole((ANNOUNCE, LAND), (), 1),
    FlightRole((), (ANNOUNCE, MOVE, LAND), 1),
    FlightRole((ANNOUNCE, DROP), (ANNOUNCE,), 1),
)
"""Roles of flights that are announced while they are apart."""


def plan(rows: Sequence[FlightRow], seed: int) -> StepPlan:
    """Return the steps of both sites. Three quarters of the flights are known before the cut."""
    known, new = rows[: len(rows) * 3 // 4], rows[len(rows) * 3 // 4 :]
    before = [(ANNOUNCE, row) for row in known]
    landing = [(LAND, row) for row in known[::2] if row.status is FlightStatus.LANDED]
    chance = random.Random(seed)
    apart = [*_dealt(known, KNOWN, chance), *_dealt(new, NEW, chance)]
    west = [*before, *landing, *_in_turns([(role.west, row) for role, row in apart])]
    east = _in_turns([(role.east, row) for role, row in apart])
    return StepPlan(_numbered(WEST, west), _numbered(EAST, east), len(before), len(before) + len(landing))


def _dealt(
    rows: Sequence[FlightRow], roles: Sequence[FlightRole], chance: random.Random
) -> Iterator[tuple[FlightRole, FlightRow]]:
    """Yield round after round of all roles, in random order, so that a few dozen flights have each of them."""
    every = [role for role in roles for _ in range(role.times)]
    for start in range(0, len(rows), len(every)):
        chance.shuffle(every)
        yield from zip(every, rows[start : start + len(every)])


def _in_turns(work: Sequence[tuple[tuple[str, ...], FlightRow]]) -> list[tuple[str, FlightRow]]:
    """Return the first change of every flight, then the second, and so on."""
    longest = max((len(does) for does, _ in work), default=0)
    return [(does[turn], row) for turn in range(longest) for does, row in work if turn < len(does)]


def _numbered(site: str, work: Sequence[tuple[str, FlightRow]]) -> list[FlightStep]:
    return [FlightStep(number, do, row, f"{site}-{number}") for number, (do, row) in enumerate(work)]
