"""The direct path in a running cluster: a sync commit is acknowledged by push, and as well without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from halog.core import events as ev
from halog.core.ids import EpochId
from halog.ports import Entry
from halog.runtime import frames
from halog.runtime.copy import Copy
from halog.runtime.host import Host
from halog.runtime.pushes import MAX_PUSH, Pushes
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
    lsn = replica.core.chain.state.lsn
    late: list[Sequence[Entry]] = []
    with monkeypatch.context() as held_back:
        held_back.setattr(replica, "read", late.append)
        create(node, "second")
        assert replica.core.chain.state.lsn <= lsn + 1
        assert replica.core.held.run
    for entries in late:
        replica.read(entries)
    assert not replica.core.held.run
    assert replica.wait_for(lsn + 1, 5)


@pytest.mark.feature("R1")
def test_a_sync_commit_returns_without_any_push(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    host, replica, node = hosts(cluster)
    monkeypatch.setattr(host._pushes, "_offer", lambda node, frame: None)
    create(node, "first")
    assert not replica.core.held.run
    assert replica.core.chain.state.lsn >= 2


def test_commits_that_leave_together_travel_in_one_frame_and_large_ones_in_several() -> None:
    sent: list[tuple[str, frames.Push]] = []

    def offer(node: str, data: bytes) -> None:
        frame = frames.decode_incoming(data)
        assert isinstance(frame, frames.Push)
        sent.append((node, frame))

    pushes, epoch = Pushes(offer), EpochId(1, "here", 0)
    for data in (b"one", b"two"):
        pushes.add("p", ev.Push(("B", "C"), epoch, data))
    pushes.flush()
    frame = frames.Push("p", epoch, [b"one", b"two"])
    assert sent == [("B", frame), ("C", frame)]
    sent.clear()
    for _ in range(3):
        pushes.add("p", ev.Push(("B",), epoch, bytes(MAX_PUSH)))
    pushes.flush()
    pushes.flush()
    assert [len(f.records) for _, f in sent] == [1, 1, 1]
