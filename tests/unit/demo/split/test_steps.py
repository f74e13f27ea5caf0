"""What the two clients do is decided beforehand: the same for the same seed, and all of it even in a small run."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict

from halog.demo.model import FlightStatus
from halog.demo.rows import FlightRow
from halog.demo.split.steps import ANNOUNCE, DROP, KNOWN, LAND, NEW, StepPlan, plan

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def rows(count: int) -> list[FlightRow]:
    def row(n: int) -> FlightRow:
        landed = n % 7 != 0
        status = FlightStatus.LANDED if landed else FlightStatus.CANCELLED
        return FlightRow(
            n,
            START + dt.timedelta(minutes=n),
            "UA",
            n,
            f"N{n % 11}",
            "JFK",
            f"X{n % 5}",
            status,
            100 + n,
            n if landed else None,
        )

    return [row(n) for n in range(count)]


def roles(found: StepPlan) -> Counter[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What became of each flight while they were apart."""
    done: dict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, steps in enumerate((found.west[found.together :], found.east)):
        for step in steps:
            done[step.row.number][side].append(step.do)
    return Counter((tuple(west), tuple(east)) for west, east in done.values())


def test_the_same_seed_does_the_same() -> None:
    assert plan(rows(200), 1) == plan(rows(200), 1)
    assert plan(rows(200), 1) != plan(rows(200), 2)


def test_a_hundred_flights_have_each_pair_of_things_two_sites_can_do_to_one() -> None:
    found = roles(plan(rows(100), 5))
    wanted = {(role.west, role.east) for role in (*KNOWN, *NEW)} - {((), ())}
    assert wanted <= found.keys()


def test_steps_are_numbered_by_site_and_come_in_the_order_of_the_story() -> None:
    found = plan(rows(120), 3)
    for site, steps in (("west", found.west), ("east", found.east)):
        assert [s.number for s in steps] == list(range(len(steps)))
        assert [s.by for s in steps] == [f"{site}-{n}" for n in range(len(steps))]
    assert {s.do for s in found.west[: found.announced]} == {ANNOUNCE}
    assert found.announced == 90
    assert {s.do for s in found.west[found.announced : found.together]} == {LAND}
    assert not any(s.do == DROP for s in found.west[: found.together])
    known = {s.row.number for s in found.west[: found.announced]}
    assert any(s.row.number not in known for s in found.east)
