"""Quorum and overrides on real nodes in one process (R7, Q2, Q3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.table import Group
from halog.errors import ConfigError, QuorumError, RefusedError
from halog.runtime import groups
from halog.testing.cluster import Cluster, wait_until
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


_OPERATORS: list[MemoryCoordinator] = []


@pytest.fixture(autouse=True)
def operators_leave() -> Iterator[None]:
    yield
    while _OPERATORS:
        _OPERATORS.pop().close()


def operator(cluster: Cluster) -> MemoryCoordinator:
    """An operator's connection: a coordinator of its own."""
    made = MemoryCoordinator(cluster._tree)
    _OPERATORS.append(made)
    made.connect(lambda state: None)
    return made


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
    waiter.join(10)
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


@pytest.mark.feature("Q3")
def test_an_override_lets_the_last_node_go_on_and_ends_by_itself(cluster: Cluster) -> None:
    kill_replicas(cluster)
    until = time.time_ns() // 1_000_000 + 1_500
    coordinator = operator(cluster)
    with pytest.raises(RefusedError, match="both halves"):
        groups.require(coordinator, NAME, 1, until_ms=until)
    groups.require(coordinator, NAME, 1, until_ms=until, reason="fire", may_fork=True)
    assert wait_until(lambda: _counts(cluster), "commits go on")
    wait_until(lambda: group(cluster) == Group(), "the override has ended")
    with pytest.raises(QuorumError):
        count(cluster)


@pytest.mark.feature("Q2")
def test_a_priority_outlives_an_override_and_moves_the_role(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "c")
    coordinator = operator(cluster)
    groups.set_priority(coordinator, NAME, active, "never")
    groups.require(coordinator, NAME, 3, until_ms=1)
    wait_until(lambda: group(cluster) == Group(priorities={active: 0}), "the override has ended, the priority has not")
    wait_until(lambda: cluster.active_for(Counter, "c") != active, "the role has moved")
    assert count(cluster) > 0


@pytest.mark.feature("Q2", "Q3")
def test_what_is_refused_changes_nothing(cluster: Cluster) -> None:
    coordinator, before = operator(cluster), cluster.tables()[NAME]
    with pytest.raises(ConfigError, match="there is no partition nowhere"):
        groups.require(coordinator, "nowhere", 2)
    with pytest.raises(RefusedError, match="Z is not in the group"):
        groups.set_priority(coordinator, NAME, "Z", "high")
    with pytest.raises(RefusedError, match="only in a group of two"):
        groups.designate(coordinator, NAME, "A")
    assert cluster.tables()[NAME].group == before.group
    for name in "AB":
        groups.set_priority(coordinator, NAME, name, "never")
    with pytest.raises(RefusedError, match="C is the last node"):
        groups.set_priority(coordinator, NAME, "C", "never")


@pytest.mark.feature("Q3")
def test_in_a_group_of_two_a_designated_node_goes_on_alone() -> None:
    with Cluster(2, partitions=1, quorum=True, registry=REGISTRY) as cluster:
        cluster.settle()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        active = kill_replicas(cluster)
        with pytest.raises(QuorumError):
            count(cluster)
        groups.designate(operator(cluster), NAME, active)
        assert wait_until(lambda: _counts(cluster), "commits go on")
