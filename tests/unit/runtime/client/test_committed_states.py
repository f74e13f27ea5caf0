"""`Backend.states` of real nodes: there while a node is active, replaced by every commit, gone with the role."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from halog.core import events as ev
from halog.errors import LogError
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("D1", "P10")


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


def test_what_is_read_while_the_role_is_ending_is_checked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is no longer active, its state object is still there: what others answer now and what is remembered here
    are not one snapshot."""
    partition, old = cluster.partition_of(Counter, "c"), cluster.active_for(Counter, "c")
    node = cluster.node(old)
    runtime, host = node.runtime, node.runtime.host
    assert host is not None
    for _ in range(2):
        with node.transaction() as tx:
            [tx.get(Counter, n).value for n in "cd"]
    copy = host.copies[partition]
    reached, go_on = threading.Event(), threading.Event()
    follow = host.follow

    def held(tp: Any, offset: int) -> None:
        reached.set()
        assert go_on.wait(60)
        follow(tp, offset)

    monkeypatch.setattr(host, "follow", held)
    table = copy.core.state.table
    other = table.replicas[0].member
    taken = msgspec.structs.replace(table, epoch=table.epoch._replace(number=table.epoch.number + 1), active=other)
    poster = threading.Thread(target=lambda: copy.post(ev.TableSeen(copy.core.state.version + 1, taken)))
    poster.start()
    try:
        assert reached.wait(60)
        assert not copy.serving
        assert partition in runtime.states, "the moment this test is about"
        checked: list[str] = []
        monkeypatch.setattr(runtime, "validate", lambda partition, reads, **_: checked.append(partition))
        with node.transaction() as tx:
            [tx.get(Counter, n).value for n in "cd"]
        assert checked == [partition]
    finally:
        go_on.set()
        poster.join(60)


def test_a_copy_that_stops_has_none(cluster: Cluster) -> None:
    partition, active = cluster.partition_of(Counter, "c"), cluster.active_for(Counter, "c")
    host = cluster.node(active).runtime.host
    assert host is not None
    host.copies[partition].fail(LogError("nothing can be read"))
    assert partition not in host.states


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
