"""Requests over the line to the site that serves, with real processes: nothing acknowledged is lost, or done twice."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from halog.errors import OutcomeUnknownError, PartitionUnavailableError
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import passes, wait
from tests.integration.sites.test_taking_over import command, gone_on, land, landings, level
from tests.integration.sites.two import EAST, WEST, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "N2")]


def answers(node: Any, tail: str) -> bool:
    """Does it read what another site serves?"""
    try:
        with node.transaction():
            return node.find(Aircraft, tail) is not None
    except PartitionUnavailableError:
        return False


def test_a_site_that_mirrors_commits_and_reads_where_it_is_served(open_sites: TwoSites) -> None:
    """Through a slow line too; its own copies have it as soon as the mirror does."""
    open_sites.start()
    east = open_sites.east.client()
    land(east, "R1", 10)
    assert landings(open_sites.west, "R1") == 10
    open_sites.between.delay(0.05)
    land(east, "R1", 3)
    assert landings(open_sites.east, "R1") == 13
    open_sites.between.heal()
    level(open_sites)


@pytest.mark.long
def test_traffic_of_both_sites_goes_on_while_the_serving_one_changes(open_sites: TwoSites) -> None:
    """Take-overs there and back, and a node that is killed, under traffic from both sides: each landing once."""
    open_sites.start()
    west, east = open_sites.west.client(), open_sites.east.client()
    with Load(west, "w") as one, Load(east, "e") as other:
        for harm in (
            lambda: command(open_sites.east, "promote"),
            lambda: open_sites.east.kill("east-1"),
            lambda: open_sites.east.start(["east-1"]),
            lambda: open_sites.between.delay(0.01),
            lambda: command(open_sites.west, "promote"),
            lambda: open_sites.west.kill("west-2"),
            lambda: open_sites.west.start(["west-2"]),
        ):
            harm()
            one.flows()
            other.flows()
    level(open_sites)
    for load in (one, other):
        assert all(isinstance(e, OutcomeUnknownError) for e in load.errors), load.errors[:3]
        load.check_objects(open_sites.west.client("judge"))
        load.check_objects(open_sites.east.client("judge"))


@pytest.mark.parametrize("toward", ["", *(pytest.param(one, marks=pytest.mark.long) for one in (WEST, EAST))])
def test_a_line_cut_under_traffic_loses_nothing_and_repeats_nothing(open_sites: TwoSites, toward: str) -> None:
    """All of it, or one way: the requests, or the answers. The home notices nothing."""
    open_sites.start()
    with Load(open_sites.west.client(), "w") as home, Load(open_sites.east.client(), "e") as away:
        for _ in range(2):
            open_sites.between.cut(toward=toward)
            home.flows()
            passes(2.0)
            open_sites.between.heal()
            away.flows()
    assert not home.errors
    level(open_sites)
    home.check_objects(open_sites.east.client("judge"))
    away.check_objects(open_sites.west.client("judge"))
    assert all(isinstance(e, PartitionUnavailableError | OutcomeUnknownError) for e in away.errors), away.errors[:3]


def test_a_line_that_is_down_is_told_in_seconds_and_by_name(open_sites: TwoSites) -> None:
    """Silent, and refusing; what comes next is refused at once; when it is back so is everything."""
    open_sites.start()
    east = open_sites.east.client()
    land(east, "R2")
    for harm in (open_sites.between.cut, open_sites.between.refuse):
        harm()
        took = []
        for _ in range(4):
            began = time.monotonic()
            with pytest.raises(PartitionUnavailableError, match="served by site west"), east.transaction():
                east.get(Aircraft, "R2")
            took.append(time.monotonic() - began)
        assert max(took) < 20, took  # half of the deadline
        open_sites.between.heal()
        wait(partial(answers, east, "R2"), "it is served again")
    land(east, "R2")
    assert landings(open_sites.west, "R2") == 2


@pytest.mark.long
def test_a_site_that_went_on_alone_and_gave_up_is_followed_to_the_one_that_serves(open_sites: TwoSites) -> None:
    """Split, both go on; then the west is told to stop: its clients use the east's history, and mix in nothing."""
    gone_on(open_sites, "R3")

    def served() -> bool:
        try:
            return landings(open_sites.west, "R3") == 9
        except PartitionUnavailableError:
            return False

    wait(served, "the west reads what the east serves")
    land(open_sites.west.client(), "R3")
    assert landings(open_sites.east, "R3") == landings(open_sites.west, "R3") == 10
    command(open_sites.west, "promote", "--may-fork", "--cluster", open_sites.west.name)
    wait(partial(_is, open_sites, 8), "the west has its own history again")
    assert landings(open_sites.east, "R3") == 10


def _is(sites: TwoSites, number: int) -> bool:
    try:
        return landings(sites.west, "R3") == number
    except PartitionUnavailableError:
        return False
