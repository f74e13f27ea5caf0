"""Read your own writes on any node: a session's token on replicas that lag (R5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from halog import Token, aio
from halog.errors import DeadlineError
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

LATE_S = 0.4
pytestmark = pytest.mark.feature("R5")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, sync_replicas=0, registry=REGISTRY) as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


@pytest.fixture
def replica(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A node whose copy reads the log late."""
    active = cluster.active_for(Counter, "c")
    name = next(r.node for r in cluster.tables()["test-0"].replicas if r.node != active)
    node = cluster.node(name)
    copy = node.runtime.copies["test-0"]
    wait_until(lambda: copy.objects.find(_key(node)) is not None, "the replica has the object")
    read = Copy.read

    def late(self: Copy, entries: Any) -> None:
        if self is copy:
            time.sleep(LATE_S)
        read(self, entries)

    monkeypatch.setattr(Copy, "read", late)
    return node


def _key(node: Any) -> bytes:
    info = REGISTRY.info(Counter)
    return info.index_key(info.check_key(("c",)))


def add(node: Any) -> Token:
    with node.transaction() as tx:
        tx.get(Counter, "c").value += 1
    token: Token = tx.token
    return token


def value(node: Any, **how: Any) -> int:
    with node.transaction(read="local", **how) as tx:
        seen: int = tx.get(Counter, "c").value
    return seen


def test_a_replica_read_after_a_token_has_the_write(cluster: Cluster, replica: Any) -> None:
    token = add(cluster.client())
    assert value(replica) == 0, "the replica lags: without the token the read is old"
    assert value(replica, after=Token.parse(str(token))) == 1


def test_several_tokens_count_together_also_what_was_only_read(cluster: Cluster, replica: Any) -> None:
    client = cluster.client()
    first, second = add(client), add(client)
    with client.transaction() as tx:
        assert tx.get(Counter, "c").value == 2
        read = tx.token
    assert read == second
    assert value(replica, after=[first, read]) == 2


def test_an_extent_waits_too(cluster: Cluster, replica: Any) -> None:
    token = add(cluster.client())
    with replica.transaction(read="local", after=token) as tx:
        assert [c.value for c in tx.extent(Counter)] == [1]
    assert tx.token == token


def test_a_position_that_is_never_reached_is_refused_in_time(cluster: Cluster, replica: Any) -> None:
    replica.runtime.asker.call_s = 0.2
    with pytest.raises(DeadlineError, match="did not reach lsn 900000"):
        value(replica, after=Token({"test-0": 900_000}))
    assert value(replica, after=Token({"elsewhere-7": 5})) >= 0, "of a partition that is not read"


def test_reads_of_the_active_from_elsewhere_wait_too(cluster: Cluster) -> None:
    client = cluster.client()
    token = add(client)
    with client.transaction(after=token) as tx:
        tx.get(Counter, "c").value += 1
    assert tx.token.positions["test-0"] > token.positions["test-0"]


def test_tasks_have_them_too(cluster: Cluster, replica: Any) -> None:
    async def both() -> int:
        writer, reader = aio.Node(cluster.client()), aio.Node(replica)
        async with writer.transaction() as tx:
            (await tx.get(Counter, "c")).value += 1
        async with reader.transaction(read="local", after=tx.token) as late:
            seen = (await late.get(Counter, "c")).value
        writer.pool.shutdown(wait=False)
        reader.pool.shutdown(wait=False)
        return seen

    assert asyncio.run(both()) == 1
