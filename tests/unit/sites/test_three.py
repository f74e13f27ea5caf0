"""A third site, for disasters: it follows whoever serves, takes over, and is merged with, as any other (P5, M5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.metadata.restore_requests import DONE, NOTHING
from halog.runtime.node.paces import Paces
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import note, noted
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import flights, fly, level, stands

pytestmark = pytest.mark.feature("P5", "M5")

IMPATIENT = Paces(SitePaces(gone_s=0.5))
CURIOUS = Paces(SitePaces(served_s=0.2))
"""Whoever serves now is soon asked again."""


@pytest.fixture
def west(paces: Paces) -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="west", others=("east", "dr"), paces=paces) as cluster:
        yield cluster


@pytest.fixture
def east(west: Cluster, paces: Paces) -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="east", home=west, others=("dr",), paces=paces) as cluster:
        west.see(cluster)
        yield cluster


@pytest.fixture
def dr(west: Cluster, east: Cluster, paces: Paces) -> Iterator[Cluster]:
    with Cluster(1, partitions=3, registry=registry, site="dr", home=west, others=("east",), paces=paces) as cluster:
        west.see(cluster), east.see(cluster), cluster.see(east)
        yield cluster


def test_it_follows_whoever_serves(west: Cluster, east: Cluster, dr: Cluster) -> None:
    fly(west, *range(5))
    level(west, dr)
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(5, 10))
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    level(east, dr), level(east, west)
    assert flights(dr) == flights(west) == set(range(10))
    switching(west).promote(NAMES)
    west.settle()
    fly(west, 10)
    level(west, dr), level(west, east)
    assert flights(dr) == set(range(11))


@pytest.mark.feature("R5")
def test_its_requests_follow_whoever_serves(west: Cluster, east: Cluster, dr: Cluster) -> None:
    client = dr.client()

    @client.transactional(retries=50)
    def create(number: int) -> None:
        client.create(Flight(number))

    for number, site in enumerate((east, west)):
        create(number)
        switching(site).promote(NAMES)
        site.settle()
    create(2)
    seen = client.transactional(retries=50)(lambda: {f.number for f in client.extent(Flight)})
    assert seen() == {0, 1, 2}
    level(west, dr), level(west, east)


def test_it_takes_over_where_both_others_are_gone(west: Cluster, east: Cluster, dr: Cluster) -> None:
    fly(west, *range(5))
    level(west, east), level(west, dr)
    for cluster in (west, east):
        for name in cluster.names:
            cluster.kill(name)
    dr.cut()
    switching(dr).promote(NAMES, may_fork=True)
    dr.settle()
    fly(dr, *range(5, 10))
    dr.mend()
    west.start(), east.start()
    level(dr, west), level(dr, east)
    assert flights(west) == flights(east) == set(range(10))


@pytest.mark.parametrize("paces", [IMPATIENT])
def test_it_follows_who_took_over_from_a_site_that_is_gone(west: Cluster, east: Cluster, dr: Cluster) -> None:
    fly(west, *range(5))
    level(west, east), level(west, dr)
    for name in west.names:
        west.kill(name)
    west.cut_off()
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(5, 10))
    level(east, dr)
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    assert flights(dr) == set(range(10))


@pytest.mark.feature("M4")
@pytest.mark.parametrize("paces", [IMPATIENT])
def test_what_it_alone_has_of_a_lost_site_is_not_lost(west: Cluster, east: Cluster, dr: Cluster) -> None:
    """West acknowledged what came over to the third site only: that has parted from who took over, and is merged."""
    fly(west, *range(5))
    level(west, east), level(west, dr)
    east.cut_off()
    fly(west, *range(5, 10))
    level(west, dr)
    west.cut_off()
    east.mend("dr")
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(10, 15))
    wait_until(lambda: [s for n in NAMES if (s := stands(dr, n)) is not None and s.parted], "dr has parted")
    assert set(reuniting(dr, east).values()) <= {DONE, NOTHING}
    level(east, dr)
    assert flights(east) == flights(dr) == set(range(15))


@pytest.mark.feature("M4")
def test_it_follows_a_merge_of_the_other_two(west: Cluster, east: Cluster, dr: Cluster) -> None:
    """It has mirrored the branch that was overruled."""
    fly(west, *range(5))
    level(west, east), level(west, dr)
    east.cut_off()
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    note(west, 1, "west"), note(east, 2, "east")
    level(west, dr)
    east.mend()
    assert set(reuniting(west, east).values()) == {DONE}
    level(east, west), level(east, dr)
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    assert noted(dr) == noted(east) == noted(west) == {0: "", 1: "west", 2: "east", 3: "", 4: ""}


@pytest.mark.parametrize("paces", [CURIOUS])
def test_who_cannot_reach_the_one_that_serves_now_follows_the_one_it_reaches(
    west: Cluster, east: Cluster, dr: Cluster
) -> None:
    """Its log was given away, and has everything all the same; and what it mirrors it is not begun again for that."""
    fly(west, *range(5))
    level(west, dr)
    dr.cut_off("east")
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(5, 10))
    level(east, dr)
    assert owners(dr) == {"west"}
    dr.mend()
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    fly(east, 10)
    level(east, dr)
    assert flights(dr) == set(range(11))
