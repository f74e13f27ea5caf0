"""One of two sites has lost its coordinator's data: its tables are made anew from its own logs (M5, P10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.adapters.memory import MemoryTree
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.node.test_cluster_identity import stop
from tests.unit.runtime.node.test_cluster_recovery import Tool

pytestmark = [pytest.mark.nodes, pytest.mark.feature("M5", "P10")]

KEYS = [f"c{i}" for i in range(6)]


@pytest.fixture
def sites() -> Iterator[tuple[Cluster, Cluster]]:
    with (
        Cluster(2, partitions=2, registry=REGISTRY, site="west", others=("east",)) as west,
        Cluster(2, partitions=2, registry=REGISTRY, site="east", home=west) as east,
    ):
        west.see(east)
        add_all(west)
        yield west, east


def add_all(cluster: Cluster) -> list[int]:
    client, values = cluster.client(), []
    for key in KEYS:
        with client.transaction() as tx:
            counter = tx.find(Counter, key) or tx.create(Counter(key))
            values.append(counter.add(1))
    return values


def ends(cluster: Cluster) -> dict[str, int]:
    """The last lsn of each partition, as every copy of this site has it; 0 where they differ."""
    found: dict[str, set[int]] = {}
    for running in cluster.running.values():
        for name, copy in running.node.runtime.copies.items():
            found.setdefault(name, set()).add(copy.core.state.chain.state.lsn)
    return {name: lsns.pop() if len(lsns) == 1 else 0 for name, lsns in found.items()}


def level(west: Cluster, east: Cluster) -> bool:
    return all(ends(west).values()) and ends(west) == ends(east)


@pytest.mark.parametrize("forgets", [False, True], ids=["its stores are there", "its stores are empty"])
def test_the_site_that_mirrors_goes_on_mirroring(sites: tuple[Cluster, Cluster], *, forgets: bool) -> None:
    west, east = sites
    wait_until(lambda: level(west, east), "east has it all")
    stop(east)
    before, east.tree = east.tables(), MemoryTree()
    if forgets:
        for disk in east.disks.values():
            disk.data.clear()
    plan = Tool(east).recover()
    assert not plan.problems
    assert any("mirrors" in text for text in plan.lost)
    tables = east.tables()
    assert {n: (t.log_id, t.home, t.owner) for n, t in tables.items()} == {
        n: (t.log_id, "west", "west") for n, t in before.items()
    }
    east.start()
    assert add_all(west) == [2] * len(KEYS)
    wait_until(lambda: level(west, east), "east goes on")


def test_the_site_that_serves_goes_on_serving(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    stop(west)
    west.tree = MemoryTree()
    assert not Tool(west).recover().problems
    west.start()
    assert add_all(west) == [2] * len(KEYS)
    wait_until(lambda: level(west, east), "east follows")
