"""Two data centres that each serve their own, keep the other's, and take over either (M5's scenario)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import halog
from halog.errors import CoordinatorError
from halog.runtime.node.paces import Paces
from halog.runtime.sites.site_paces import SitePaces
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring_hindered import reuniting_of
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import both_started, level

pytestmark = pytest.mark.feature("M5", "P5")
registry = Registry()


@halog.managed(key="number", registry=registry)
class Northern:
    number: int
    note: str = ""


@halog.managed(key="number", registry=registry)
class Southern:
    number: int
    note: str = ""


HOMES = {"Southern": "south", "Northern": "north"}
NORTHERN, SOUTHERN = ([f"{name}-{i}" for i in range(2)] for name in ("northern", "southern"))


@pytest.fixture
def two() -> Iterator[tuple[Cluster, Cluster]]:
    """Started at the same time: each needs the other one's partitions."""
    north = Cluster(2, partitions=2, registry=registry, site="north", others=("south",), homes=HOMES)
    south = Cluster(2, partitions=2, registry=registry, site="south", home=north, homes=HOMES)
    north.see(south)
    with both_started(north, south):
        yield north, south


def put(cluster: Cluster, kind: type, *numbers: int) -> None:
    with cluster.node(cluster.names[0]).transaction() as tx:
        for number in numbers:
            tx.create(kind(number))


def kept(cluster: Cluster, kind: type) -> set[int]:
    with cluster.node(cluster.names[0]).transaction(read="local") as tx:
        return {found.number for found in tx.extent(kind)}


def test_each_serves_its_own_and_either_takes_over(two: tuple[Cluster, Cluster]) -> None:
    north, south = two
    put(north, Northern, *range(5)), put(south, Southern, *range(5))
    level(north, south)
    assert kept(south, Northern) == kept(north, Southern) == set(range(5))
    for name in north.names:
        north.kill(name)
    south.cut()
    switching(south).promote(NORTHERN, may_fork=True)
    south.settle()
    put(south, Northern, *range(5, 10)), put(south, Southern, *range(5, 10))
    south.mend()
    north.start()
    level(north, south)
    assert kept(north, Northern) == kept(north, Southern) == set(range(10))
    switching(north).promote(NORTHERN)
    north.settle()
    put(north, Northern, 10), put(south, Southern, 10)
    level(north, south)
    assert kept(south, Northern) == kept(north, Southern) == set(range(11))


@pytest.mark.feature("M4")
def test_both_have_gone_on_with_both(two: tuple[Cluster, Cluster]) -> None:
    """Each is the source of what it serves by right, and the initiating site of the other."""
    north, south = two
    level(north, south)
    south.cut()
    switching(south).promote(NORTHERN, may_fork=True)
    switching(north).promote(SOUTHERN, may_fork=True)
    north.settle(), south.settle()
    put(north, Northern, 1), put(south, Northern, 2), put(north, Southern, 3), put(south, Southern, 4)
    south.mend()
    assert set(reuniting_of(south, north, NORTHERN).values()) <= {"done", "nothing"}
    assert set(reuniting_of(north, south, SOUTHERN).values()) <= {"done", "nothing"}
    level(north, south)
    assert kept(south, Northern) == kept(north, Northern) == {1, 2}
    assert kept(south, Southern) == kept(north, Southern) == {3, 4}


def test_a_home_that_never_starts_is_named() -> None:
    paces = Paces(SitePaces(home_s=0.3))
    north = Cluster(1, partitions=2, registry=registry, site="north", others=("south",), homes=HOMES, paces=paces)
    with pytest.raises(CoordinatorError, match="site south is the home of partition southern-0"):
        north.start()
    south = Cluster(1, partitions=2, registry=registry, site="south", home=north, homes=HOMES, paces=paces)
    north.see(south)
    try:
        south.start()  # what begins at north is there, though its node is not
        north.start()
        wait_until(lambda: all(t.active or t.owner for t in north.tables().values()), "north serves")
    finally:
        south.close(), north.close()
