"""Replicas are copied anew while callers count: whole nodes, in memory (P12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from halog.adapters.memory.faults import Fault
from halog.core.table.table import PartitionTable
from halog.errors import DeadlineError, RefusedError, UnknownNameError, UnreachableError
from halog.runtime.placement import definitions as defining
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.placement.placed import Counting, told

pytestmark = [pytest.mark.feature("P12"), pytest.mark.timeout(60)]

P = "test-0"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """P is on all three nodes: one active, one sync, one async."""
    with Cluster(3, partitions=1, registry=REGISTRY) as made:
        yield made


def active(cluster: Cluster) -> str:
    table = cluster.tables()[P]
    assert table.active is not None
    return table.active.node


def watch(cluster: Cluster, node: str, seen: Callable[[PartitionTable], object]) -> None:
    """Every table that this node sees."""
    router = cluster.node(node).runtime.router
    before = router.seen

    def both(name: str, version: int, table: PartitionTable) -> None:
        before(name, version, table)
        seen(table)

    router.seen = both


def held(cluster: Cluster, node: str) -> dict[bytes, object]:
    """The objects of its copy, as they are on its disk."""
    copy = cluster.node(node).runtime.copies[P]
    return {f.key: f.value for f in copy.objects.scan(b"")}


def test_every_replica_drops_its_copy_and_makes_a_new_one_while_callers_count(cluster: Cluster) -> None:
    with Counting(cluster) as counting:
        counting.goes_on()
        leads = active(cluster)
        before = {n: cluster.node(n).runtime.copies[P] for n in "ABC"}
        left: list[frozenset[str]] = []
        watch(cluster, leads, lambda table: left.append(frozenset(table.node_list)))
        cluster.node("A").partitions[P].replicate(wait_s=60)
        assert {n: cluster.node(n).runtime.copies[P] is before[n] for n in "ABC"} == {n: n == leads for n in "ABC"}
        assert all(len(nodes) >= 2 for nodes in left), "never two at a time"
        assert set(left) == {frozenset("ABC"), *(frozenset("ABC") - {n} for n in "ABC" if n != leads)}
        counting.goes_on()
        wait_until(lambda: len(cluster.tables()[P].sync_set) == 1, "it has its sync replica again")
        table = cluster.tables()[P]
        assert (len(table.node_list), table.resync) == (3, None)
    for name in "ABC":
        wait_until(lambda name=name: held(cluster, name) == held(cluster, leads), "the copies are level")  # type: ignore[misc]
    wait_until(lambda: len(told(cluster, "HALOG-1037")) == 2, "it is in the history")
    assert [e.more["what"] for e in told(cluster, "HALOG-1037")] == ["are to be", "were"]


def test_a_replica_whose_disk_lost_something_has_it_again(cluster: Cluster) -> None:
    """What it is for: its store is not what the log says, and nobody would notice."""
    with cluster.client().transaction() as tx:
        tx.create(Counter("x", 7))
    leads = active(cluster)
    name = next(n for n in "ABC" if n != leads)
    copy = cluster.node(name).runtime.copies[P]
    wait_until(lambda: held(cluster, name) == held(cluster, leads), "the copies are level")
    copy.save()
    disk = cluster.disks[name].data
    for key in [k for k in disk if k.startswith(bytes.fromhex(cluster.tables()[P].log_id)[:8])]:
        del disk[key]
    copy.objects.cache.clear()
    assert held(cluster, name) != held(cluster, leads)
    cluster.node(leads).partitions[P].replicate((name,), wait_s=60)
    assert held(cluster, name) == held(cluster, leads)


def cannot_say(cluster: Cluster, node: str) -> Fault:
    """It drops its copy, and cannot write that into the table."""
    return cluster.running[node].coordinator.faults.fail("set", UnreachableError("no answer"), f"partitions/{P}")


def test_it_goes_on_when_the_replica_dies_with_its_copy_dropped(cluster: Cluster) -> None:
    """Passed over while it is away; back, it makes its copy like any restarted node."""
    with Counting(cluster) as counting:
        leads = active(cluster)
        name = next(r.node for r in cluster.tables()[P].replicas if r.kind == "async")
        said = cannot_say(cluster, name)
        cluster.node(leads).partitions[P].replicate((name,))
        wait_until(lambda: said.met, "it is out, and has dropped its copy")
        with pytest.raises(DeadlineError, match=f"{name} drops its copy"):
            cluster.node(leads).partitions[P].replicate((name,), wait_s=0.1)
        counting.goes_on()
        asked = cluster.tables()[P]
        cluster.kill(name)
        with pytest.raises(DeadlineError, match=f"{name} was passed over and has the copy of test-0 it had"):
            defining.wait_until_replicated(cluster.node(leads).runtime.router, asked, 10)
        assert (cluster.tables()[P].resync, cluster.tables()[P].passed_over) == (None, (name,))
        cluster.restart(name)
        wait_until(lambda: name in cluster.tables()[P].node_list, "it is back")
        counting.goes_on()


def test_the_next_active_node_goes_on_with_it(cluster: Cluster) -> None:
    with Counting(cluster) as counting:
        leads = active(cluster)
        name = next(r.node for r in cluster.tables()[P].replicas if r.kind == "async")
        said = cannot_say(cluster, name)
        cluster.node(leads).partitions[P].replicate((name,))
        wait_until(lambda: cluster.tables()[P].away == name, "it is out")
        cluster.kill(leads)
        wait_until(lambda: active(cluster) != leads, "another one is active")
        said.end()
        wait_until(lambda: cluster.tables()[P].resync is None, "it goes on with it")
        cluster.restart(leads)
        wait_until(lambda: len(cluster.tables()[P].node_list) == 3, "all are there")
        counting.goes_on()


def test_a_copy_that_is_back_is_waited_for_before_the_next_one_begins(cluster: Cluster) -> None:
    leads = active(cluster)

    def moves() -> list[tuple[str, str | None]]:
        return [(e.name, e.node) for e in told(cluster, "HALOG-1005", "HALOG-1006")]

    wait_until(lambda: len(moves()) == 2, "both have joined")
    cluster.node(leads).partitions[P].replicate(wait_s=60)
    wait_until(lambda: len(moves()) == 6, "both have left and joined again")
    first, second = moves()[2][1], moves()[4][1]
    assert {leads, first, second} == {"A", "B", "C"}
    assert moves()[2:] == [("removed", first), ("added", first), ("removed", second), ("added", second)]


def test_what_cannot_be_is_refused_and_a_migration_takes_its_place(cluster: Cluster) -> None:
    leads = active(cluster)
    there = cluster.node(leads).partitions[P]
    with pytest.raises(RefusedError, match=f"{leads} is active for test-0"):
        there.replicate((leads,))
    with pytest.raises(UnknownNameError, match="there is no node X"):
        there.replicate(("X",))
    silent = [cannot_say(cluster, n) for n in "ABC" if n != leads]
    there.replicate()
    wait_until(lambda: cluster.tables()[P].away, "one is out")
    for said in silent:
        said.end()
    nodes = (leads, *(n for n in "ABC" if n != leads))
    cluster.node(leads).runtime.operators.migrate(P, nodes, wait_s=60)
    assert cluster.tables()[P].resync is None
    assert cluster.tables()[P].node_list == nodes
