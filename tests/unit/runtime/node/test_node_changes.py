"""Notifiers of remote nodes on whole nodes in memory: they run in transactions, and nothing waits for them (N3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import halog
from halog.adapters.memory import MemoryLog
from halog.errors import ClosedError, DeclarationError, NoTransactionError, RefusedError
from halog.events import NOTIFIER_FAILED, Event
from halog.ports import TopicPartition
from halog.runtime.events.node_notifiers import NodeChange
from halog.runtime.node.open import RunningNode
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = [pytest.mark.feature("N3"), pytest.mark.timeout(120)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=2, registry=REGISTRY) as made:
        yield made


def states(node: RunningNode) -> dict[str, str]:
    return {name: change.state for name, change in node.node_states().items()}


def count(cluster: Cluster, by: Any, name: str) -> int:
    with by.transaction():
        found = by.find(Counter, name)
        return -1 if found is None else found.value


def test_nodes_see_each_other_up_down_and_up_again(cluster: Cluster) -> None:
    a = cluster.node("A")
    wait_until(lambda: states(a) == {"B": "Up", "C": "Up"}, "both are up")
    cluster.kill("C")
    wait_until(lambda: states(a)["C"] == "Down", "C is down")
    said: Any = a.runtime.status()["nodes"]
    assert said["C"]["state"] == "Down"
    assert said["C"]["why"] == a.node_states()["C"].why
    cluster.restart("C")
    wait_until(lambda: states(a) == {"B": "Up", "C": "Up"}, "C is up")
    b = cluster.node("B")
    b.close()
    cluster.running.pop("B")
    wait_until(lambda: states(a)["B"] == "Down", "B is down")
    assert a.node_states()["B"].why == "it left"


def test_a_notifier_runs_in_a_transaction_which_is_committed(cluster: Cluster) -> None:
    a = cluster.node("A")
    heard: list[NodeChange] = []

    def up(change: NodeChange) -> None:
        a.create(Counter(change.node, 1))
        heard.append(change)

    def down(change: NodeChange) -> None:
        a.get(Counter, change.node).add(10)
        heard.append(change)

    a.on_node_change(available=up, unavailable=down)
    wait_until(lambda: count(cluster, a, "B") == 1 and count(cluster, a, "C") == 1, "both are told")
    cluster.kill("C")
    wait_until(lambda: count(cluster, a, "C") == 11, "that is told, too")
    assert [(c.node, c.state) for c in heard[2:]] == [("C", "Down")]
    assert heard[2].time_ms >= heard[0].time_ms > 0


def test_a_notifier_that_raises_is_rolled_back_and_told_and_others_go_on(cluster: Cluster) -> None:
    a = cluster.node("A")
    heard: list[str] = []

    def broken(change: NodeChange) -> None:
        a.create(Counter(f"broken-{change.node}"))
        raise ValueError("no")

    a.on_node_change(available=broken)
    a.on_node_change(available=lambda change: heard.append(change.node))
    wait_until(lambda: sorted(heard) == ["B", "C"], "the other one is called")
    assert count(cluster, a, "broken-B") == count(cluster, a, "broken-C") == -1
    log, tp = MemoryLog(cluster.broker), TopicPartition("test.events", 0)

    def told() -> list[Event]:
        return [e for e in (Event.from_bytes(r.value) for r in log.read(tp, *log.bounds(tp))) if "1130" in e.code]

    wait_until(lambda: len(told()) == 2, "it is told")
    assert {(e.code, e.node, e.cause) for e in told()} == {(NOTIFIER_FAILED.code, n, "ValueError: no") for n in "BC"}
    assert "broken failed at A when node" in told()[0].text


def test_nothing_waits_for_a_notifier_that_hangs_for_ever(cluster: Cluster) -> None:
    """Of each node that goes on; the active one is killed, and comes back."""
    go, hanging = threading.Event(), list[str]()

    def hangs(change: NodeChange) -> None:
        hanging.append(change.node)
        go.wait(100)

    client = cluster.client()
    with client.transaction():
        client.create(Counter("c"))
    first = cluster.active_for(Counter, "c")
    others = [cluster.node(n) for n in cluster.names if n != first]
    for node in others:
        node.on_node_change(available=hangs, unavailable=hangs)
    wait_until(lambda: len(hanging) == 4, "all of them hang")
    try:
        cluster.kill(first)
        wait_until(lambda: cluster.active_for(Counter, "c") != first, "another node takes over")
        with client.transaction():
            client.get(Counter, "c").add(1)
        assert all(node.node_states()[first].state == "InUpNotifier" for node in others)
        assert all(first not in {m.node for m in node.runtime.members.alive} for node in others)
        cluster.restart(first)
        cluster.settle()
        assert len(hanging) == 4
    finally:
        go.set()
    wait_until(lambda: len(hanging) == 8, "the break is told of the node that was killed")
    assert hanging[4:] == [first] * 4


def test_a_notifier_is_taken_away_by_what_on_node_change_returned(cluster: Cluster) -> None:
    a, heard, other = cluster.node("A"), list[str](), list[str]()
    remove = a.on_node_change(unavailable=lambda change: heard.append(change.node))
    a.on_node_change(unavailable=lambda change: other.append(change.node))
    remove()
    cluster.kill("C")
    wait_until(lambda: other == ["C"], "it is told")
    assert heard == []


def test_what_is_no_notifier_is_refused_by_name(cluster: Cluster) -> None:
    a, wrong = cluster.node("A"), "no function"

    async def coroutine(change: NodeChange) -> None: ...

    with pytest.raises(RefusedError, match="give on_node_change available=…, unavailable=…, or both"):
        a.on_node_change()
    with pytest.raises(RefusedError, match="unavailable='no function' is no function; give one that takes"):
        a.on_node_change(unavailable=wrong)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="only plain functions"):
        a.on_node_change(available=coroutine)
    a.close()
    for call in (a.node_states, lambda: a.on_node_change(available=print)):
        with pytest.raises(ClosedError):
            call()


def test_a_notifier_may_close_its_node(cluster: Cluster) -> None:
    a, done = cluster.node("A"), threading.Event()

    def close(change: NodeChange) -> None:
        a.close()
        done.set()

    a.on_node_change(available=close)
    assert done.wait(30)
    cluster.running.pop("A")
    with pytest.raises(NoTransactionError):
        a.current()


def test_the_change_is_a_public_name() -> None:
    assert halog.NodeChange is NodeChange


def test_a_client_is_told_of_nodes_too(cluster: Cluster) -> None:
    client: Any = cluster.client()
    heard = list[tuple[str, str]]()

    def up(change: NodeChange) -> None:
        client.create(Counter(change.node))
        heard.append(("up", change.node))

    client.on_node_change(available=up, unavailable=lambda change: heard.append(("down", change.node)))
    wait_until(lambda: sorted(heard) == [("up", n) for n in "ABC"], "all are up")
    cluster.kill("C")
    wait_until(lambda: heard[3:] == [("down", "C")], "C is down")
    wait_until(lambda: states(client) == {"A": "Up", "B": "Up", "C": "Down"}, "it says so")
    assert count(cluster, client, "A") == 0
