"""Commits that wait for two other sites, where one of these follows who serves only in the middle of its epoch (M5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from halog.core.ids import EpochId
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import registry
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.test_sync_sites import SOON_MS, closed, flies
from tests.unit.sites.two import fly, level, states

pytestmark = pytest.mark.feature("M5", "P5")

ALL = ("west", "east", "dr")
AWAY_MS = 30_000


def cluster(site: str, home: Cluster | None, *others: str, away_ms: int = AWAY_MS) -> Cluster:
    return Cluster(
        1,
        partitions=3,
        registry=registry,
        site=site,
        home=home,
        others=others,
        sync_sites=ALL,
        sync_site_away_ms=away_ms,
    )


@pytest.fixture
def sites() -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    with cluster("west", None, "east", "dr") as west, cluster("east", west, "dr") as east:
        west.see(east)
        with cluster("dr", west, "east") as dr:
            west.see(dr)
            east.see(dr)
            dr.see(east)
            yield west, east, dr


def test_a_third_site_confirms_though_it_began_to_follow_in_the_middle_of_an_epoch(
    sites: tuple[Cluster, Cluster, Cluster],
) -> None:
    """It has fenced its own log for that; what has arrived there is of the epoch that the other site opened."""
    west, east, dr = sites
    fly(west, 1)
    level(west, dr)
    dr.cut_off("east")
    switching(east).promote(NAMES)
    east.settle()
    level(east, dr)  # by way of west, whose log is east's by now
    dr.mend("east")
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    assert {begun(dr, name).site for name in NAMES} == {"dr"}
    fly(east, *range(2, 10))
    wait_until(lambda: {t.synced for t in east.tables().values()} == {("west", "dr")}, "dr has everything")


def begun(cluster: Cluster, partition: str) -> EpochId:
    return states(cluster)[partition].epoch


def test_a_third_site_that_was_let_go_of_is_not_waited_for_at_the_next_one_either() -> None:
    """It is away, and an operator has said so; who takes over need not be told again."""
    soon = partial(cluster, away_ms=SOON_MS)
    with soon("west", None, "east", "dr") as west, soon("east", west, "dr") as east:
        west.see(east)
        with soon("dr", west, "east") as dr:
            west.see(dr), east.see(dr), dr.see(east)
            fly(west, 1)
            level(west, east), level(west, dr)
        wait_until(lambda: closed(west), "dr is away, and commits are refused")
        switching(west).let_go(NAMES, "dr")
        wait_until(lambda: flies(west, 2), "commits go on")
        switching(east).promote(NAMES)
        east.settle()
        assert {t.let_go for t in east.tables().values()} == {("dr",)}
        wait_until(lambda: flies(east, 3), "here, too")
