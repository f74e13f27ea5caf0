"""A snapshot that is torn, or whose node dies at any step of it: what is there restores what was committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryDisk
from halog.errors import LogError, RefusedError
from halog.ports import TopicPartition
from halog.runtime.host.snapshotter import Policy, Snapshots, SnapshotSizes
from halog.runtime.node.paces import Paces
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("N4", "P10")

TAKEN = ["write", "write", "write", "write", "set", "write", "set", "trim"]
"""Two chunks of objects and outcomes, the ledger's rows and the marker; its znode; the old ledger's rows are deleted;
the log's new beginning is announced, and the log trimmed."""


class Killed(Exception):
    """By the test, in the middle."""


def taker_of(cluster: Cluster, partition: str) -> tuple[Snapshots, Copy]:
    host = cluster.node("A").runtime.host
    assert host is not None
    host.snapshots.policy = Policy(1 << 30, 1 << 30, 0)  # nothing by itself, and all that may be trimmed is
    return host.snapshots, host.copies[partition]


def keys(cluster: Cluster, partition: str) -> Iterator[str]:
    return (k for k in (f"c{i}" for i in range(999)) if cluster.partition_of(Counter, k) == partition)


class Story:
    """One node with two partitions. The first has a snapshot; what came since is in the log alone, and the log behind
    the snapshot is gone: an update, a create, a delete, and a transaction over both partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        names, others = keys(cluster, "test-0"), keys(cluster, "test-1")
        self.kept, self.changed, self.gone, self.new = (next(names) for _ in range(4))
        self.other = next(others)
        client = self.client = cluster.client()
        client.load([Counter(n, 1) for n in (self.kept, self.changed, self.gone, self.other)])
        self.over_both(2)
        taker, copy = taker_of(cluster, "test-0")
        taker.take(copy)
        assert taker.log.bounds(copy.tp)[0] > 0
        with client.transaction() as tx:
            tx.create(Counter(self.new, 5))
            tx.delete(tx.get(Counter, self.gone))
        self.over_both(6)

    def over_both(self, value: int) -> None:
        with self.client.transaction() as tx:
            for name in (self.changed, self.other):
                tx.get(Counter, name).value = value

    def check(self) -> None:
        """All that was committed is there."""
        with self.cluster.node("A").transaction() as tx:
            found = [tx.find(Counter, n) for n in (self.kept, self.changed, self.gone, self.new, self.other)]
            assert [c and c.value for c in found] == [1, 6, None, 5, 6]


@pytest.fixture
def story() -> Iterator[Story]:
    with Cluster(1, partitions=2, registry=REGISTRY, paces=Paces(snapshots=SnapshotSizes(chunk=2))) as cluster:
        yield Story(cluster)


class Watched:
    """A port whose writes are told of before each is made."""

    def __init__(self, port: Any, told: Callable[[str], None]) -> None:
        self._port = port
        self._told = told

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name == "transaction":
            return lambda *args: Watched(method(*args), self._told)
        if name not in ("write", "create", "set", "delete", "trim"):
            return method

        def call(*args: Any) -> Any:
            self._told(name)
            return method(*args)

        return call


def take(story: Story, told: Callable[[str], None]) -> None:
    taker, copy = taker_of(story.cluster, "test-0")
    taker.close()
    taker.log, taker.coordinator = Watched(taker.log, told), Watched(taker.coordinator, told)
    taker.take(copy)
    told("end")


def test_a_snapshot_is_these_writes(story: Story) -> None:
    made: list[str] = []
    take(story, made.append)
    assert made == [*TAKEN, "end"]


@pytest.mark.parametrize("disk", ["kept", "lost"])
@pytest.mark.parametrize("step", range(len(TAKEN) + 1))
def test_a_node_killed_behind_a_step_of_its_snapshot_starts_again_with_all_that_was_committed(
    story: Story, step: int, disk: str
) -> None:
    """From its store, or from the topic and the log alone; and the next snapshot is whole."""
    cluster, made = story.cluster, list[str]()

    def told(name: str) -> None:
        if len(made) == step:
            cluster.kill("A")
            raise Killed
        made.append(name)

    with pytest.raises(Killed):
        take(story, told)
    assert made == TAKEN[:step]
    restart(cluster, lost=disk == "lost")
    story.check()
    taker, copy = taker_of(cluster, "test-0")
    taker.take(copy)
    cluster.kill("A")
    restart(cluster, lost=True)
    story.check()


def restart(cluster: Cluster, *, lost: bool) -> None:
    if lost:
        cluster.disks["A"] = MemoryDisk("A")
    cluster.restart("A")
    cluster.settle()


# --- torn ---


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("lost", ["all", "one row"])
def test_what_the_state_topic_does_not_hold_though_it_was_committed_is_no_snapshot(
    story: Story, monkeypatch: pytest.MonkeyPatch, at: int, lost: str
) -> None:
    """A torn abort takes rows out of a transaction that was committed. That is said by name, the old snapshot stays the
    one that counts, nothing is trimmed, and the next turn writes it whole."""
    taker, copy = taker_of(story.cluster, "test-0")
    path, first = taker._path(copy), taker.log.bounds(copy.tp)[0]
    mark, real, writes = taker.coordinator.get(path), MemoryBroker.write, []

    def torn(self: MemoryBroker, tp: TopicPartition, items: list[Any], *, marker: bool = False) -> Any:
        if tp == taker.state_tp(copy):
            writes.append(items)
            if len(writes) == at + 1:
                items = [] if lost == "all" else items[1:]
        return real(self, tp, items, marker=marker)

    said = (RefusedError, "marker of test-0 was not") if at == 3 else (LogError, "test-0 does not hold what was commit")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBroker, "write", torn)
        with pytest.raises(said[0], match=said[1]):
            taker.take(copy)
    assert len(writes) == at + 1
    assert taker.coordinator.get(path) == mark
    assert taker.log.bounds(copy.tp)[0] == first
    story.cluster.kill("A")
    restart(story.cluster, lost=True)
    story.check()
    taker, copy = taker_of(story.cluster, "test-0")

    def trims() -> bool:
        taker.take(copy)
        return taker.log.bounds(copy.tp)[0] > first

    wait_until(trims, "the log is kept, though everybody has confirmed what was decided in it")
    story.cluster.kill("A")
    restart(story.cluster, lost=True)
    story.check()
