"""R6 on real nodes in one process: what is stored on a sync replica when a commit returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from halog.adapters.memory import Attempt
from halog.runtime.store.object_table import ObjectTable
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.placement.placed import told

pytestmark = pytest.mark.feature("R6")


@contextmanager
def running(remote_sync: str) -> Iterator[Cluster]:
    """Nothing is flushed but what the policy asks for."""
    made = Cluster(2, partitions=1, registry=REGISTRY, remote_sync=remote_sync)
    made.config = replace(made.config, timing=replace(made.config.timing, store_flush_ms=600_000)).validate()
    with made as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def replica(cluster: Cluster) -> str:
    return next(n for n in cluster.names if n != cluster.active_for(Counter, "c"))


def objects_of(cluster: Cluster, name: str) -> ObjectTable:
    host = cluster.node(name).runtime.host
    assert host is not None
    return host.copies[cluster.partition_of(Counter, "c")].objects


def count(cluster: Cluster) -> int:
    with cluster.client().transaction() as tx:
        tx.get(Counter, "c").value += 1
    assert tx.lsn is not None
    return tx.lsn


def stored_lsn(objects: ObjectTable) -> int:
    found = objects.load_position()
    return 0 if found is None else found.state.lsn


@pytest.mark.parametrize("policy", ["WRITE_NO_SYNC", "SYNC"])
def test_a_commit_that_returned_is_in_the_replicas_store(policy: str) -> None:
    with running(policy) as cluster:
        objects = objects_of(cluster, replica(cluster))
        for _ in range(30):
            assert count(cluster) <= stored_lsn(objects)


def test_with_no_sync_the_store_is_written_later() -> None:
    """Else the other test could not fail."""
    with running("NO_SYNC") as cluster:
        objects = objects_of(cluster, replica(cluster))
        behind = [count(cluster) > stored_lsn(objects) for _ in range(30)]
        assert any(behind)
        last = count(cluster)
        wait_until(lambda: stored_lsn(objects) >= last, "the store has it a little later")


@pytest.mark.parametrize(("policy", "flushed"), [("WRITE_NO_SYNC", False), ("SYNC", True)])
def test_only_sync_goes_down_to_the_disk(policy: str, flushed: bool) -> None:
    with running(policy) as cluster:
        name = replica(cluster)
        objects, told = objects_of(cluster, name), list[tuple[int, bool]]()

        def stored(attempt: Attempt[None], flush: bool) -> None:
            attempt.land()
            told.append((stored_lsn(objects), flush))

        cluster.disks[name].faults.add("write", lambda attempt: stored(attempt, False))
        cluster.disks[name].faults.add("flush", lambda attempt: stored(attempt, True))
        for _ in range(10):
            lsn = count(cluster)
            assert any(at >= lsn and flush is flushed for at, flush in told)
        if not flushed:
            assert not any(flush for _, flush in told)


def test_a_replica_that_cannot_store_acknowledges_nothing() -> None:
    """Its copy stops and leaves the node list; the commit goes on without it (R4)."""
    with running("WRITE_NO_SYNC") as cluster:
        cluster.disks[replica(cluster)].fill_up()
        count(cluster)
        table = cluster.tables()[cluster.partition_of(Counter, "c")]
        assert table.sync_set == frozenset()
        wait_until(lambda: told(cluster, "HALOG-1015"), "it is told why")
        (stopped,) = told(cluster, "HALOG-1015")
        assert "cannot go on: no space left on device" in stopped.text
        assert "log" not in stopped.text, "the log has no part in it"
