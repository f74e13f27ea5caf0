"""`read="barrier"` through a whole node: from any node, with writes, calls and extents, and across a failover (R5).

What a frozen process answers is in tests/integration/cluster/test_reads.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from halog import aio
from halog.core.ids import barrier_id
from halog.core.log import records
from halog.core.partition import Partition
from halog.errors import DeadlineError, NotActiveError, QuorumError, RefusedError
from halog.ports import TopicPartition
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("R5")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


@pytest.fixture(params=["client", "active", "replica"])
def node(request: pytest.FixtureRequest, cluster: Cluster) -> Any:
    active = cluster.active_for(Counter, "c")
    if request.param == "client":
        return cluster.client()
    return cluster.node(active if request.param == "active" else next(n for n in cluster.names if n != active))


def value(node: Node) -> int:
    with node.transaction(read="barrier") as tx:
        return tx.get(Counter, "c").value


def barriers(cluster: Cluster) -> list[records.Commit]:
    """Those in the log."""
    log = [row.value for row in cluster.broker.shelf(TopicPartition("test.test.log", 0)).rows]
    found = [r for r in (records.decode(data) for data in log if data) if isinstance(r, records.Commit)]
    return [r for r in found if r.header.tx == barrier_id(r.header.lsn)]


def test_it_reads_what_was_written(node: Node) -> None:
    for n in range(3):
        assert value(node) == n
        with node.transaction() as tx:
            tx.get(Counter, "c").value += 1


def test_it_may_write_and_call(node: Node) -> None:
    with node.transaction(read="barrier") as tx:
        assert tx.get(Counter, "c").add(2) == 2
        tx.create(Counter("d"))
    assert value(node) == 2
    with node.transaction(read="barrier") as tx:
        assert [c.name for c in tx.extent(Counter)] == ["c", "d"]


def test_a_transaction_asks_once_a_partition(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = node.backend.barrier

    def barrier(partition: str) -> int:
        asked.append(partition)
        return real(partition)

    monkeypatch.setattr(node.backend, "barrier", barrier)
    with node.transaction(read="barrier") as tx:
        assert asked == []
        tx.find(Counter, "c")
        tx.find(Counter, "d")
        list(tx.extent(Counter))
    assert asked == ["test-0"]


def test_other_transactions_ask_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.backend, "barrier", None)
    with node.transaction() as tx:
        tx.get(Counter, "c").value += 1
    with node.transaction(read="local") as tx:
        tx.find(Counter, "c")


def test_tasks_have_it_too(node: Node) -> None:
    async def body() -> list[int]:
        async with aio.Node(node).transaction(read="barrier") as tx:
            return [(await tx.get(Counter, "c")).value, len([c async for c in tx.extent(Counter)])]

    assert asyncio.run(body()) == [0, 1]


def test_many_at_once_share_records(cluster: Cluster, node: Node) -> None:
    before, told = len(barriers(cluster)), []
    threads = [threading.Thread(target=lambda: told.append(value(node))) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert told == [0] * 16
    assert 1 <= len(barriers(cluster)) - before <= 16


def test_an_unknown_mode_is_refused_by_name(node: Node) -> None:
    with pytest.raises(RefusedError, match="read='strong' is none of active, local, barrier, lease"):
        node.transaction(read="strong")  # type: ignore[arg-type]


def test_it_goes_on_with_the_next_active_node(cluster: Cluster) -> None:
    client, active = cluster.client(), cluster.active_for(Counter, "c")
    with client.transaction() as tx:
        tx.get(Counter, "c").value = 7
    cluster.kill(active)
    assert value(client) == 7


def test_who_lacks_the_lsn_answers_no_read(cluster: Cluster) -> None:
    """One that was replaced without knowing it could not have it."""
    client, active = cluster.client(), cluster.active_for(Counter, "c")
    router = client.runtime.router  # type: ignore[attr-defined]
    wait_until(lambda: active in router.nodes, "the client knows the node")
    key = REGISTRY.info(Counter).index_key(("c",))
    for request in (frames.Fetch("test-0", [key], 0, 900), frames.Scan("test-0", b"", b"", 9, False, 900)):
        with pytest.raises(NotActiveError, match="does not have lsn 900"):
            router.request(active, request, 5.0)
    here = cluster.node(active)
    here.runtime.asker.call_s = 0.1
    with pytest.raises(DeadlineError, match="did not reach lsn 900"):
        here.backend.fetch("test-0", [key], least=900)


@pytest.mark.feature("R5", "R6")
def test_what_is_shown_before_the_log_has_it_is_not_what_a_barrier_showed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie may show commits that were answered early and lost; the next epoch gave their lsns to others."""
    client, active = cluster.client(), cluster.active_for(Counter, "c")
    router = client.runtime.router  # type: ignore[attr-defined]
    wait_until(lambda: active in router.nodes, "the client knows the node")
    monkeypatch.setattr(Partition, "visible", 1_000)
    with pytest.raises(NotActiveError, match="does not have lsn 900"):
        router.request(active, frames.Fetch("test-0", [b"k"], 0, 900), 5.0)
    router.request(active, frames.Reach("test-0", 900), 5.0)
    here = cluster.node(active)
    here.runtime.asker.call_s = 0.1
    with pytest.raises(DeadlineError, match="did not reach lsn 900"):
        here.backend.fetch("test-0", [b"k"], least=900)


@pytest.mark.feature("R5", "R7")
def test_below_the_quorum_it_is_refused_and_says_so() -> None:
    with Cluster(3, partitions=1, sync_replicas=1, quorum=True, registry=REGISTRY) as cluster:
        client = cluster.client()
        with client.transaction() as tx:
            tx.create(Counter("c"))
        active = cluster.active_for(Counter, "c")
        for name in cluster.names:
            if name != active:
                cluster.kill(name)
        copy = cluster.node(active).runtime.copies["test-0"]
        wait_until(lambda: copy.core.leading is not None and copy.core.leading.writer.short, "below the quorum")
        for node in (client, cluster.node(active)):
            with pytest.raises(QuorumError, match="1 nodes are there"):
                value(node)
            with node.transaction() as tx:
                assert tx.get(Counter, "c").value == 0
