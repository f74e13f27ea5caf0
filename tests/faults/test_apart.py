"""The line between two sites fails in all its ways; both go on, see each other again, and become one: nothing that any
client was told is lost.

The line is a pair of forwarders (`halog.embedded.line`) for each site, which hold what is under way as TCP does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.apart import Apart, accounted, two_sites_of
from tests.integration.cluster.processes import wait
from tests.integration.sites.two import EAST, NAMES, WEST, Between, TwoSites

pytestmark = [pytest.mark.timeout(400), pytest.mark.feature("M1", "M2", "M3")]

Fault = Callable[[Between], None]


@pytest.fixture
def two_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """With the demo's classes."""
    made = two_sites_of(tmp_path, between)
    try:
        yield made
    finally:
        between.heal()
        made.close()


def cut(between: Between) -> None:
    between.cut()


def cut_toward_east(between: Between) -> None:
    """East hears nothing of west, neither its records nor its answers; what east says arrives."""
    between.cut(toward=EAST)


def cut_toward_west(between: Between) -> None:
    between.cut(toward=WEST)


def refuse(between: Between) -> None:
    between.refuse()


def slow(between: Between) -> None:
    """A round trip takes a fifth of a second more."""
    between.heal()
    between.delay(0.1)


def flapping(between: Between) -> None:
    """Open for longer than a command needs for one thing, and for less than it needs for all."""
    between.flap(2.0, 1.0)


def whole(between: Between) -> None:
    between.heal()


@pytest.mark.promise(1)
@pytest.mark.parametrize(
    ("before", "apart", "again"),
    [
        pytest.param(whole, cut, whole, id="cut", marks=pytest.mark.quick_fault),
        pytest.param(whole, cut_toward_east, whole, id="one-way-to-east"),
        pytest.param(whole, cut_toward_west, whole, id="one-way-to-west"),
        pytest.param(whole, refuse, whole, id="refused"),
        pytest.param(slow, cut, slow, id="slow"),
        pytest.param(flapping, cut, flapping, id="flapping"),
    ],
)
def test_both_sites_go_on_and_become_one(
    two_sites: TwoSites, tmp_path: Path, before: Fault, apart: Fault, again: Fault
) -> None:
    """While the line is bad, cut in the middle of traffic, and bad again while both tell of it and are merged."""
    with Apart(two_sites, tmp_path, seed=7) as world:
        before(two_sites.between)
        world.part(lambda: apart(two_sites.between))
        again(two_sites.between)
        world.finish_traffic()
        world.is_told()
        world.restored()
        accounted(world.judged())
        for site in NAMES:
            wait(lambda at=site: not world.command(at, "status", code=4)["parted"], f"{site} tells of one history")  # type: ignore[misc]
