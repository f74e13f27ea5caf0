"""One partition, a few, dozens: a cluster begins, a node loses its session and comes back, and one dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.testing.cluster import WAIT_S, Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.timeout(600)

MORE_S = 0.3
"""For each partition, on a busy machine."""

SOME = 8
"""In so many partitions something is committed before each fault."""


@pytest.fixture(params=[1, 3, 64])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def cluster(count: int) -> Iterator[Cluster]:
    made = Cluster(3, partitions=count, registry=REGISTRY)
    try:
        yield made
    finally:
        made.close()


def one_of_each(cluster: Cluster, count: int) -> dict[str, str]:
    """A key of each partition."""
    found: dict[str, str] = {}
    numbers = iter(range(1_000_000))
    while len(found) < count:
        name = f"N{next(numbers)}"
        found.setdefault(cluster.partition_of(Counter, name), name)
    return found


def add_one(client: Node, names: list[str], value: int) -> None:
    """A transaction for each; all must be at `value` before."""
    for name in names:
        with client.transaction():
            found = client.get(Counter, name)
            assert found.value == value, name
            found.value += 1


@pytest.mark.feature("P13", "P10", "R4")
def test_partitions_begin_outlive_a_lost_session_and_fail_over(cluster: Cluster, count: int) -> None:
    within = WAIT_S + MORE_S * count
    cluster.start(within)
    keys = one_of_each(cluster, count)
    assert set(keys) == set(cluster.tables())
    client, names = cluster.client(), list(keys.values())
    client.load([Counter(name) for name in names])
    add_one(client, names[:SOME], 0)
    victim = cluster.active_for(Counter, names[0])
    before = cluster.running[victim].coordinator.session
    cluster.running[victim].coordinator.expire()
    again = cluster.running[victim].coordinator
    wait_until(lambda: again.session != before and cluster.tree.get(f"nodes/{victim}"), "it is registered again")
    cluster.settle(within)
    add_one(client, names[:SOME], 1)
    victim = cluster.active_for(Counter, names[0])
    epochs = {name: table.epoch for name, table in cluster.tables().items()}
    led = {name for name, table in cluster.tables().items() if table.active and table.active.node == victim}
    cluster.kill(victim)
    cluster.settle(within)
    after = cluster.tables()
    assert all(after[name].epoch.number > epochs[name].number for name in led)
    assert all(table.active and table.active.node != victim for table in after.values())
    add_one(client, names[:SOME], 2)
    add_one(client, names[SOME:], 0)
