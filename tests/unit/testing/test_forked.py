"""The test kit and its nodes in a child behind fork(): they are the parent's (X5, D1)."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import halog
from halog.backend import Invocation, Work
from halog.embedded import EmbeddedSite
from halog.errors import ForkedError, NodeError
from halog.runtime.rpc.pages import PAGE_OBJECTS
from halog.schema import managed
from halog.testing.cluster import Cluster
from halog.testing.nodes import MemoryNode
from halog.transactions import space
from halog.transactions.kept import TakenOutValues
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("X5")

CHILD_S = 10.0


@managed(key="name", registry=REGISTRY)
class Listed:
    name: str
    notes: list[str]


def in_child(work: Callable[[], object]) -> int:
    """The child's exit code; AssertionError if it hangs."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + CHILD_S
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


@pytest.mark.feature("D1")
def test_a_child_closes_nothing_of_its_parents_cluster() -> None:
    with Cluster(2, partitions=2, registry=REGISTRY) as cluster:
        client = cluster.client()
        with client.transaction():
            client.create(Counter("a"))
        assert in_child(cluster.close) == 0
        assert in_child(client.close) == 0
        assert in_child(lambda: cluster.node("A").runtime.close()) == 0
        with client.transaction():
            assert client.get(Counter, "a").add(1) == 1


HANDLES: dict[str, Callable[[Any], object]] = {
    "the partitions": lambda node: list(node.partitions),
    "one of them": lambda node: node.partitions["test-0"],
    "how many": lambda node: len(node.partitions),
    "a notifier": lambda node: node.partitions.notify(print),
    "a hand-over": lambda node: node.runtime.operators.hand_over("test-0", "B"),
    "a migration": lambda node: node.runtime.operators.migrate("test-0", ["A", "B"]),
    "a rebalance": lambda node: node.runtime.operators.rebalance("test"),
    "turned back": lambda node: node.runtime.operators.turn_back("test"),
    "moves": lambda node: node.runtime.operators.moves("test"),
    "who is up": lambda node: node.runtime.operators.up,
    "an outcome": lambda node: node.runtime.operators.outcome("test-0", bytes(16), 1),
}

REQUESTS: dict[str, Callable[[Any], object]] = {
    "a request": lambda node: node.backend.fetch("test-1", [b"key"]),
    "a scan": lambda node: list(node.backend.scan("test-1", b"")),
    "a method": lambda node: node.backend.invoke("test-1", Invocation(b"", b"", "", b"", Work((), ()))),
    "a commit": lambda node: node.backend.commit("test-1", bytes(16), Work((), ())),
    "one over two": lambda node: node.backend.commit_over(bytes(16), {}),
    "a barrier": lambda node: node.backend.barrier("test-1"),
}

OF_A_PARTITION: dict[str, Callable[[Any], object]] = {
    "state": lambda p: p.state,
    "status": lambda p: p.status,
    "active": lambda p: p.active,
    "node list": lambda p: p.node_list,
    "nodes": lambda p: p.nodes,
    "foreign": lambda p: p.foreign,
    "define": lambda p: p.define(("A", "B")),
    "enable": lambda p: p.enable(),
    "disable": lambda p: p.disable(),
    "replicate": lambda p: p.replicate(),
}


@pytest.mark.feature("D1")
@pytest.mark.parametrize("who", ["client", "A"])
def test_whatever_a_child_has_of_its_parents_node_is_refused(who: str) -> None:
    """Also what operators use, and what was taken up before."""
    with Cluster(2, partitions=2, registry=REGISTRY) as cluster:
        node: Any = cluster.client() if who == "client" else cluster.node(who)
        node.load([Counter(f"c{i}") for i in range(PAGE_OBJECTS * 3)])
        partition = node.partitions["test-0"]
        uses = {name: partial(use, node) for name, use in HANDLES.items()}
        uses |= {name: partial(use, partition) for name, use in OF_A_PARTITION.items()}
        uses |= {} if who == "A" else {name: partial(use, node) for name, use in REQUESTS.items()}
        with node.transaction() as tx:
            objects = tx.extent(Counter)
            next(objects)

            def child() -> None:
                for name, use in uses.items():
                    with pytest.raises(ForkedError):
                        use()
                        print(f"{name} went", file=sys.stderr)
                assert "of a parent process" in repr(partition)
                with pytest.raises(ForkedError):
                    list(objects)

            assert in_child(child) == 0
            tx.rollback()
        with node.transaction():
            assert node.get(Counter, "c1").add(1) == 1


