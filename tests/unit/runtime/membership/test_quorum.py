"""Quorum and overrides on real nodes in one process (R7, Q2, Q3)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core import effects as fx, events as ev
from halog.core.table.group import without
from halog.core.table.states import State
from halog.core.table.table import Group, PartitionTable
from halog.errors import ConfigError, HalogError, OutcomeUnknownError, QuorumError, RefusedError
from halog.metadata import groups
from halog.runtime.replica import driver as copy_module
from halog.runtime.support.clock import wall_ms
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node as Verbs
from tests.unit.counting import REGISTRY, Counter

NAME = "test-0"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes, one partition, a quorum of two."""
    with Cluster(3, partitions=1, quorum=True, registry=REGISTRY) as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def impatient(call_ms: int = 1_500) -> Cluster:
    """The same cluster; a commit whose outcome does not come is given up after this time."""
    short = Cluster(3, partitions=1, quorum=True, registry=REGISTRY)
    policy = replace(short.config.policies["test"], call_deadline_ms=call_ms)
    short.config = replace(short.config, policies={"test": policy}).validate()
    return short


_OPERATORS: list[MemoryCoordinator] = []


@pytest.fixture(autouse=True)
def operators_leave() -> Iterator[None]:
    yield
    while _OPERATORS:
        _OPERATORS.pop().close()


def operator(cluster: Cluster) -> MemoryCoordinator:
    """An operator's connection: a coordinator of its own."""
    made = MemoryCoordinator(cluster.tree)
    _OPERATORS.append(made)
    made.connect(lambda state: None)
    return made


def require(coordinator: MemoryCoordinator, nodes: int, **how: Any) -> None:
    groups.change_group(coordinator, NAME, groups.required(nodes, **how))


def count(cluster: Cluster) -> int:
    """One more; every client has the same view of it."""
    client = cluster.node(cluster.active_for(Counter, "c"))
    with client.transaction() as tx:
        tx.get(Counter, "c").value += 1
    assert tx.lsn is not None
    return tx.lsn


def kill_replicas(cluster: Cluster) -> str:
    """Only the active is left."""
    active = cluster.active_for(Counter, "c")
    for name in cluster.names:
        if name != active:
            cluster.kill(name)
    wait_until(lambda: not cluster.tables()[NAME].replicas, "the replicas left the node list")
    return active


def group(cluster: Cluster) -> Group:
    return cluster.tables()[NAME].group


@pytest.mark.feature("R7")
def test_with_one_replica_gone_commits_go_on(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "c")
    cluster.kill(next(n for n in cluster.names if n != active))
    assert count(cluster) > 0


@pytest.mark.feature("R7")
def test_below_quorum_a_new_commit_is_refused_by_name_and_changes_nothing(cluster: Cluster) -> None:
    active = kill_replicas(cluster)
    with pytest.raises(QuorumError, match="1 nodes are there, a commit needs 2") as caught:
        count(cluster)
    assert caught.value.evidence["needed"] == 2
    with cluster.node(active).transaction() as tx:
        assert tx.get(Counter, "c").value == 0
    cluster.restart(next(n for n in cluster.names if n != active))
    wait_until(lambda: cluster.tables()[NAME].replicas, "a replica is back")
    assert wait_until(lambda: _counts(cluster), "commits go on")


