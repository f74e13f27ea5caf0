"""Nodes spread partitions anew by themselves when others come, or have been gone for long: whole nodes, in memory."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter as Count
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory import MemoryLog
from halog.config import Config, TimingConfig
from halog.core.table.definitions import DifferingLists
from halog.core.table.table import Target
from halog.errors import RefusedError
from halog.events import DIFFERING, MIGRATION, REBALANCE, Event, Kind
from halog.metadata import config_versions as versions
from halog.ports import TopicPartition
from halog.runtime.placement import auto_rebalance as rebalancing, plan as plans, plan_rollback as rollback
from halog.runtime.placement.migration import migrate
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("P13", "P2")

Make = Callable[..., Cluster]
PARTITIONS = 8


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Nodes A to D, one active and one replica of each of eight partitions. Nobody plans before all are up."""
    monkeypatch.setattr(rebalancing, "LOOK_S", 0.05)
    started, real = threading.Event(), rebalancing.AutoRebalance._mine
    monkeypatch.setattr(
        rebalancing.AutoRebalance, "_mine", lambda self: real(self) if started.is_set() else ([], set())
    )
    made: list[Cluster] = []

    def start(rebalance: str = "auto", settle_ms: int = 100, replace_ms: int = 300, **own: Any) -> Cluster:
        cluster = Cluster(4, partitions=PARTITIONS, registry=REGISTRY)
        made.append(cluster)
        config = cluster.config
        timing = TimingConfig(join_settle_ms=settle_ms, replace_after_ms=replace_ms)
        policy = dataclasses.replace(config.policies["test"], rebalance=rebalance, async_replicas=0, **own)
        cluster.config = dataclasses.replace(config, timing=timing, policies={"test": policy}).validate()
        cluster.start()
        started.set()
        with cluster.client().transaction() as tx:
            for i in range(40):
                tx.create(Counter(str(i), i))
        return cluster

    yield start
    for cluster in made:
        cluster.close()


def hosts(cluster: Cluster) -> Count[str]:
    """Copies of each node, once nothing moves."""
    tables = cluster.tables().values()
    if any(t.target for t in tables):
        return Count()
    return Count(n for t in tables for n in t.configured)


def counted(cluster: Cluster) -> set[str]:
    found = cluster.tree.get("rebalanced/test")
    return set() if found is None else set(rebalancing._counted("rebalanced/test", found).nodes)


def told(cluster: Cluster) -> list[str]:
    return [e.cause for e in events(cluster, REBALANCE)]


def events(cluster: Cluster, kind: Kind) -> list[Event]:
    log, history = MemoryLog(cluster.broker), TopicPartition("test.events", 0)
    found = [Event.from_bytes(e.value) for e in log.read(history, *log.bounds(history))]
    return [e for e in found if e.code == kind.code]


def total(node: Node) -> int:
    with node.transaction() as tx:
        return sum(c.value for c in tx.extent(Counter))


def begun(cluster: Cluster) -> None:
    wait_until(lambda: counted(cluster) == set("ABCD"), "it is not known who is counted on")


def test_who_has_been_gone_for_long_is_replaced_and_gets_its_share_when_it_is_back(make: Make) -> None:
    cluster = make()
    begun(cluster)
    assert hosts(cluster) == dict.fromkeys("ABCD", 4)
    cluster.kill("D")
    wait_until(
        lambda: hosts(cluster) and hosts(cluster)["D"] == 0,
        "D is not replaced",
        30,
    )
    assert max(hosts(cluster).values()) - min(hosts(cluster).values()) <= 1
    assert total(cluster.client()) == sum(range(40))
    cluster.restart("D")
    wait_until(lambda: hosts(cluster) == dict.fromkeys("ABCD", 4), "D does not get its share", 30)
    cluster.settle()
    assert total(cluster.client()) == sum(range(40))
    assert told(cluster) == ["D has been gone for long", "D came"]
    last = plans.read(cluster.node("A").runtime.adapters.coordinator)
    assert last is not None
    cause, planned = f"plan {last.id}, of a node for policy test", sorted(m.partition for m in last.moves)

    def said() -> list[str | None]:
        return sorted((e.partition for e in events(cluster, MIGRATION) if e.cause == cause), key=str)

    wait_until(lambda: len(said()) >= len(planned), "the history has each of them")
    assert said() == planned, "each once, whoever is up"


