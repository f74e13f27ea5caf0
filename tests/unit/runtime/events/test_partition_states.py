"""States of partitions and their notifiers, on whole nodes in memory (P8)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import halog
from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.core.table.table import SYNC, PartitionTable, Replica, Target
from halog.errors import ClosedError
from halog.ports import TopicPartition
from halog.runtime.events.history import History
from halog.runtime.events.partition_states import PartitionChange, PartitionStates, partition_notifier
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.unit.core.kit import A, B, C, epoch, table
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.placement.placed import P, at, place, told, unplaced

pytestmark = [pytest.mark.feature("P8"), pytest.mark.timeout(60)]


class Heard(list[tuple[str, str, str]]):
    """What a notifier was called with."""

    all: list[PartitionChange] = []  # noqa: RUF012 - replaced, never changed

    def __call__(self, change: PartitionChange) -> None:
        self.append((change.before, change.happening, change.now))
        self.last = change
        self.all = [*self.all, change]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes with P on each; the configuration places it."""
    with Cluster(3, partitions=1, registry=REGISTRY) as made:
        wait_until(lambda: states(made) == {"Active"}, "all are quiet")
        yield made


def partition(cluster: Cluster, node: str) -> Any:
    return cluster.node(node).partitions["test-0"]


def states(cluster: Cluster) -> set[str]:
    return {partition(cluster, n).state for n in cluster.names if n in cluster.running}


def test_a_failover_is_migrating_for_every_node_clients_included(cluster: Cluster) -> None:
    client = cluster.client()
    heard = {n: Heard() for n in "BC"}
    for name in heard:
        cluster.node(name).partitions.notify(heard[name])
    far = Heard()
    client.partitions.notify(far, "test-0", "another")  # type: ignore[attr-defined]
    other = Heard()
    cluster.node("B").partitions.notify(other, "another")
    gone = cluster.active_for(Counter, "x")
    left = [n for n in "BC" if n != gone]
    cluster.kill(gone)
    for it in (*(heard[n] for n in left), far):
        wait_until(lambda it=it: len(it) >= 2, "it is told")  # type: ignore[misc]
        assert it[:2] == [("Active", "failover", "Migrating"), ("Migrating", "done", "Active")]
    assert far.last.active in left
    assert far.last.node == client.backend.name  # type: ignore[attr-defined]
    assert other == []
    wait_until(lambda: moves(cluster) == {("Active", "Migrating"), ("Migrating", "Active")}, "it is in the history")


def moves(cluster: Cluster) -> set[tuple[str, str]]:
    """As the history has them: into and out of Migrating. Two nodes may both take themselves for the one to tell it."""
    found = {(e.more["was"], e.more["state"]) for e in told(cluster, "HALOG-1035")}
    return {pair for pair in found if "Migrating" in pair}


def test_a_replica_that_comes_back_is_replicating_for_the_others_and_for_itself(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "x")
    back = next(n for n in "ABC" if n != active)
    heard = Heard()
    cluster.kill(back)
    wait_until(lambda: states(cluster) == {"Active"}, "one replica less is no state of its own")
    cluster.node(active).partitions.notify(heard)
    cluster.restart(back)
    wait_until(lambda: len(heard) == 2, "it is told")
    assert heard == [("Active", "replica restored", "Replicating"), ("Replicating", "done", "Active")]
    wait_until(lambda: partition(cluster, back).state == "Active", "it is there")


def test_a_hand_over_is_migrating(cluster: Cluster) -> None:
    active = cluster.active_for(Counter, "x")
    to = next(r.node for r in cluster.tables()["test-0"].replicas if r.kind == SYNC)
    heard = {n: Heard() for n in "ABC"}
    for name in heard:
        cluster.node(name).partitions.notify(heard[name])
    cluster.node(active).runtime.operators.hand_over("test-0", to)
    for it in heard.values():
        wait_until(lambda it=it: len(it) >= 2, "it is told")  # type: ignore[misc]
        assert it[0] == ("Active", "hand-over", "Migrating")
        assert it[1] == ("Migrating", "done", "Active")