@pytest.mark.feature("R7")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["at the active", "at a client"])
def test_a_commit_under_way_when_the_quorum_goes_is_unknown_never_denied(*, elsewhere: bool) -> None:
    """Its record is in the log: no replica confirms it any more, and new ones are refused before they start. With a
    replica back it turns out that it happened, once."""
    with impatient() as cluster:
        cluster.settle()
        active = cluster.active_for(Counter, "c")
        caller = cluster.client() if elsewhere else cluster.node(active)
        with caller.transaction() as tx:
            tx.create(Counter("c"))
        chain = cluster.node(active).runtime.copies[NAME].core.state.chain
        for name in cluster.names:
            if name != active:
                cluster.pause(name)
        before, told = chain.state.lsn, []
        thread = threading.Thread(target=lambda: told.append(_outcome(caller)))
        thread.start()
        wait_until(lambda: chain.state.lsn == before + 1, "it is not in the log")
        assert kill_replicas(cluster) == active
        with pytest.raises(QuorumError, match="1 nodes are there, a commit needs 2"):
            count(cluster)
        thread.join(60)
        assert isinstance(told[0], OutcomeUnknownError), told
        assert chain.state.lsn == before + 1, "something that was refused is in the log"
        cluster.restart(next(n for n in cluster.names if n != active))
        wait_until(lambda: cluster.tables()[NAME].replicas, "a replica is back")
        wait_until(lambda: _counts(cluster), "commits do not go on")
        with cluster.node(active).transaction() as tx:
            assert tx.get(Counter, "c").value == 2


def _outcome(caller: Verbs) -> BaseException | None:
    """Of counting one."""
    try:
        with caller.transaction() as tx:
            tx.get(Counter, "c").value += 1
    except HalogError as e:
        return e
    return None


