"""`Backend.states` of real nodes: there while a node is active, replaced by every commit, gone with the role."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until

pytestmark = pytest.mark.feature("D1", "P10")
REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Counter:
    name: str
    value: int = 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
            tx.create(Counter("d"))
        yield cluster


def count(cluster: Cluster) -> None:
    with cluster.client().transaction() as tx:
        tx.get(Counter, "c").value += 1


def test_only_the_active_node_has_one_and_every_commit_replaces_it(cluster: Cluster) -> None:
    partition, active = cluster.partition_of(Counter, "c"), cluster.active_for(Counter, "c")
    states = {n: cluster.node(n).runtime.states for n in cluster.names}
    assert [n for n in states if partition in states[n]] == [active]
    before = states[active][partition]
    with cluster.node(active).transaction() as tx:
        assert [tx.get(Counter, n).value for n in "cd"] == [0, 0]
    assert states[active][partition] is before
    count(cluster)
    assert states[active][partition] is not before


def test_a_node_that_is_no_longer_active_reads_what_the_new_one_commits(cluster: Cluster) -> None:
    partition, old = cluster.partition_of(Counter, "c"), cluster.active_for(Counter, "c")
    node = cluster.node(old)
    for _ in range(2):
        with node.transaction() as tx:
            assert [tx.get(Counter, n).value for n in "cd"] == [0, 0]
    new = next(n for n in cluster.names if n != old)
    cluster.settle()
    node.runtime.operators.hand_over(partition, new)
    wait_until(lambda: cluster.active_for(Counter, "c") == new, "the other one is active")
    assert partition not in node.runtime.states
    count(cluster)
    with node.transaction() as tx:
        assert [tx.get(Counter, n).value for n in "cd"] == [1, 0]
