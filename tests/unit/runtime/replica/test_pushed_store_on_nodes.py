"""Nodes that store what they are pushed before they acknowledge it (R6: local NO_SYNC, remote above it): it is there
when all of them have ended, whatever the log has."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from halog.adapters.memory import Attempt, MemoryDisk
from halog.core.log import records
from halog.core.roles import Role
from halog.errors import StoreError
from halog.runtime.replica.driver import Copy
from halog.runtime.store import pushed_records
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.host.test_faults import add, copy_on
from tests.unit.runtime.replica.unlogged import level, log_of, running

pytestmark = pytest.mark.feature("R6", "P1")

POLICIES = ["WRITE_NO_SYNC", "SYNC"]


@contextmanager
def counting(remote_sync: str, silent_ms: int = 5_000) -> Iterator[Cluster]:
    """Counted to 1 in the log, which takes no more."""
    with running(remote_sync, silent_ms=silent_ms) as cluster:
        assert add(cluster) == 1
        level(cluster)
        log = log_of(cluster)
        cluster.broker.hold(log)
        try:
            yield cluster
        finally:
            cluster.broker.drop_held(log)  # else nodes wait for it before they close


def replica(cluster: Cluster) -> Copy:
    active = cluster.active_for(Counter, "c")
    return copy_on(cluster, next(name for name in cluster.names if name != active))


def all_end(cluster: Cluster) -> None:
    for name in cluster.names:
        cluster.kill(name)
    cluster.broker.drop_held(log_of(cluster))


def all_start(cluster: Cluster) -> None:
    for name in cluster.names:
        cluster.restart(name)
    cluster.settle()


def appended_again(cluster: Cluster) -> int:
    rows = (row.value for row in cluster.broker.shelf(log_of(cluster)).rows)
    had = [records.decode(value) for value in rows if value is not None]
    return sum(isinstance(r, records.Commit) and r.origin is not None for r in had)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_acknowledged_outlives_all_processes(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    with counting(policy) as cluster:
        assert [add(cluster) for _ in range(3)] == [2, 3, 4]
        all_end(cluster)
        all_start(cluster)
        assert add(cluster) == 5
        assert appended_again(cluster) == 3, "each of them once"
        assert "HALOG-1019" not in caplog.text


def test_another_run_of_the_machine_says_that_it_may_be_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was only handed to the operating system may not be there, even if it is."""
    with counting("WRITE_NO_SYNC") as cluster:
        add(cluster)
        all_end(cluster)
        monkeypatch.setattr(pushed_records, "machine_run", lambda: "another")
        all_start(cluster)
        assert "HALOG-1019" in caplog.text


def test_what_was_flushed_is_there_in_another_run_of_the_machine(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting("SYNC") as cluster:
        assert add(cluster) == 2
        all_end(cluster)
        monkeypatch.setattr(pushed_records, "machine_run", lambda: "another")
        all_start(cluster)
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_who_was_active_waits_for_the_store_of_its_replica(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its own has nothing that the log lacks."""
    with counting(policy) as cluster:
        assert add(cluster) == 2
        active = cluster.active_for(Counter, "c")
        all_end(cluster)
        cluster.restart(active)
        wait_until(lambda: "HALOG-1018" in caplog.text, "it says whom it waits for")
        for name in cluster.names:
            if name != active:
                cluster.restart(name)
        cluster.settle()
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_a_machine_that_is_lost_takes_its_store_with_it(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """And the active node's process has died, too: it is said that something may be lost."""
    with counting(policy) as cluster:
        assert add(cluster) == 2
        lost = replica(cluster).core.state.me.node
        all_end(cluster)
        cluster.disks[lost] = MemoryDisk(lost)
        all_start(cluster)
        assert add(cluster) == 2
        assert "HALOG-1019" in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_of_a_machine_that_is_lost_alone_the_active_node_has_it(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    with counting(policy) as cluster:
        assert add(cluster) == 2
        lost = replica(cluster).core.state.me.node
        cluster.kill(lost)
        cluster.disks[lost] = MemoryDisk(lost)
        cluster.restart(lost)
        cluster.broker.release(log_of(cluster))
        cluster.settle()
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


@pytest.mark.parametrize(("policy", "flushes"), [("WRITE_NO_SYNC", False), ("SYNC", True)])
def test_it_is_stored_when_the_commit_returns_and_flushed_if_that_was_asked_for(policy: str, flushes: bool) -> None:
    with counting(policy) as cluster:
        copy = replica(cluster)
        done = list[tuple[int, bool]]()
        disk = cluster.disks[copy.core.state.me.node]

        def stored(attempt: Attempt[None], flush: bool) -> None:
            attempt.land()
            done.append((len(pushed_of(copy)), flush))

        disk.faults.add("write", lambda attempt: stored(attempt, False))
        disk.faults.add("flush", lambda attempt: stored(attempt, True))
        for number in range(1, 6):
            add(cluster)
            assert len(pushed_of(copy)) >= number
            assert any(had >= number and flush for had, flush in done) is flushes


def pushed_of(copy: Copy) -> list[bytes]:
    return [key for key, _ in copy.objects.store.scan(copy.objects.prefix + b"h")]


def test_it_is_dropped_once_the_log_has_it_and_the_position_is_stored() -> None:
    with counting("SYNC") as cluster:
        assert add(cluster) == 2
        copy = replica(cluster)
        wait_until(lambda: len(pushed_of(copy)) == 1, "the position has passed what came before it")
        cluster.broker.release(log_of(cluster))
        wait_until(lambda: pushed_of(copy) == [], "the position has passed it")


@pytest.mark.parametrize("flush", [False, True])
def test_a_replica_that_cannot_store_acknowledges_nothing(flush: bool) -> None:
    """Its copy stops, and the commit it was pushed returns once the log has that."""
    with counting("SYNC", silent_ms=500) as cluster, ThreadPoolExecutor(1) as pool:
        copy = replica(cluster)
        disk = cluster.disks[copy.core.state.me.node]
        disk.faults.fail("flush" if flush else "write", StoreError("the disk is full"))
        counted = pool.submit(add, cluster)
        wait_until(lambda: copy.core.state.role is Role.FAILED, "the copy has stopped")
        assert "the disk is full" in str(copy.error)
        assert not counted.done()
        cluster.broker.release(log_of(cluster))
        assert counted.result(60) == 2