def test_an_error_in_a_notifier_is_logged_by_name_and_harms_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    heard, node = Heard(), cluster.node("A")

    def broken(change: PartitionChange) -> None:
        raise RuntimeError("a mistake of the application")

    node.partitions.notify(broken)
    remove = node.partitions.notify(heard)
    replica = next(n for n in "BC" if n != cluster.tables()["test-0"].active.node)  # type: ignore[union-attr]
    with caplog.at_level(logging.ERROR, "halog.lives"):
        cluster.node("A").runtime.operators.hand_over("test-0", replica)
        wait_until(lambda: len(heard) >= 2, "the other one is called")
    assert "broken failed on test-0: Active → Migrating" in caplog.text
    remove()
    remove()
    before = len(heard)
    cluster.kill(replica)
    wait_until(lambda: cluster.tables()["test-0"].active.node != replica, "another one is active")  # type: ignore[union-attr]
    wait_until(lambda: partition(cluster, "A").state != "Migrating", "it is over")
    assert len(heard) == before


def test_a_notifier_may_use_objects_and_a_slow_one_holds_up_nobody_but_notifiers(cluster: Cluster) -> None:
    """It runs outside of any transaction, behind the change."""
    node, go, done = cluster.node("A"), threading.Event(), Heard()

    def slow(change: PartitionChange) -> None:
        go.wait(60)
        with node.transaction():
            node.create(Counter(f"{change.before} {change.now}"))
        done(change)

    node.partitions.notify(slow)
    active = cluster.active_for(Counter, "x")
    other = next(n for n in "BC" if n != active)
    node.runtime.operators.hand_over("test-0", other)
    wait_until(lambda: cluster.tables()["test-0"].active.node == other, "it is handed over")  # type: ignore[union-attr]
    wait_until(lambda: partition(cluster, "A").state == "Active", "states go on")
    assert done == []
    go.set()
    wait_until(lambda: len(done) >= 2, "it was called, in order")
    assert done[:2] == [("Active", "hand-over", "Migrating"), ("Migrating", "done", "Active")]
    with node.transaction():
        assert node.find(Counter, "Active Migrating") is not None


def test_only_nodes_that_have_it_enabled_are_told() -> None:
    """C has defined it, and nothing more; D has disabled it."""
    cluster = unplaced(4)
    try:
        place(cluster, "A", "B", "D")
        at(cluster, "D").disable(wait_s=10)
        heard = {n: Heard() for n in "ABCD"}
        at(cluster, "C").define(("A", "B"))
        for name, it in heard.items():
            wait_until(lambda name=name: at(cluster, name).state == "Active", "all is quiet")  # type: ignore[misc]
            cluster.node(name).partitions.notify(it)
        wait_until(lambda: at(cluster, "C").status == "LocalDefined", "it is told")
        cluster.node("A").runtime.operators.hand_over(P, "B")
        for name in "AB":
            wait_until(lambda name=name: len(heard[name]) >= 2, "it is told")  # type: ignore[misc]
        assert heard["C"] == heard["D"] == []
        assert at(cluster, "D").state in ("Active", "Migrating"), "but it is known"
    finally:
        cluster.close()


def test_active_to_unavailable_is_told_on_the_node_where_it_happened_only() -> None:
    """A quorum of two of three: the active node is left alone."""
    made = Cluster(3, partitions=1, quorum=True, registry=REGISTRY)
    with made:
        wait_until(lambda: states(made) == {"Active"}, "all are quiet")
        active = made.active_for(Counter, "x")
        client, heard, far = made.client(), Heard(), Heard()
        made.node(active).partitions.notify(heard)
        client.partitions.notify(far)  # type: ignore[attr-defined]
        for name in "ABC":
            if name != active:
                made.kill(name)
        wait_until(lambda: ("Active", "quorum lost", "Unavailable") in heard, "it is told there")
        wait_until(lambda: client.partitions["test-0"].state == "Unavailable", "others know it")  # type: ignore[attr-defined]
        assert not [h for h in far if h[2] == "Unavailable" and h[0] == "Active"], "and are not called"
        made.restart(next(n for n in "ABC" if n != active))
        wait_until(lambda: ("Unavailable", "quorum back", "Migrating") in far, "into a transient state: all are")
        wait_until(lambda: len(told(made, "HALOG-1038")) >= 1, "it is in the history")


