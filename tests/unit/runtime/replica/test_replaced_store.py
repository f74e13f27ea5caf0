"""A node whose store was damaged and set aside, where commits do not wait for the log (R6, decision 49): what it had
stored may be nowhere else, so nobody goes on without it by himself."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryDisk, MemoryStore
from halog.metadata.groups import UnloggedSurrender
from halog.metadata.partition_tables import change_table
from halog.runtime.store import replaced_mark as replaced
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.host.test_faults import add, copy_on
from tests.unit.runtime.replica.test_pushed_store_on_nodes import POLICIES, all_end, all_start, counting, replica

pytestmark = [pytest.mark.nodes, pytest.mark.feature("R6", "P10")]


def sets_aside(cluster: Cluster, name: str) -> MemoryDisk:
    """As `halog.runtime.node.wiring.open_store`, of a damaged store; the old disk."""
    old, new = cluster.disks[name], MemoryDisk(name)
    store = MemoryStore(new)
    replaced.note(store, "a table cannot be read", None)
    store.close()
    cluster.disks[name] = new
    return old


@pytest.mark.parametrize("policy", POLICIES)
def test_the_partition_waits_and_an_operator_may_give_it_up(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    with counting(policy) as cluster:
        assert add(cluster) == 2
        damaged = replica(cluster).core.state.me.node
        all_end(cluster)
        sets_aside(cluster, damaged)
        for name in cluster.names:
            cluster.restart(name)
        wait_until(lambda: "HALOG-1018" in caplog.text, "it says whom it waits for")
        assert "its store was set aside" in caplog.text
        assert "HALOG-1125" in caplog.text
        assert "HALOG-1019" not in caplog.text
        assert not any(copy_on(cluster, name).serving for name in cluster.names)
        runtime = cluster.node("A").runtime
        up = {name: running.node.runtime.incarnation for name, running in cluster.running.items()}
        change_table(runtime.adapters.coordinator, "test-0", UnloggedSurrender(up))
        cluster.settle()
        assert add(cluster) == 2, "what was set aside is lost, as was said"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_disk_that_was_set_aside_is_put_back(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """It could be mended, perhaps."""
    with counting(policy) as cluster:
        assert add(cluster) == 2
        damaged = replica(cluster).core.state.me.node
        all_end(cluster)
        old = sets_aside(cluster, damaged)
        for name in cluster.names:
            cluster.restart(name)
        wait_until(lambda: "HALOG-1018" in caplog.text, "it says whom it waits for")
        cluster.kill(damaged)
        cluster.disks[damaged] = old
        cluster.restart(damaged)
        cluster.settle()
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


@pytest.mark.parametrize("policy", POLICIES)
def test_another_holder_is_enough(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of who was active nothing is missed: its replica has it all."""
    with counting(policy) as cluster:
        assert add(cluster) == 2
        holder = replica(cluster).core.state.me.node
        other = next(name for name in cluster.names if name != holder)
        all_end(cluster)
        sets_aside(cluster, other)
        all_start(cluster)
        assert add(cluster) == 3
        assert "HALOG-1019" not in caplog.text


def test_it_is_over_with_the_next_epoch(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that began with the new store have nothing in the old one."""
    with counting("SYNC") as cluster:
        assert add(cluster) == 2
        holder = replica(cluster).core.state.me.node
        other = next(name for name in cluster.names if name != holder)
        all_end(cluster)
        sets_aside(cluster, other)
        all_start(cluster)
        for name in cluster.names:
            cluster.kill(name)
        all_start(cluster)
        assert add(cluster) == 3
        assert caplog.text.count("HALOG-1125") == 1