@pytest.mark.feature("D1")
def test_a_childs_node_is_its_own() -> None:
    def child() -> None:
        with pytest.raises(ForkedError):
            node.transaction()
        with pytest.raises(NodeError, match="no node is open in this process"):
            add()
        with MemoryNode(registry=REGISTRY) as own:
            with own.transaction() as tx:
                tx.create(Counter("a"))
            assert add() == 1

    with MemoryNode(registry=REGISTRY) as node:

        @halog.transaction
        def add() -> int:
            return halog.current().get(Counter, "a").add(1)

        assert in_child(child) == 0


@pytest.mark.feature("D1")
def test_a_transaction_is_over_in_the_child_and_goes_on_in_its_parent() -> None:
    def child() -> None:
        assert tx.outcome == "rolled back"
        for verb in (lambda: tx.get(Counter, "b"), lambda: tx.create(Counter("c")), tx.commit):
            with pytest.raises(ForkedError, match="open a node after fork"):
                verb()
        with pytest.raises(ForkedError):
            tx.__exit__(None, None, None)

    with MemoryNode(registry=REGISTRY) as node:
        with node.transaction() as tx:
            tx.create(Counter("a"))
            assert in_child(child) == 0
        with node.transaction() as tx:
            assert tx.get(Counter, "a").value == 0
            tx.commit()
            assert in_child(lambda: tx.__exit__(None, None, None)) == 0, "it was over before"


@pytest.mark.feature("D1")
def test_a_child_waits_for_no_thread_of_its_parents() -> None:
    """Another thread was just ending a transaction when the process was forked."""

    def child() -> None:
        assert tx.outcome == "rolled back"
        node.ref(ended)

    with MemoryNode(registry=REGISTRY) as node:
        with node.transaction():
            ended = node.create(Listed("a", []))
        with node.transaction() as tx:
            notes = node.get(Listed, "a").notes
            with node.space.kept._lock:
                assert in_child(child) == 0
        assert notes == []


@pytest.mark.feature("D1")
def test_every_node_is_left_behind_also_where_another_thread_was_just_opening_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half_made, go_on = threading.Event(), threading.Event()
    real = TakenOutValues

    def kept(*args: Any) -> Any:
        half_made.set()
        assert go_on.wait(CHILD_S * 2)
        return real(*args)

    def child() -> None:
        assert all(node.forked for node in nodes)

    with ExitStack() as stack:
        nodes = [stack.enter_context(MemoryNode(registry=REGISTRY)) for _ in range(20)]
        monkeypatch.setattr(space, "TakenOutValues", kept)
        opening = threading.Thread(target=lambda: MemoryNode(registry=REGISTRY).close())
        opening.start()
        assert half_made.wait(CHILD_S)
        try:
            assert in_child(child) == 0
        finally:
            go_on.set()
            opening.join(CHILD_S)
        assert not any(node.forked for node in nodes)


@pytest.mark.feature("O3")
def test_a_child_stops_no_servers_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Site(EmbeddedSite):
        def down(self) -> None:
            asked.append("down")

    site = Site(tmp_path)
    monkeypatch.setattr("halog.embedded.datadir.is_locked", lambda path: True)

    def child() -> None:
        site.stop()
        site.__exit__(None, None, None)
        site.abandon()
        assert asked == []

    assert in_child(child) == 0
    site.stop()
    assert asked == ["down"]