@pytest.mark.feature("X10")
def test_what_is_rolled_back_of_a_plan_of_nodes_stays_back_while_nobody_comes_or_goes(make: Make) -> None:
    """D came, got its share, and loses it again by an operator; objects are used meanwhile."""
    cluster = make()
    begun(cluster)
    cluster.kill("D")
    wait_until(lambda: hosts(cluster) and hosts(cluster)["D"] == 0, "D is not replaced", 30)
    before = {name: t.configured for name, t in cluster.tables().items()}
    cluster.restart("D")
    wait_until(lambda: hosts(cluster) == dict.fromkeys("ABCD", 4), "D does not get its share", 30)
    cluster.settle()
    runtime, tables = cluster.node("A").runtime, list(cluster.tables().values())
    coordinator = runtime.adapters.coordinator
    undone, known = rollback.chosen(coordinator, tables)
    assert (undone.made_for, undone.why) == ("test", "D came")
    now = rollback.Situation(cluster.config, cluster.tables(), "ABCD", "ABCD", known)
    back = rollback.roll_back(undone, now)
    plans.store(coordinator, back, tables)
    states = plans.apply(coordinator, cluster.config, runtime.router, back, 4, 30, told=runtime.operators.told)
    assert set(states.values()) == {plans.DONE}
    assert {name: t.configured for name, t in cluster.tables().items()} == before
    assert total(cluster.client()) == sum(range(40))
    for _ in range(20):  # looks of the first node
        time.sleep(rebalancing.LOOK_S)
        assert hosts(cluster)["D"] == 0
    assert told(cluster) == ["D has been gone for long", "D came"]
    assert [p.why for p in plans.known(coordinator)] == ["", "D came", "D has been gone for long"]


@pytest.mark.feature("P4")
def test_a_policy_may_wait_for_another_time_than_all(make: Make) -> None:
    """For who comes, and for who is gone: `[timing]` would wait for a minute."""
    cluster = make(settle_ms=60_000, replace_ms=60_000, join_settle_ms=100, replace_after_ms=300)
    begun(cluster)
    cluster.kill("D")
    wait_until(lambda: hosts(cluster) and hosts(cluster)["D"] == 0, "D is not replaced", 30)
    cluster.restart("D")
    wait_until(lambda: hosts(cluster) == dict.fromkeys("ABCD", 4), "D does not get its share", 30)
    assert told(cluster) == ["D has been gone for long", "D came"]


@pytest.mark.feature("P10")
def test_node_lists_that_differ_are_told_when_nodes_rebalance_and_stay(make: Make) -> None:
    """Once; nobody waits for an error here. The others move, and it follows when they agree."""
    cluster = make()
    begun(cluster)
    name, table = next((n, t) for n, t in cluster.tables().items() if "D" in t.configured)
    other = next(n for n in "ABC" if n not in table.configured)
    cluster.node(other).partitions[name].define((other, "D"))
    cluster.kill("D")
    wait_until(lambda: hosts(cluster)["D"] == 1, "all others are replaced", 30)
    found = events(cluster, DIFFERING)
    assert [(e.partition, e.node, e.severity) for e in found] == [(name, other, "error")]
    both = f"{other} has it defined on {other}, D, the cluster has it on {', '.join(table.configured)}: "
    assert both in found[0].text
    assert cluster.tables()[name].configured == table.configured
    cluster.node(other).partitions[name].define(table.configured)
    wait_until(lambda: hosts(cluster)["D"] == 0, "it does not follow", 30)
    assert len(events(cluster, DIFFERING)) == 1


@pytest.mark.feature("P10")
def test_node_lists_that_differ_are_told_once_as_long_as_they_do() -> None:
    told: list[str | None] = []
    looked = rebalancing.AutoRebalance.__new__(rebalancing.AutoRebalance)
    looked._differing = {}
    looked._history = SimpleNamespace(tell=lambda kind, cause, *, node, more, partition: told.append(partition))  # type: ignore[assignment]
    one, other = (DifferingLists(name, "C", ("C", "A"), ("A", "B")) for name in ("p-0", "p-1"))
    for found in ([one], [one], [one, other], [other], [one, other]):
        looked._tell_lists("p", found)
    assert told == ["p-0", "p-1", "p-0"], "what had ended is told anew"


def test_who_is_back_in_time_keeps_its_copies(make: Make) -> None:
    cluster = make(replace_ms=60_000)
    begun(cluster)
    cluster.kill("D")
    wait_until(lambda: cluster.tables() and not any("D" in t.node_list for t in cluster.tables().values()), "D is here")
    cluster.restart("D")
    cluster.settle()
    assert hosts(cluster) == dict.fromkeys("ABCD", 4)
    assert told(cluster) == []


def test_another_node_goes_on_when_the_first_dies(make: Make) -> None:
    """A plans, since it is the first; D comes back when A is gone."""
    cluster = make()
    begun(cluster)
    cluster.kill("D")
    wait_until(lambda: hosts(cluster) and hosts(cluster)["D"] == 0, "D is not replaced", 30)
    cluster.kill("A")
    cluster.restart("D")
    wait_until(
        lambda: hosts(cluster) and hosts(cluster)["A"] == 0 and min(hosts(cluster)[n] for n in "BCD") >= 5,
        "B does not plan for A and D",
        30,
    )
    assert total(cluster.client()) == sum(range(40))


