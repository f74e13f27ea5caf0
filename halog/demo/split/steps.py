"""What each site's client does. Pure: a function of the flights and the seed.

West announces most flights and lands a part of them while all is well; in the middle of that the line is cut. Then both
sites do to the same flights what each of them would do alone: every pair of things that two sites can do to one object
is among them, again and again, and each of it in a place that depends on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from halog.demo.model import Status
from halog.demo.rows import Row

WEST, EAST = "west", "east"
ANNOUNCE, MOVE, LAND, DROP = "announce", "move", "land", "drop"


class Step(NamedTuple):
    """One transaction. `by` is its name."""

    number: int
    do: str
    row: Row
    by: str


class Plan(NamedTuple):
    """West's first `announced` steps come before all else; what follows up to `together` is under way when the line is
    cut; the rest, and all of east's, come behind that."""

    west: list[Step]
    east: list[Step]
    announced: int
    together: int


class Role(NamedTuple):
    """What becomes of a flight at each site while they are apart, and of how many in a round."""

    west: tuple[str, ...]
    east: tuple[str, ...]
    times: int


KNOWN = (
    Role((MOVE,), (), 2),
    Role((), (MOVE,), 2),
    Role((MOVE,), (MOVE,), 2),
    Role((MOVE, MOVE), (MOVE, MOVE, MOVE), 1),
    Role((LAND,), (), 2),
    Role((), (LAND,), 2),
    Role((LAND,), (LAND,), 1),
    Role((LAND,), (MOVE,), 1),
    Role((DROP,), (), 1),
    Role((), (DROP,), 1),
    Role((DROP,), (DROP,), 1),
    Role((DROP,), (MOVE,), 1),
    Role((MOVE,), (DROP,), 1),
    Role((DROP, ANNOUNCE), (MOVE,), 1),
    Role((MOVE,), (DROP, ANNOUNCE), 1),
    Role((), (), 3),
)
"""Of flights that both sites know when they part."""
NEW = (
    Role((ANNOUNCE,), (), 2),
    Role((), (ANNOUNCE,), 2),
    Role((ANNOUNCE,), (ANNOUNCE,), 2),
    Role((ANNOUNCE, LAND), (ANNOUNCE, LAND), 2),
    Role((ANNOUNCE, LAND), (), 1),
    Role((), (ANNOUNCE, MOVE, LAND), 1),
    Role((ANNOUNCE, DROP), (ANNOUNCE,), 1),
)
"""Of flights that are announced while they are apart."""


def plan(rows: Sequence[Row], seed: int) -> Plan:
    """Three quarters of the flights are known before."""
    known, new = rows[: len(rows) * 3 // 4], rows[len(rows) * 3 // 4 :]
    before = [(ANNOUNCE, row) for row in known]
    landing = [(LAND, row) for row in known[::2] if row.status is Status.LANDED]
    chance = random.Random(seed)
    apart = [*_dealt(known, KNOWN, chance), *_dealt(new, NEW, chance)]
    west = [*before, *landing, *_in_turns([(role.west, row) for role, row in apart])]
    east = _in_turns([(role.east, row) for role, row in apart])
    return Plan(_numbered(WEST, west), _numbered(EAST, east), len(before), len(before) + len(landing))


def _dealt(rows: Sequence[Row], roles: Sequence[Role], chance: random.Random) -> Iterator[tuple[Role, Row]]:
    """Round after round of all roles, in an order of chance, so that a few dozen flights have each of them."""
    every = [role for role in roles for _ in range(role.times)]
    for start in range(0, len(rows), len(every)):
        chance.shuffle(every)
        yield from zip(every, rows[start : start + len(every)])


def _in_turns(work: Sequence[tuple[tuple[str, ...], Row]]) -> list[tuple[str, Row]]:
    """First what comes first of every flight, then what comes second."""
    longest = max((len(does) for does, _ in work), default=0)
    return [(does[turn], row) for turn in range(longest) for does, row in work if turn < len(does)]


def _numbered(site: str, work: Sequence[tuple[str, Row]]) -> list[Step]:
    return [Step(number, do, row, f"{site}-{number}") for number, (do, row) in enumerate(work)]
