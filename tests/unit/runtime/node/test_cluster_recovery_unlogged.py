"""A coordinator that has lost its data, and commits that only stores of nodes hold (R6): they go into the log again."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryTree
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.store import pushed_records
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.host.test_faults import add
from tests.unit.runtime.node.test_cluster_recovery import Tool, steps
from tests.unit.runtime.replica.test_pushed_store_on_nodes import POLICIES, all_end, appended_again, counting, replica
from tests.unit.runtime.replica.unlogged import log_of

pytestmark = [pytest.mark.nodes, pytest.mark.feature("R6", "P1")]


def lose(cluster: Cluster) -> None:
    """All processes are killed, what was on its way to the log never lands, and the coordinator's data are gone."""
    cluster.close_clients()
    all_end(cluster)
    cluster.tree = MemoryTree()


def start(cluster: Cluster, *names: str) -> None:
    for name in names or cluster.names:
        cluster.restart(name)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_only_a_store_holds_is_in_the_log_before_any_node_starts(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The node that held it need not come back: the command has read its disk."""
    with counting(policy) as cluster:
        assert [add(cluster) for _ in range(3)] == [2, 3, 4]
        holder, log = replica(cluster).core.state.me.node, "test-0"
        lose(cluster)
        plan = Tool(cluster).recover()
        assert {p.name: (p.held_by, p.again) for p in plan.partitions} == {log: (holder, 3)}
        assert appended_again(cluster) == 3
        other = next(name for name in cluster.names if name != holder)
        start(cluster, other)
        assert add(cluster) == 5
        start(cluster, holder)
        cluster.settle()
        assert add(cluster) == 6
        assert "HALOG-1019" not in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_that_is_not_there_may_hold_what_nobody_else_has(policy: str) -> None:
    with counting(policy) as cluster:
        add(cluster)
        holder = replica(cluster).core.state.me.node
        lose(cluster)
        plan = Tool(cluster, without=(holder,)).look()
        assert "it may hold commits of policy test that the log lacks" in plan.needs[holder]
        Tool(cluster, without=(holder,)).recover(plan)
        cluster.disks[holder].data.clear()
        start(cluster)
        cluster.settle()
        assert add(cluster) == 2, "what it held is lost, as was accepted"


def test_a_store_of_another_run_of_the_machine_may_lack_what_it_was_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting("WRITE_NO_SYNC") as cluster:
        add(cluster)
        holder = replica(cluster).core.state.me.node
        lose(cluster)
        monkeypatch.setattr(pushed_records, "machine_run", lambda: "another")
        assert "its machine was started anew" in Tool(cluster).look().needs[holder]


def test_it_is_repeated_after_a_death_at_any_step_those_in_the_log_too() -> None:
    """Each death is in front of one change of the coordinator, or one append, and finds what there was at first."""
    with counting("SYNC") as cluster:
        assert [add(cluster) for _ in range(3)] == [2, 3, 4]
        rows = cluster.broker.shelf(log_of(cluster)).rows
        lose(cluster)
        nodes, logged = dict(cluster.tree._nodes), list(rows)
        whole = Tool(cluster)
        taken = steps(whole, 1_000)
        whole.recover()
        assert taken.count("append") == 5, "EpochStarted, three commits, EpochOpened"
        for at in range(1, len(taken) + 1):
            cluster.tree = MemoryTree()
            cluster.tree._nodes.update(nodes)
            rows[:] = logged
            dying = Tool(cluster)
            steps(dying, at)
            with pytest.raises(KeyboardInterrupt):
                dying.recover()
            dying.coordinator.expire(reconnect=False)
            plan = Tool(cluster).look()
            if not plan.nothing:
                Tool(cluster).recover(plan)
            assert appended_again(cluster) == 3, "all of them, and none twice"
            assert cluster.tree.get(belonging.RECOVERY) is None
        start(cluster)
        cluster.settle()
        assert add(cluster) == 5


def test_what_the_log_has_got_meanwhile_is_not_appended_again() -> None:
    """The broker had taken it, and nobody was told."""
    with counting("SYNC") as cluster:
        add(cluster)
        cluster.broker.release(log_of(cluster))
        wait_until(lambda: appended_again(cluster) == 0, "it is in the log")
        for name in cluster.names:
            cluster.kill(name)
        cluster.tree = MemoryTree()
        plan = Tool(cluster).look()
        assert [p.again for p in plan.partitions] == [0]
