"""R6 on real nodes in one process: transactions that ask for less than their policy, or for more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import halog
from halog.adapters.memory import Attempt
from halog.config import TimingConfig
from halog.core.durability import Durability
from halog.core.log.provisional import EARLY
from halog.errors import ConfigError, QuorumError, RefusedError, ReplicasError, StoreError
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("R6")

LESS = Durability(local="NO_SYNC")
MORE = Durability(remote="SYNC")
KEYS = ("c", "d")


@contextmanager
def running(nodes: int = 2, sync: int = 1) -> Iterator[Cluster]:
    made = Cluster(nodes, partitions=1, sync_replicas=sync, registry=REGISTRY)
    # a busy machine is no dead replica; and where the log is held, commits go on as long as an append may take; nothing
    # is flushed but what somebody asked for
    timing = TimingConfig(non_response_timeout_ms=5_000, append_deadline_ms=30_000, store_flush_ms=600_000)
    made.config = replace(made.config, timing=timing).validate()
    with made as cluster:
        with cluster.client().transaction() as tx:
            for key in KEYS:
                tx.create(Counter(key))
        wait_until(lambda: len(table(cluster).sync_set) == sync, "there are as many sync replicas as there should be")
        yield cluster


def table(cluster: Cluster) -> halog.core.table.table.PartitionTable:
    return cluster.tables()[cluster.partition_of(Counter, "c")]


def copy_of(cluster: Cluster, node: str) -> Copy:
    host = cluster.node(node).runtime.host
    assert host is not None
    return host.copies[cluster.partition_of(Counter, "c")]


def active(cluster: Cluster) -> str:
    return cluster.active_for(Counter, "c")


def replicas(cluster: Cluster) -> list[str]:
    return [n for n in cluster.names if n != active(cluster)]


@contextmanager
def log_held(cluster: Cluster) -> Iterator[None]:
    """The log takes what is sent, and shows it to nobody."""
    tp = copy_of(cluster, active(cluster)).tp
    cluster.broker.hold(tp)
    try:
        yield
    finally:
        cluster.broker.release(tp)


def add(node: Node, durability: Durability | None = None, key: str = "c") -> int:
    with node.transaction(durability=durability) as tx:
        tx.get(Counter, key).value += 1
    assert tx.lsn is not None
    return tx.lsn


def value(node: Node, key: str = "c") -> int:
    with node.transaction() as tx:
        return tx.get(Counter, key).value


def in_background(node: Node, durability: Durability | None = None, key: str = "d") -> threading.Thread:
    thread = threading.Thread(target=add, args=(node, durability, key), daemon=True)
    thread.start()
    return thread


# --- less ---


def test_one_that_does_not_wait_for_the_log_returns_though_the_log_stands_still() -> None:
    with running() as cluster:
        for who in (cluster.node(active(cluster)), cluster.client(), cluster.node(replicas(cluster)[0])):
            before = value(who)
            with log_held(cluster):
                for n in range(3):
                    add(who, LESS)
                    assert value(who) == before + n + 1
                waits = in_background(who)
                waits.join(0.1)
                assert waits.is_alive(), "one that asks for nothing waits for it"
            waits.join(60)
            assert not waits.is_alive()
        lsn = add(cluster.client())
        wait_until(
            lambda: all(copy_of(cluster, n).core.state.chain.state.lsn >= lsn for n in cluster.names), "all have it"
        )
        assert {copy_of(cluster, n).core.state.chain.state.hash for n in cluster.names} == {
            copy_of(cluster, active(cluster)).core.state.chain.state.hash
        }


def test_replicas_show_it_once_the_log_has_it() -> None:
    with running() as cluster:
        (other,) = replicas(cluster)
        with log_held(cluster):
            add(cluster.client(), LESS)
            with cluster.node(other).transaction(read="local") as tx:
                assert tx.get(Counter, "c").value == 0
        wait_until(lambda: _local(cluster, other) == 1, "the replica shows it")


def _local(cluster: Cluster, node: str) -> int:
    with cluster.node(node).transaction(read="local") as tx:
        return tx.get(Counter, "c").value


def test_who_read_it_early_is_no_conflict_once_the_log_has_it() -> None:
    with running() as cluster:
        client = cluster.client()
        tx, both = client.transaction(), client.transaction()
        with log_held(cluster):
            lsn = add(client, LESS)
            tx.begin()
            tx.get(Counter, "c").value += 1
            assert tx.entries[next(iter(tx.entries))].image.version > EARLY  # type: ignore[union-attr]
            assert tx.token.positions == {cluster.partition_of(Counter, "c"): lsn}
            both.begin()
            assert [both.get(Counter, key).value for key in KEYS] == [1, 0]
        wait_until(lambda: copy_of(cluster, active(cluster)).core.state.chain.state.lsn >= lsn, "the log has it")
        both.commit()
        tx.commit()
        assert value(client) == 2


def test_what_was_shown_and_lost_is_gone_and_who_read_it_conflicts() -> None:
    with running() as cluster:
        old, client = active(cluster), cluster.client()
        tp = copy_of(cluster, old).tp
        cluster.broker.hold(tp)
        for key in KEYS:
            add(client, LESS, key)
        stale = client.transaction()
        stale.begin()
        stale.get(Counter, "d").value += 10
        cluster.kill(old)
        cluster.broker.drop_held(tp)
        cluster.broker.release(tp)
        wait_until(lambda: active(cluster) != old, "the other one leads")
        with client.transaction() as tx:
            assert [tx.get(Counter, key).value for key in KEYS] == [0, 0]
        for _ in range(3):
            add(client, key="d")
        with pytest.raises(halog.errors.ConflictError):
            stale.commit()
        assert value(client, "d") == 3


def test_with_no_sync_replica_the_log_is_waited_for() -> None:
    with running(nodes=1, sync=0) as cluster:
        with log_held(cluster):
            waits = in_background(cluster.client(), LESS)
            waits.join(0.1)
            assert waits.is_alive()
        waits.join(60)
        assert not waits.is_alive()


# --- more ---


def flushed_lsns(cluster: Cluster, node: str) -> list[int]:
    """The lsn its store ended with at each flush."""
    objects, told = copy_of(cluster, node).objects, list[int]()

    def flushed(attempt: Attempt[None]) -> None:
        attempt.land()
        position = objects.load_position()
        if position is not None:
            told.append(position.state.lsn)

    cluster.disks[node].faults.add("flush", flushed)
    return told


def test_it_returns_once_so_many_replicas_have_flushed_it() -> None:
    with running(nodes=3, sync=2) as cluster:
        told = [flushed_lsns(cluster, n) for n in replicas(cluster)]
        for who in (cluster.client(), cluster.node(active(cluster))):
            for _ in range(5):
                lsn = add(who, Durability(remote="SYNC", replicas=2))
                assert all(max(t, default=0) >= lsn for t in told)
        flushes = [len(t) for t in told]
        for _ in range(5):
            add(cluster.client())
        assert [len(t) for t in told] == flushes, "nobody asked for these"


def test_more_than_the_policy_gives_is_refused_and_changes_nothing() -> None:
    with running() as cluster:
        for who in (cluster.client(), cluster.node(active(cluster))):
            before = copy_of(cluster, active(cluster)).core.state.chain.state.lsn
            with pytest.raises(RefusedError, match="policy test with sync_replicas = 1"):
                add(who, Durability(remote="SYNC", replicas=2))
            assert copy_of(cluster, active(cluster)).core.state.chain.state.lsn == before
            assert value(who) == 0


def test_too_few_replicas_are_there_and_it_waits_for_none() -> None:
    with running() as cluster:
        cluster.kill(replicas(cluster)[0])
        wait_until(lambda: not table(cluster).sync_set, "the node list is without it")
        for who in (cluster.client(), cluster.node(active(cluster))):
            with pytest.raises(ReplicasError, match="0 sync replicas are there, 1 are to flush") as error:
                add(who, MORE)
            assert isinstance(error.value, QuorumError)
            assert value(who) == 0
        assert add(cluster.client())


def test_one_in_flight_when_its_replica_goes_waits_for_the_next() -> None:
    with running(nodes=3) as cluster:
        leader = active(cluster)
        (sync,) = (r.node for r in table(cluster).replicas if r.kind == "sync")
        (other,) = set(replicas(cluster)) - {sync}
        told = flushed_lsns(cluster, other)
        cluster.pause(sync)
        waits = in_background(cluster.node(leader), MORE)
        waits.join(0.05)
        assert waits.is_alive()
        cluster.kill(sync)
        waits.join(60)
        assert not waits.is_alive()
        assert value(cluster.node(leader), "d") == 1
        assert told, "the one that took its place flushed it"


def test_a_slow_disk_holds_up_only_those_that_wait_for_it() -> None:
    """No lock is held meanwhile: the replica goes on holding and reading."""
    with running() as cluster:
        (other,) = replicas(cluster)
        cluster.disks[other].hold("flush")
        waits = in_background(cluster.client(), MORE)
        for n in range(20):
            add(cluster.client())
            assert _local(cluster, other) >= n, "one commit behind at most"
        assert waits.is_alive()
        cluster.disks[other].heal()
        waits.join(60)
        assert not waits.is_alive()


def test_a_replica_whose_disk_fails_stops_and_another_one_flushes_it() -> None:
    with running(nodes=3) as cluster:
        (sync,) = (r.node for r in table(cluster).replicas if r.kind == "sync")
        cluster.disks[sync].faults.fail("flush", StoreError("the disk is gone"))
        add(cluster.client(), MORE)
        assert isinstance(copy_of(cluster, sync).error, StoreError)
        # who joins the sync set is waited for before the znode names it, so the answer may come first
        wait_until(lambda: sync not in {r.node for r in table(cluster).replicas if r.kind == "sync"}, f"{sync} is out")


# --- asked for in every way ---


def test_the_decorated_form_asks_too() -> None:
    with running() as cluster:
        node = cluster.client()

        @node.transactional(retries=3, durability=LESS)
        def less() -> bytes | None:
            node.get(Counter, "c").value += 1
            return None

        with log_held(cluster):
            less()
            assert value(node) == 1
        with pytest.raises(ConfigError, match="a halog"):
            node.transactional(durability="NO_SYNC")  # type: ignore[call-overload]
        with pytest.raises(ConfigError, match="a halog"):
            node.transaction(durability="NO_SYNC")  # type: ignore[arg-type]


@pytest.mark.parametrize("here", [True, False])
def test_an_event_loop_asks_too(here: bool) -> None:
    async def body(cluster: Cluster) -> None:
        node = halog.aio.Node(cluster.node(active(cluster)) if here else cluster.client())

        @node.transactional(durability=LESS)
        async def less(tx: halog.aio.Transaction) -> None:
            (await tx.get(Counter, "c")).value += 1

        with log_held(cluster):
            async with asyncio.timeout(5):
                await less()
                async with node.transaction(durability=LESS) as tx:
                    (await tx.get(Counter, "c")).value += 1
        async with asyncio.timeout(5), node.transaction(durability=MORE) as tx:
            counter = await tx.get(Counter, "c")
            assert counter.value == 2
            counter.value += 1
        with pytest.raises(RefusedError):
            async with node.transaction(durability=Durability(remote="SYNC", replicas=7)) as tx:
                (await tx.get(Counter, "c")).value += 1

    with running() as cluster:
        asyncio.run(body(cluster))
        assert value(cluster.client()) == 3


def test_a_method_that_runs_elsewhere_belongs_to_a_transaction_that_asks() -> None:
    with running() as cluster:
        client = cluster.client()
        with log_held(cluster), client.transaction(durability=LESS) as tx:
            assert tx.get(Counter, "c").add(5) == 5
        assert value(client) == 5


def test_a_node_that_nobody_takes_over_from_leaves_once_the_log_has_everything() -> None:
    with running() as cluster:
        node, (other,) = cluster.node(active(cluster)), replicas(cluster)
        with log_held(cluster):
            add(node, LESS)
            cluster.kill(other)
            leaving = threading.Thread(target=node.close, daemon=True)
            leaving.start()
            leaving.join(0.3)
            assert leaving.is_alive(), "it left a commit behind that the log lacks"
        leaving.join(60)
        assert not leaving.is_alive()