@pytest.mark.feature("R7")
def test_a_policy_that_waits_waits_for_the_quorum(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    active = kill_replicas(cluster)
    commits = cluster.node(active).runtime._commits
    monkeypatch.setattr(commits, "_waits", lambda partition: True)
    done: list[int] = []
    waiter = threading.Thread(target=lambda: done.append(count(cluster)))
    waiter.start()
    time.sleep(0.3)
    assert not done
    cluster.restart(next(n for n in cluster.names if n != active))
    waiter.join(60)
    assert done


def _counts(cluster: Cluster) -> bool:
    try:
        return count(cluster) > 0
    except QuorumError:
        return False


@pytest.mark.feature("R7", "Q2")
def test_a_minority_elects_nobody(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "c")
    others = [n for n in cluster.names if n != active]
    cluster.kill(others[0])
    wait_until(lambda: len(cluster.tables()[NAME].replicas) == 1, "one replica is left")
    cluster.kill(active)
    time.sleep(1.0)
    table = cluster.tables()[NAME]
    assert table.active is None or table.active.node == active
    cluster.restart(others[0])
    wait_until(lambda: cluster.tables()[NAME].active.node in others, "two of three elect one")  # type: ignore[union-attr]


@pytest.mark.feature("Q3", "X8")
def test_an_override_lets_the_last_node_go_on_and_ends_by_itself(cluster: Cluster) -> None:
    kill_replicas(cluster)
    until = time.time_ns() // 1_000_000 + 1_500
    coordinator = operator(cluster)
    with pytest.raises(RefusedError, match="both halves"):
        require(coordinator, 1, until_ms=until)
    require(coordinator, 1, until_ms=until, reason="fire", may_fork=True)
    assert wait_until(lambda: _counts(cluster), "commits go on")
    wait_until(lambda: group(cluster) == Group(), "the override has ended")
    wait_until(lambda: not _counts(cluster), "the active has seen it and refuses")


def cut_off(cluster: Cluster, active: str) -> MemoryCoordinator:
    """The active node's coordinator answers nothing any more, and tells it of nothing."""
    coordinator = cluster.running[active].coordinator
    coordinator.suspend()
    return coordinator


@pytest.mark.feature("Q3", "R7", "X8")
def test_an_override_ends_in_time_at_an_active_that_reaches_no_coordinator() -> None:
    """Nobody can take it out of the znode: the promise ends all the same."""
    with impatient() as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        active = kill_replicas(cluster)
        until = wall_ms() + 6_000
        require(operator(cluster), 1, until_ms=until, may_fork=True)
        assert wait_until(lambda: _counts(cluster), "commits go on")
        coordinator, node = cut_off(cluster, active), cluster.node(active)
        told: list[tuple[int, BaseException | None]] = []
        while wall_ms() < until + 1_200 or told[-1][0] <= 1:  # one that is under way when it ends may take longer
            told.append((wall_ms() - until, _outcome(node)))
            time.sleep(0.005)
        assert told[0][1] is None, "it had ended before its time"
        late = [outcome for begun, outcome in told if begun > 1]
        assert {type(outcome) for outcome in late} == {QuorumError}, late
        assert group(cluster).required == 1, "somebody has taken it out"
        lives = node.runtime.lives
        wait_until(lambda: lives.state(NAME) is State.UNAVAILABLE, "it has no quorum, and nobody says so")
        coordinator.resume()
        wait_until(lambda: group(cluster) == Group(), "nobody takes it out")
        cluster.restart(next(n for n in cluster.names if n != active))
        wait_until(lambda: _counts(cluster), "commits do not go on with a quorum")


@pytest.mark.feature("Q3", "R7", "X8")
def test_a_commit_in_flight_at_the_end_of_an_override_is_unknown_where_no_coordinator_is_reached() -> None:
    """The log takes it in time and says so too late. With a quorum back it turns out that it happened, once."""
    with impatient(12_000) as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        active = kill_replicas(cluster)
        until = wall_ms() + 8_000
        require(operator(cluster), 1, until_ms=until, may_fork=True)
        assert wait_until(lambda: _counts(cluster), "commits go on")
        coordinator, node = cut_off(cluster, active), cluster.node(active)
        copy = node.runtime.copies[NAME]
        before, told = copy.core.state.chain.state.lsn, []
        wait_until(lambda: wall_ms() > until - 5_000, "the time stands still")  # the caller waits longer than that
        cluster.broker.hold(copy.tp)
        thread = threading.Thread(target=lambda: told.append(_outcome(node)))
        thread.start()
        leading = copy.core.leading
        assert leading is not None
        wait_until(lambda: leading.writer.queue, "it is not given to the log")
        assert wall_ms() < until, "this machine was too slow for the test"
        wait_until(lambda: wall_ms() > until + 20, "the time stands still")
        cluster.broker.release(copy.tp)
        thread.join(60)
        assert isinstance(told[0], OutcomeUnknownError), told
        assert copy.core.state.chain.state.lsn == before + 1, "it is not in the log"
        coordinator.resume()
        cluster.restart(next(n for n in cluster.names if n != active))
        wait_until(lambda: _counts(cluster), "commits do not go on with a quorum")
        with node.transaction() as tx:
            assert tx.get(Counter, "c").value == 3


@pytest.mark.feature("Q2")
def test_a_priority_outlives_an_override_and_moves_the_role(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "c")
    coordinator = operator(cluster)
    groups.change_group(coordinator, NAME, groups.priority_of(active, "never"))
    require(coordinator, 2, until_ms=1)
    wait_until(lambda: group(cluster) == Group(priorities={active: 0}), "the override has ended, the priority has not")
    wait_until(lambda: cluster.active_for(Counter, "c") != active, "the role has moved")
    assert count(cluster) > 0


@pytest.mark.feature("Q2", "Q3")
def test_what_is_refused_changes_nothing(cluster: Cluster) -> None:
    coordinator, before = operator(cluster), cluster.tables()[NAME]
    with pytest.raises(ConfigError, match="there is no partition nowhere"):
        groups.change_group(coordinator, "nowhere", groups.required(2))
    with pytest.raises(RefusedError, match="Z is not in the group"):
        groups.change_group(coordinator, NAME, groups.priority_of("Z", "high"))
    with pytest.raises(RefusedError, match="only in a group of two"):
        groups.change_group(coordinator, NAME, groups.designated("A"))
    assert cluster.tables()[NAME].group == before.group
    groups.change_group(coordinator, NAME, groups.priority_of("A", "never"))
    with pytest.raises(RefusedError, match="without B only C of test-0 would count, 2 are needed"):
        groups.change_group(coordinator, NAME, groups.priority_of("B", "never"))
    with pytest.raises(RefusedError, match="only B, C of test-0 count"):
        require(coordinator, 3)


@pytest.mark.feature("Q3")
def test_in_a_group_of_two_a_designated_node_goes_on_alone() -> None:
    with Cluster(2, partitions=1, quorum=True, registry=REGISTRY) as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        active = kill_replicas(cluster)
        with pytest.raises(QuorumError):
            count(cluster)
        groups.change_group(operator(cluster), NAME, groups.designated(active))
        assert wait_until(lambda: _counts(cluster), "commits go on")


@pytest.mark.feature("Q3", "X8")
def test_each_override_has_its_own_end_and_reason() -> None:
    """Taking one back, or giving one more, lengthens nothing."""
    group = Group()
    table = PartitionTable("p", "00", "t", 0, "q", ("A", "B"), 1, 2)
    for change in (
        groups.designated("A", until_ms=200, reason="disk"),
        groups.required(2, until_ms=100, reason="rack"),
        groups.required(0),
    ):
        group = change(msgspec.structs.replace(table, group=group))
    assert group == Group(designated="A", designated_until_ms=200, designated_reason="disk")
    both = msgspec.structs.replace(group, required=2, required_until_ms=1 << 60)
    assert without(both, [100, 200]) == Group(required=2, required_until_ms=1 << 60)


@pytest.mark.feature("Q3")
def test_the_reason_of_a_taking_back_stays_until_there_is_another_override() -> None:
    """Asked again, as where no answer came, it changes nothing."""
    table = PartitionTable("p", "00", "t", 0, "q", ("A", "B"), 1, 2, group=Group(designated="A", required=2))
    for change, left in (
        (groups.designated("", reason="disk is in"), Group(required=2, designated_reason="disk is in")),
        (groups.designated("", reason="again"), Group(required=2, designated_reason="disk is in")),
        (groups.required(0, reason="rack"), Group(required_reason="rack", designated_reason="disk is in")),
        (groups.required(0), Group(required_reason="rack", designated_reason="disk is in")),
        (groups.required(2), Group(required=2, designated_reason="disk is in")),
        (groups.designated("B", reason="fire"), Group(required=2, designated="B", designated_reason="fire")),
        (groups.designated(""), Group(required=2)),
    ):
        table = msgspec.structs.replace(table, group=change(table))
        assert table.group == left


@pytest.mark.feature("Q2", "R7")
def test_a_commit_does_not_wait_for_the_late_word_of_an_async_replica(cluster: Cluster) -> None:
    """The sync replica becomes a node that does not count: the one that counts is sync instead of it."""
    table = cluster.tables()[NAME]
    (sync,) = (r.node for r in table.replicas if r.kind == "sync")
    (other,) = (r.node for r in table.replicas if r.kind != "sync")
    groups.change_group(operator(cluster), NAME, groups.priority_of(sync, "never"))
    wait_until(
        lambda: [r.node for r in cluster.tables()[NAME].replicas if r.kind == "sync"] == [other],
        "the other one is sync",
    )
    assert count(cluster) > 0


@pytest.mark.feature("Q3", "R7")
def test_an_override_beyond_the_sync_set_makes_more_replicas_sync(cluster: Cluster) -> None:
    require(operator(cluster), 3)
    wait_until(lambda: [r.kind for r in cluster.tables()[NAME].replicas] == ["sync", "sync"], "both replicas are sync")
    require(operator(cluster), 0)
    wait_until(lambda: [r.kind for r in cluster.tables()[NAME].replicas] == ["sync", "async"], "as the policy has it")


@pytest.mark.feature("Q3", "R7")
def test_each_event_of_a_batch_is_judged_by_the_time_behind_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped in the middle of one finds reports that came since in the same."""
    copy = cluster.node(cluster.active_for(Counter, "c")).runtime.copies[NAME]
    with copy.lock:
        times, judged, step = itertools.count(copy.core.state.now), [], copy.core.step
        monkeypatch.setattr(copy_module, "monotonic_ms", lambda: next(times))

        def seen(event: ev.Event, now: int) -> list[fx.Effect]:
            if isinstance(event, ev.Appended):
                judged.append(now)
            return step(event, now)

        monkeypatch.setattr(copy.core, "step", seen)
        copy._reports.extend([(1, 1, None), (7, 7, None)])  # long answered
        copy.take_reports()
        monkeypatch.undo()
    assert len(set(judged)) == 2, judged