def test_declared_notifiers_are_installed_on_every_node_of_the_registry() -> None:
    registry, all_of_them, one = Registry(), Heard(), Heard()

    @partition_notifier("test-1", registry=registry)
    def some(change: PartitionChange) -> None:
        one(change)

    @partition_notifier(registry=registry)
    def every(change: PartitionChange) -> None:
        all_of_them(change)

    with Cluster(2, partitions=2, registry=registry) as cluster:
        for name in ("test-0", "test-1"):
            wait_until(lambda name=name: cluster.node("A").partitions[name].state == "Active", "all is quiet")  # type: ignore[misc]
        for name in ("test-0", "test-1"):
            active = cluster.tables()[name].active.node  # type: ignore[union-attr]
            cluster.node("A").runtime.operators.hand_over(name, "B" if active == "A" else "A")
        wait_until(lambda: len({c.node for c in one.all}) == 2, "it is told on both nodes")
        wait_until(lambda: {c.partition for c in all_of_them.all} == {"test-0", "test-1"}, "all are told")
        assert {c.partition for c in one.all} == {"test-1"}
    assert halog.partition_notifier is partition_notifier
    assert halog.PartitionChange is PartitionChange


# --- one part alone ---


def alone(me: str = "A", log: MemoryLog | None = None, **more: Any) -> PartitionStates:
    log = log or MemoryLog(MemoryBroker())
    history = History("c", me, 1, lambda: log.journal(TopicPartition("c.events", 0)))
    made = PartitionStates(me, history, **more)
    made.begin()
    made.members_seen(frozenset({A, B}), "")
    return made


WHOLE = table(configured=("A", "B"), epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))


def test_tables_that_come_late_or_twice_change_nothing() -> None:
    made, heard = alone(), Heard()
    made.notify(heard)
    made.table_seen("p", 5, WHOLE)
    wait_until(lambda: made.state("p").value == "Active", "it is seen")
    made.table_seen("p", 4, replaced(Target(("B",), 0)))
    made.table_seen("p", 5, replaced(Target(("B",), 0)))
    made.close()
    assert heard == []


def test_a_failover_is_told_although_each_took_the_other_for_who_tells_it() -> None:
    """C sees first that A has left, when B is the next of the list; B only hears of it when C has the role already."""
    told, nodes = dict[str, list[tuple[str, str]]](), {}
    b, c = (Replica(*member, SYNC) for member in (B, C))
    before = table(configured=("A", "B", "C"), epoch=epoch(1), active=A, replicas=(b, c))
    after = table(configured=("A", "B", "C"), epoch=epoch(2), active=C, replicas=(b,))
    for me in "BC":
        nodes[me] = made = alone(me)
        told[me] = []
        made._tell = lambda _, step, me=me: told[me].append((step.before.value, step.now.value))  # type: ignore[method-assign, misc]
        made.members_seen(frozenset({A, B, C}), "")
        made.table_seen("p", 1, before)
        wait_until(lambda made=made: made.state("p").value == "Active", "it is seen")  # type: ignore[misc]
    nodes["C"].members_seen(frozenset({B, C}), "")
    wait_until(lambda: nodes["C"].state("p").value == "Migrating", "it is seen")
    nodes["C"].table_seen("p", 2, after)
    nodes["B"].table_seen("p", 2, after)
    nodes["B"].members_seen(frozenset({B, C}), "")
    wait_until(lambda: nodes["C"].state("p").value == "Active", "it is seen")
    for made in nodes.values():
        made.close()
    assert told == {"B": [], "C": [("Active", "Migrating"), ("Migrating", "Active")]}


def test_objects_that_change_partition_make_it_updating() -> None:
    busy = {"p"}
    made = alone(updating=lambda name: name in busy)
    made.table_seen("p", 1, WHOLE)
    wait_until(lambda: made.state("p").value == "Updating", "it is seen")
    busy.clear()
    made.look("p")
    wait_until(lambda: made.state("p").value == "Active", "it is seen")
    made.close()