def test_a_partition_keeps_a_place_for_a_node_nobody_can_replace(make: Make) -> None:
    """With two nodes left a copy each is all there can be: nothing is shrunk."""
    cluster = make()
    begun(cluster)
    cluster.kill("C")
    cluster.kill("D")
    wait_until(lambda: hosts(cluster) == Count(A=8, B=8), "C and D are not replaced", 30)
    cluster.kill("B")
    tree = cluster.node("A").runtime.adapters.coordinator
    wait_until(lambda: counted(cluster) == {"A"}, "B is counted on", 30)
    assert hosts(cluster) == Count(A=8, B=8), "it would be the only copy"
    found = plans.read(tree)
    assert found is not None
    assert all(set(m.target.nodes) == {"A", "B"} for m in found.moves), "the last plan had another reason"


def test_nothing_moves_by_itself_where_the_policy_says_manual(make: Make) -> None:
    cluster = make(rebalance="manual")
    runtime = cluster.node("A").runtime
    assert runtime.host is not None
    assert "halog-rebalancing" not in [t.name for t in runtime.host.threads.started]
    assert counted(cluster) == set()


def test_what_was_drained_stays_empty(make: Make) -> None:
    """An operator's moves are no change of members."""
    cluster = make()
    begun(cluster)
    tree, config = cluster.node("A").runtime.adapters.coordinator, cluster.config
    for name, table in cluster.tables().items():
        if "D" in table.configured:
            keeps = [n for n in table.configured if n != "D"]
            to = (*keeps, next(n for n in "ABC" if n not in keeps))
            migrate(tree, config, list("ABCD"), name, to, 1, told=cluster.node("A").runtime.operators.told)
    wait_until(lambda: hosts(cluster) and hosts(cluster)["D"] == 0, "D is not empty", 30)
    cluster.kill("D")
    cluster.restart("D")
    cluster.settle()
    assert hosts(cluster)["D"] == 0
    assert told(cluster) == []


def test_a_plan_that_was_cancelled_is_not_carried_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then no other takes its place, though nothing of it has begun."""
    cluster = make()
    begun(cluster)
    monkeypatch.setattr(rebalancing, "AT_ONCE", 0)
    cluster.kill("D")
    tree = cluster.node("A").runtime.adapters.coordinator
    wait_until(lambda: plans.read(tree) is not None, "nobody plans")
    with pytest.raises(RefusedError, match=r"made by a node for policy test, .* `halog plan cancel`"):
        plans.store(tree, plans.Plan("another", 0, ()), list(cluster.tables().values()))
    assert plans.cancel(tree).why == "D has been gone for long"
    monkeypatch.setattr(rebalancing, "AT_ONCE", 2)
    wait_until(lambda: counted(cluster) == set("ABC"), "D is counted on")
    assert hosts(cluster) == dict.fromkeys("ABCD", 4)


def test_an_operators_plan_that_waits_is_not_overtaken(make: Make) -> None:
    cluster = make()
    begun(cluster)
    tree, tables = cluster.node("A").runtime.adapters.coordinator, list(cluster.tables().values())
    table = tables[0]
    spare = next(n for n in "ABCD" if n not in table.configured)
    wish = Target((spare, *table.configured[1:]), 1)
    plans.store(tree, plans.Plan("mine", 0, (plans.PlannedMove(table.name, table.configured, wish, 0, ""),)), tables)
    with pytest.raises(RefusedError, match="plan mine is not done"):
        plans.store(tree, plans.Plan("nodes", 0, (), made_for="test"), tables)
    plans.store(tree, plans.Plan("better", 0, ()), tables)


def activate(cluster: Cluster, **policy: Any) -> Config:
    """The next version, as `halog config activate` makes it, with another policy."""
    tree = cluster.node("A").runtime.adapters.coordinator
    other = dataclasses.replace(cluster.config.policies["test"], **policy)
    config = dataclasses.replace(cluster.config, policies={"test": other}).validate()
    versions.activate(tree, versions.read(tree), versions.Draft(0, "me", "file", "", config))
    return config


def test_replicas_come_and_go_when_a_version_with_another_number_is_activated(make: Make) -> None:
    cluster = make()
    begun(cluster)
    activate(cluster, async_replicas=1)
    wait_until(lambda: hosts(cluster) == dict.fromkeys("ABCD", 6), "nobody makes the third copies", 30)
    activate(cluster, async_replicas=0, below_quorum="wait")
    wait_until(lambda: hosts(cluster) == dict.fromkeys("ABCD", 4), "the third copies stay", 30)
    cluster.settle()
    assert total(cluster.client()) == sum(range(40))
    assert told(cluster) == [f"version {n} of the configuration places it otherwise" for n in (1, 2)]
