"""The direct path in a running cluster: a sync commit is acknowledged by push, and as well without."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from halog.core import effects as fx
from halog.core.ids import EpochId
from halog.errors import FrameError
from halog.ports import Entry
from halog.runtime.host.host import Host
from halog.runtime.host.push_batches import MAX_PUSH, Pushes
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Thing:
    name: str
    count: int = 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=REGISTRY) as cluster:
        yield cluster


def hosts(cluster: Cluster) -> tuple[Host, Copy, Node]:
    """The active's host, the sync replica's copy, and a transaction maker on the active."""
    name = cluster.active_for(Thing, "t")
    (other,) = {"A", "B"} - {name}
    host = cluster.node(name).runtime.host
    assert host is not None
    wait_until(lambda: cluster.tables()["test-0"].sync_set, "no sync replica")
    return host, cluster.node(other).runtime.copies["test-0"], cluster.node(name)


def create(node: Node, name: str) -> None:
    with node.transaction() as tx:
        tx.create(Thing(name))


@pytest.mark.feature("R1")
def test_a_sync_commit_returns_while_the_replica_has_it_by_push_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, replica, node = hosts(cluster)
    create(node, "first")
    lsn = replica.core.state.chain.state.lsn
    late: list[Sequence[Entry]] = []
    with monkeypatch.context() as held_back:
        held_back.setattr(replica, "read", late.append)
        create(node, "second")
        assert replica.core.state.chain.state.lsn <= lsn + 1
        assert replica.core.state.held.run
    for entries in late:
        replica.read(entries)
    wait_until(lambda: not replica.core.state.held.run, "the log did not bring it")
    assert replica.wait_for(lsn + 1, 5)


@pytest.mark.feature("R1")
def test_a_sync_commit_returns_without_any_push(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    host, replica, node = hosts(cluster)
    monkeypatch.setattr(host._pushes, "_offer", lambda node, frame: None)
    create(node, "first")
    assert not replica.core.state.held.run
    assert replica.core.state.chain.state.lsn >= 2


def test_commits_that_leave_together_travel_in_one_frame_and_large_ones_in_several() -> None:
    sent: list[tuple[str, frames.RecordPush]] = []

    def offer(node: str, data: bytes) -> None:
        frame = frames.decode_incoming(data)
        assert isinstance(frame, frames.RecordPush)
        sent.append((node, frame))

    pushes, epoch = Pushes(offer, 5_000_000), EpochId(1, "here", 0)
    for data in (b"one", b"two"):
        pushes.add("p", fx.Push(("B", "C"), epoch, data))
    pushes.flush()
    frame = frames.RecordPush("p", epoch, [b"one", b"two"])
    assert sent == [("B", frame), ("C", frame)]
    sent.clear()
    for _ in range(3):
        pushes.add("p", fx.Push(("B",), epoch, bytes(MAX_PUSH)))
    pushes.flush()
    pushes.flush()
    assert [len(f.records) for _, f in sent] == [1, 1, 1]


def test_a_frame_stays_below_what_the_channel_takes_however_small_that_is() -> None:
    """A channel takes frames of twice the largest record; a frame that does not pass would fail whoever polls."""
    sizes: list[int] = []
    pushes = Pushes(lambda node, data: sizes.append(len(data)), 4_000)
    for _ in range(50):
        pushes.add("p", fx.Push(("B",), EpochId(1, "here", 0), bytes(3_900)))
    pushes.flush()
    assert max(sizes) < 2 * 4_000


@pytest.mark.feature("R6")
def test_two_threads_that_send_at_once_keep_the_order() -> None:
    """Else a node would hold nothing of what came behind a hole."""
    heard: list[int] = []

    def offer(node: str, data: bytes) -> None:
        frame = frames.decode_incoming(data)
        assert isinstance(frame, frames.RecordPush)
        time.sleep(0.0005)  # the other thread's turn
        heard.extend(int.from_bytes(r[:4], "big") for r in frame.records)

    pushes, adding, numbers = Pushes(offer, 100), threading.Lock(), itertools.count()

    def commits() -> None:
        for _ in range(60):
            with adding:  # the partition's lock
                number = next(numbers)
                pushes.add("p", fx.Push(("B",), EpochId(1, "here", 0), number.to_bytes(4, "big") + bytes(40)))
            pushes.flush()

    threads = [threading.Thread(target=commits) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert heard == list(range(120))


@pytest.mark.feature("R5")
def test_what_goes_wrong_beside_a_commit_is_not_its_outcome(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record was appended already: only its own answer says what became of it."""
    host, _, node = hosts(cluster)
    left = [FrameError("too large")]

    def offer(to: str, data: bytes) -> None:
        if left:
            raise left.pop()

    monkeypatch.setattr(host._pushes, "_offer", offer)
    create(node, "first")
    assert not left
