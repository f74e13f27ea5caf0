"""Notifiers of remote nodes in an event loop: coroutines in transactions, one after the other for each node (N3)."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import halog.aio
from halog.adapters.memory import MemoryLog
from halog.errors import ClosedError, ConflictError, NoTransactionError, RefusedError
from halog.events import NOTIFIER_FAILED, Event
from halog.ports import TopicPartition
from halog.runtime.events.node_notifiers import NodeChange
from halog.testing.cluster import WAIT_S, Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.timeout(120)

Body = Callable[[Cluster, halog.aio.Node], Coroutine[Any, Any, None]]


def run(body: Body) -> None:
    """Run it with node A of three."""

    async def main(cluster: Cluster) -> None:
        node = halog.aio.Node(cluster.node("A"))
        try:
            await body(cluster, node)
        finally:
            with suppress(NoTransactionError):  # the body has closed it
                await node.close()
            cluster.running.pop("A", None)

    with Cluster(3, partitions=2, registry=REGISTRY) as made:
        asyncio.run(main(made))


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait, and leave the loop to others."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


@pytest.mark.feature("N3")
def test_a_coroutine_hears_of_nodes_in_the_loop_and_its_transaction_is_committed() -> None:
    async def body(cluster: Cluster, node: halog.aio.Node) -> None:
        heard: list[tuple[str, str]] = []
        conflicts = ["C"]

        async def came(tx: halog.aio.Transaction, change: NodeChange) -> None:
            assert threading.current_thread() is threading.main_thread()
            await tx.create(Counter(change.node, 1))
            if change.node in conflicts:
                conflicts.remove(change.node)
                raise ConflictError("once", settled_lsn=0)
            heard.append(("up", change.node))

        async def went(tx: halog.aio.Transaction, change: NodeChange) -> None:
            (await tx.get(Counter, change.node)).value += 10
            heard.append(("down", change.node))

        node.on_node_change(available=came, unavailable=went)
        await until(lambda: sorted(heard) == [("up", "B"), ("up", "C")], "both are told")
        await asyncio.to_thread(cluster.kill, "C")
        await until(lambda: heard[2:] == [("down", "C")], "that is told, too")
        await until(
            lambda: {n: c.state for n, c in node.node_states().items()} == {"B": "Up", "C": "Down"}, "it says so"
        )
        async with node.transaction() as tx:
            assert [(await tx.get(Counter, n)).value for n in "BC"] == [1, 11]

    run(body)


@pytest.mark.feature("N3")
def test_a_coroutine_that_waits_holds_up_neither_the_loop_nor_other_nodes() -> None:
    async def body(cluster: Cluster, node: halog.aio.Node) -> None:
        go, heard = asyncio.Event(), list[str]()

        async def came(tx: halog.aio.Transaction, change: NodeChange) -> None:
            heard.append(f"begins {change.node}")
            if change.node == "C":
                await go.wait()
            heard.append(f"ends {change.node}")

        async def went(tx: halog.aio.Transaction, change: NodeChange) -> None:
            heard.append(f"loses {change.node}")

        node.on_node_change(available=came, unavailable=went)
        await until(lambda: {"begins C", "ends B"} <= set(heard), "B's is done")
        await asyncio.to_thread(cluster.kill, "C")
        await until(lambda: "notifiers have not returned" in node.node_states()["C"].why, "it is known")
        assert "loses C" not in heard
        go.set()
        await until(lambda: heard[-2:] == ["ends C", "loses C"], "one after the other")

    run(body)


@pytest.mark.feature("N3")
def test_what_a_coroutine_raises_is_told_and_what_is_none_is_refused() -> None:
    async def body(cluster: Cluster, node: halog.aio.Node) -> None:
        async def broken(tx: halog.aio.Transaction, change: NodeChange) -> None:
            await tx.create(Counter(change.node))
            raise ValueError("no")

        node.on_node_change(available=broken)
        log, tp = MemoryLog(cluster.broker), TopicPartition("test.events", 0)

        def told() -> list[Event]:
            events = [Event.from_bytes(r.value) for r in log.read(tp, *log.bounds(tp))]
            return [e for e in events if e.code == NOTIFIER_FAILED.code]

        await until(lambda: len(told()) == 2, "it is told")
        assert all("broken failed at A" in e.text and e.cause == "ValueError: no" for e in told())
        async with node.transaction() as tx:
            assert await tx.find(Counter, "B") is None
        with pytest.raises(RefusedError, match="give on_node_change available=…, unavailable=…, or both"):
            node.on_node_change()
        with pytest.raises(RefusedError, match="available=<built-in function print> is no coroutine function"):
            node.on_node_change(available=print)  # type: ignore[arg-type]
        await node.close()
        for call in (node.node_states, lambda: node.on_node_change(available=broken)):
            with pytest.raises(ClosedError):
                call()

    run(body)


@pytest.mark.feature("N3")
def test_nothing_is_called_once_the_loop_has_ended() -> None:
    heard: list[str] = []

    async def went(tx: halog.aio.Transaction, change: NodeChange) -> None:
        heard.append(change.node)

    async def main(node: halog.aio.Node) -> None:
        node.on_node_change(unavailable=went)

    with Cluster(3, partitions=2, registry=REGISTRY) as cluster:
        a = cluster.node("A")
        asyncio.run(main(halog.aio.Node(a)))
        cluster.kill("C")
        wait_until(lambda: a.node_states()["C"].state == "Down", "C is down")
        gc.collect()  # a coroutine that nobody awaited would be told here
    assert heard == []