def test_a_role_that_is_given_away_is_seen_before_the_table_changes() -> None:
    made = alone()
    made.table_seen("p", 1, WHOLE)
    made.role_seen("p", "draining")
    wait_until(lambda: made.state("p").value == "Migrating", "it is seen")
    made.role_seen("p", "active")
    wait_until(lambda: made.state("p").value == "Active", "it was called off")
    heard = Heard()
    made.notify(heard)
    for role in ("draining", "handing", "following"):
        made.role_seen("p", role)
    wait_until(lambda: heard, "it is told")
    handed = msgspec.structs.replace(WHOLE, epoch=epoch(2), active=B, replicas=(Replica("A", 1, SYNC),))
    made.table_seen("p", 2, handed)
    wait_until(lambda: made.state("p").value == "Active", "it is over")
    wait_until(lambda: len(heard) >= 2, "it is told")
    assert heard == [("Active", "hand-over", "Migrating"), ("Migrating", "done", "Active")], "one step, not two"
    made.close()


def test_an_offline_node_has_nothing_available() -> None:
    made = alone()
    made.table_seen("p", 1, WHOLE)
    made.members_seen(frozenset({B}), "zone main has no quorum here")
    wait_until(lambda: made.state("p").value == "Unavailable", "it is seen")
    made.close()


def test_what_notifiers_cannot_keep_up_with_is_logged_and_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    made, go = alone(max_waiting=2), threading.Event()
    made.notify(lambda change: go.wait(60))
    made.table_seen("p", 1, WHOLE)
    for version, target in ((2, Target(("A",), 0)), (3, None), (4, Target(("A",), 0)), (5, None)):
        made.table_seen("p", version, WHOLE if target is None else replaced(target))
    wait_until(lambda: "2 changes behind" in caplog.text, "it is said")
    go.set()
    made.close()


def changing(made: PartitionStates, versions: range) -> None:
    """One change with each version from the second one."""
    for version in versions:
        made.table_seen("p", version, replaced(Target(("A",), 0)) if version % 2 == 0 else WHOLE)


def test_a_notifier_that_was_taken_away_is_not_called_with_what_waited_for_it() -> None:
    made, go, ran, heard = alone(), threading.Event(), threading.Event(), Heard()

    def slow(change: PartitionChange) -> None:
        ran.set()
        go.wait(60)

    made.notify(slow)
    remove, kept = made.notify(heard), Heard()
    made.notify(kept)
    changing(made, range(1, 4))
    wait_until(ran.is_set, "the first one runs")
    remove()
    go.set()
    wait_until(lambda: len(kept) == 2, "the third one is called")
    assert heard == []
    made.close()


@pytest.mark.parametrize("full", [False, True])
def test_a_closed_node_calls_no_notifier_and_a_hung_one_does_not_keep_it_open(
    caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    made, go, calls = alone(close_s=0.2, max_waiting=2 if full else 100), threading.Event(), Heard()

    def hung(change: PartitionChange) -> None:
        calls(change)
        go.wait(60)

    made.notify(hung)
    changing(made, range(1, 6))
    wait_until(lambda: bool(calls) and made._tables["p"][0] == 5, "all are seen")
    wait_until(lambda: not full or "changes behind" in caplog.text, "it is full")
    closing = threading.Thread(target=made.close, daemon=True)
    closing.start()
    closing.join(20)
    go.set()
    assert not closing.is_alive()
    caller = made._caller
    assert caller is not None
    caller.join(60)
    assert (caller.is_alive(), len(calls)) == (False, 1), "what waited is not called for any more"


def test_a_notifier_may_close_its_node_and_its_thread_ends() -> None:
    made = alone()
    made.notify(lambda change: made.close())
    changing(made, range(1, 3))
    caller = made._caller
    assert caller is not None
    caller.join(60)
    assert not caller.is_alive()
    with pytest.raises(ClosedError, match="node A is closed: it calls no notifier"):
        made.notify(Heard())


def replaced(target: Target) -> PartitionTable:
    return msgspec.structs.replace(WHOLE, target=target)


def test_an_unknown_partition_is_initial_and_undefined() -> None:
    made = alone()
    assert (made.state("q").value, made.status("q").value) == ("Initial", "Undefined")
    assert made.view() == {}
    made.close()
