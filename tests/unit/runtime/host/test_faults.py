"""What a node's surroundings may do to it: whatever raises, in whatever thread, the partitions go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from halog.core import events as ev, results as res
from halog.core.roles import Role
from halog.errors import HalogError, OverloadedError, StoreError, UnreachableError
from halog.runtime.host.host import Host
from halog.runtime.replica.delivery_reports import ReportDuty
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=2, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def host_of(cluster: Cluster, name: str) -> Host:
    host = cluster.node(name).runtime.host
    assert host is not None
    return host


def copy_on(cluster: Cluster, name: str) -> Copy:
    return host_of(cluster, name).copies[cluster.partition_of(Counter, "c")]


def add(cluster: Cluster) -> int:
    with cluster.client().transaction() as tx:
        return tx.get(Counter, "c").add(1)


def failing(error: Exception, times: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, once it has raised so many times."""
    left = [times]

    def call(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return real(*args, **kwargs)

    return call


def threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name in ("halog-tail", "halog-ticks", "halog-snapshots"))


@pytest.mark.feature("P10", "R4")
def test_a_log_that_is_away_when_the_session_ends_leaves_the_node_whole(cluster: Cluster) -> None:
    before, active = threads(), cluster.active_for(Counter, "c")
    host, copy = host_of(cluster, active), copy_on(cluster, active)
    away = cluster.broker.faults.fail("session", UnreachableError("Kafka does not answer"), times=5)
    copy.post(ev.AppendFailed(copy.core.state.tag + 1, "nobody knows"))
    host.end_session(host.current_session(), "the log did not acknowledge in time")
    assert add(cluster) == 1
    cluster.settle()
    now = copy_on(cluster, cluster.active_for(Counter, "c")).core.state.chain
    wait_until(lambda: copy.core.state.chain.state.lsn >= now.state.lsn, "it does not follow")
    assert away.met
    assert threads() == before


@pytest.mark.feature("P10")
def test_an_append_the_session_refuses_ends_the_epoch_at_once(cluster: Cluster) -> None:
    copy = copy_on(cluster, cluster.active_for(Counter, "c"))
    full = OverloadedError("100,000 appends are in flight")
    refused = cluster.broker.faults.fail("append", full, lambda tp: tp == copy.tp, times=1)
    assert add(cluster) == 1
    assert refused.met
    assert add(cluster) == 2


@pytest.mark.feature("P10", "R4")
@pytest.mark.parametrize("error", [StoreError("no space left on device"), ValueError("not of our tree")])
def test_an_active_node_that_cannot_store_gives_the_partition_up(cluster: Cluster, error: Exception) -> None:
    active = cluster.active_for(Counter, "c")
    for operation in ("write", "flush"):
        cluster.disks[active].faults.fail(operation, error)
    assert add(cluster) == 1
    wait_until(lambda: cluster.active_for(Counter, "c") != active, "it is still active")
    assert add(cluster) == 2


@pytest.mark.feature("R4")
def test_a_sync_replica_that_cannot_store_holds_commits_up_for_a_moment_only(cluster: Cluster) -> None:
    (replica,) = [r.node for r in cluster.tables()[cluster.partition_of(Counter, "c")].replicas if r.kind == "sync"]
    cluster.disks[replica].fill_up()
    assert add(cluster) == 1
    wait_until(lambda: copy_on(cluster, replica).core.state.role is Role.FAILED, "it still follows")
    assert add(cluster) == 2
    assert replica not in cluster.tables()[cluster.partition_of(Counter, "c")].node_list


@pytest.mark.feature("N4")
def test_a_copy_is_rebuilt_although_log_and_coordinator_are_away_at_first(cluster: Cluster) -> None:
    name = cluster.active_for(Counter, "c")
    host, old = host_of(cluster, name), copy_on(cluster, name)
    log, session = cluster.broker.faults, cluster.running[name].coordinator.faults
    silent = log.fail("bounds", UnreachableError("Kafka does not answer"), lambda tp: tp == old.tp, times=2)
    lost = session.fail("create", UnreachableError("ZooKeeper is not connected"), times=2)
    old.post(ev.LogLost("trimmed away"))
    assert add(cluster) == 1
    wait_until(lambda: host.copies.get(old.name) not in (None, old), "not rebuilt")
    assert (silent.ended, lost.ended) == (True, True), "both were met as often as that"


@pytest.mark.feature("N4")
def test_a_thread_outlives_an_error_of_its_turn(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(cluster, "A")
    for part, call in ((host._tail.prompt, "poll"), (host.members, "tick"), (host.snapshots, "tend")):
        monkeypatch.setattr(part, call, failing(ValueError("not of our tree"), 2, getattr(part, call)))
    assert add(cluster) == 1
    assert threads() == sorted(["halog-tail", "halog-ticks", "halog-snapshots"] * 3)


@pytest.mark.feature("N4")
def test_a_coordinator_that_is_away_keeps_no_worker_busy(cluster: Cluster) -> None:
    host = host_of(cluster, "A")
    with cluster.running["A"].coordinator.faults.fail("sync", UnreachableError("ZooKeeper is not connected")):
        for copy in list(host.copies.values()) * 10:
            host.refresh_table(copy)
        done = threading.Event()
        host.run(done.set)
        assert done.wait(60)


@pytest.mark.feature("R8")
def test_a_node_restarts_warm_where_the_last_record_opened_an_epoch(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    active = cluster.active_for(Counter, "c")
    cluster.kill(active)
    cluster.settle()
    cluster.restart(active)
    cluster.settle()
    other = cluster.active_for(Counter, "c")
    wait_until(lambda: copy_on(cluster, active).core.state.chain.state.opened, "not caught up")
    cluster.kill(active)
    cluster.restart(active)
    assert other
    assert not [r for r in caplog.records if "not of this log" in r.message]


@pytest.mark.feature("R5")
def test_an_answer_that_raises_keeps_nobody_from_his(cluster: Cluster) -> None:
    copy = copy_on(cluster, cluster.active_for(Counter, "c"))
    told: list[res.Result] = []

    def broken(result: res.Result) -> None:
        raise RuntimeError("the event loop is closed")

    with copy.lock:
        copy.answers.update({-1: broken, -2: told.append})
    copy.leave()
    assert [type(r) for r in told] == [res.Unknown]


@pytest.mark.feature("P10")
def test_a_store_that_fails_once_during_a_commits_look_ups_leaves_deliveries_whole(cluster: Cluster) -> None:
    node = cluster.node(cluster.active_for(Counter, "c"))
    copy = copy_on(cluster, node.runtime.name)
    cluster.disks[node.runtime.name].faults.fail("read", StoreError("EIO"), times=1)
    with pytest.raises(StoreError), node.transaction() as tx:
        tx.create(Counter("new"))
    assert copy._reporting is ReportDuty.KEPT


@pytest.mark.feature("P8", "R4")
def test_nodes_that_are_closed_while_appends_are_under_way_end_in_order(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Their sessions fail what they still hold when they are abandoned, and nothing reads any more by then: no copy
    takes that for a log that is lost."""
    node = cluster.node(cluster.active_for(Counter, "c"))
    copies = [copy_on(cluster, name) for name in cluster.running]
    cluster.broker.hold(copies[0].tp)

    def commit() -> None:
        with suppress(HalogError), node.transaction() as tx:
            tx.get(Counter, "c").add(1)

    waiting = threading.Thread(target=commit)
    waiting.start()
    for name in list(cluster.running):
        cluster.running.pop(name).node.close()
    waiting.join()
    assert [copy.error for copy in copies] == [None] * 3
    assert not [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
