"""Two real sites of a policy with `takeover = "always"`: a line that is cut, and nobody who says who goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.rounds import halog_said
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import halog
from tests.integration.sites.test_taking_over import land, landings, level
from tests.integration.sites.two import EAST, Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M1", "M2", "Q1")]

AFTER_MS = 3_000
TAKES_S = 90.0
"""For a takeover: that, and whoever is asked in vain over a line that is cut, on a busy machine."""
SHARED = "S"


@pytest.fixture
def two_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    made = TwoSites(tmp_path, between, takeover="always", takeover_after_ms=AFTER_MS)
    try:
        yield made
    finally:
        between.heal()
        made.close()


def partitions_told_as_parted(two_sites: TwoSites) -> list[list[str]]:
    """By each site."""
    sites = (two_sites.west, two_sites.east)
    return [sorted(p["partition"] for p in halog_said(site, "status")["parted"]) for site in sites]


@pytest.mark.long
def test_both_go_on_by_themselves_and_nothing_that_either_acknowledged_is_lost(two_sites: TwoSites) -> None:
    """Each acknowledges while the line is cut; both say that they have parted once they see each other, and go on;
    restored, every landing is there, once. Of what both have changed the source's stands."""
    two_sites.start()
    west, east = two_sites.west, two_sites.east
    land(west.client(), SHARED, 2)
    level(two_sites)
    names = west.partitions()
    wait(lambda: all(east.znode(f"site_votes/{p}") for p in names), "east is told that west serves")
    home, away = Load(west.client("w"), "w", 2, 0.02), Load(east.client("e"), "e", 2, 0.02)
    with ExitStack() as elsewhere:
        with home:
            two_sites.between.cut()
            wait(lambda: not any(t.owner for t in east.tables()), "east takes over", TAKES_S)
            east.whole()
            assert [t.owner for t in west.tables()] == [""] * 2, "west serves on"
            elsewhere.enter_context(away)
            land(west.client(), SHARED, 3), land(east.client(), SHARED, 4)
            home.flows()
            two_sites.between.heal()
            wait(lambda: partitions_told_as_parted(two_sites) == [names] * 2, "both tell it")
            home.flows(), away.flows()
            assert [t.owner for t in (*west.tables(), *east.tables())] == [""] * 4, "nothing is merged by itself"
        told = halog(west, "restore", "--source", EAST)
        away.flows()
    assert {d["phase"] for d in told} == {"done"}
    assert sum(sum(d["conflicts"].values()) for d in told) >= 1
    level(two_sites)
    assert not home.errors + away.errors
    judge = east.client("judge")
    home.check_objects(judge), away.check_objects(judge)
    assert landings(east, SHARED) == 2 + 4
    assert [t.owner for t in west.tables()] == [EAST] * 2
    wait(lambda: partitions_told_as_parted(two_sites) == [[], []], "nobody tells it any more")
