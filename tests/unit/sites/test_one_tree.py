"""One file for all sites: zones that span them, the manual's node lists, and what is of one site alone (M5, P5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import halog
from halog.config import PolicyConfig, StaticPartition
from halog.errors import ConfigError, UnknownTypeError, ZoneQuorumError
from halog.runtime.node.open import node as open_node
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import both_started, level
from tests.unit.sites.whole import share

pytestmark = pytest.mark.feature("M5", "P5")
registry = Registry()


@halog.managed(key="number", registry=registry)
class Plane:
    number: int


@halog.managed(key="number", registry=registry)
class A:
    number: int


@halog.managed(key="number", registry=registry)
class B:
    number: int


@halog.managed(key="number", registry=registry)
class Southern:
    number: int


@halog.managed(key="number", registry=registry)
class Craft:
    number: int


@halog.managed(registry=registry)
class SouthernCraft(Craft):
    pass


def static(home: str, name: str, *nodes: str) -> PolicyConfig:
    return PolicyConfig("test", home=home, kind="static", static={name: StaticPartition(nodes)})


LISTS = {
    "A": static("north", "A", "north-A", "north-B", "south-B"),
    "B": static("south", "B", "south-A", "south-B", "north-B"),
    "Southern": PolicyConfig("south", 2),
    "SouthernCraft": PolicyConfig("south", 1),
}
"""The manual's: A is on One, Two and Four, B on Three, Four and Two; and what is the south's alone."""


@contextmanager
def started(percentage: int | None = None) -> Iterator[tuple[Cluster, Cluster]]:
    """At the same time: each needs the other one's partitions."""
    north = Cluster(2, partitions=2, registry=registry, site="north", others=("south",))
    south = Cluster(2, partitions=2, registry=registry, site="south", home=north)
    north.see(south)
    share(north, south, percentage=percentage, **LISTS)
    with both_started(north, south):
        yield north, south


def put(cluster: Cluster, kind: type, *numbers: int, node: str = "") -> None:
    """In a transaction; again where another site serves by now."""
    there = cluster.node(node or cluster.names[0])

    @there.transactional()
    def create() -> None:
        for number in numbers:
            there.create(kind(number))

    create()


def kept(cluster: Cluster, node: str, kind: type) -> set[int]:
    with cluster.node(node).transaction(read="local") as tx:
        return {found.number for found in tx.extent(kind)}


def served(cluster: Cluster) -> dict[str, str]:
    """By partition, the active node, of those placed by hand that are served there."""
    return {
        name: table.active.node
        for name, table in cluster.tables().items()
        if name in ("A", "B") and table.active is not None and not table.owner
    }


def test_the_manuals_scenario_is_written_once() -> None:
    """Each site has its part of the lists; losing the north makes Four active for A, losing the south Two for B."""
    with started() as (north, south):
        placed = {c.site: {n: t.configured for n, t in c.tables().items() if n in "AB"} for c in (north, south)}
        assert placed == {
            "north": {"A": ("north-A", "north-B"), "B": ("north-B",)},
            "south": {"A": ("south-B",), "B": ("south-A", "south-B")},
        }
        put(north, A, 1), put(south, B, 1), put(north, Plane, *range(5))
        level(north, south)
        assert kept(south, "south-B", A) == kept(north, "north-B", B) == {1}
        for name in north.names:
            north.kill(name)
        south.cut()
        switching(south).promote(["A"], may_fork=True)
        wait_until(lambda: served(south).get("A") == "south-B", "Four is active for A")
        put(south, A, 2)
        south.mend()
        north.start()
        level(north, south)
        switching(north).promote(["A"])
        wait_until(lambda: "A" in served(north), "A is at home again")
        for name in south.names:
            south.kill(name)
        south.cut()
        switching(north).promote(["B"], may_fork=True)
        wait_until(lambda: served(north).get("B") == "north-B", "Two is active for B")
        put(north, B, 2)
        assert (kept(north, "north-B", A), kept(north, "north-B", B)) == ({1, 2}, {1, 2})


def test_what_is_of_one_site_alone_is_used_there() -> None:
    """Elsewhere it is refused by name: nothing is kept where nobody would look for it."""
    with started() as (north, south):
        assert set(north.tables()) == {"A", "B", "test-0", "test-1"}
        put(south, Southern, 1)
        with pytest.raises(UnknownTypeError, match="Southern is bound to policy southern, whose nodes are at site"):
            put(north, Southern, 2)
        assert north.tree.get("policies/southern") is None
        with pytest.raises(ConfigError, match="node south-A is of site south, and this is site north"):
            open_node(north.config, "south-A", registry=registry, adapters=lambda *_: pytest.fail("nothing is opened"))


@pytest.mark.feature("Q1")
def test_a_site_that_is_lost_takes_no_node_of_the_other_one_offline() -> None:
    """Each site counts its own nodes: half of the zone's is all of the site's."""
    with started(51) as (north, south):
        put(north, Plane, 1)
        for name in south.names:
            south.kill(name)
        north.cut()
        put(north, Plane, 2)
        assert not any(north.node(name).runtime.members.offline for name in north.names)


@pytest.mark.feature("Q1")
def test_a_node_without_the_quorum_of_its_own_site_is_offline() -> None:
    """However many nodes of the other site are there: they are not whom it reaches its partitions' log by."""
    with started(51) as (north, south):
        north.kill("north-A")
        members = north.node("north-B").runtime.members
        wait_until(lambda: members.offline, "north-B is offline")
        assert members.offline == "zone test has no quorum here: 1 votes, 2 needed"
        with pytest.raises(ZoneQuorumError):
            put(north, A, 3, node="north-B")
        assert not any(south.node(name).runtime.members.offline for name in south.names)


@pytest.mark.feature("P6")
def test_a_class_some_of_whose_objects_are_of_another_site_alone_is_not_used_as_if_there_were_none() -> None:
    """What is asked for may be there. In the south, where all of them are, it is as ever."""
    with started() as (north, south):
        put(south, Craft, 1), put(south, SouthernCraft, 2)
        with north.node("north-A").transaction() as tx, pytest.raises(UnknownTypeError, match="SouthernCraft is bound"):
            tx.get(Craft, 2)
        with north.node("north-A").transaction() as tx, pytest.raises(UnknownTypeError, match="SouthernCraft is bound"):
            list(tx.extent(Craft))
        level(north, south)
        assert kept(south, "south-A", Craft) == {1, 2}
