"""Two sites whose snapshots are taken by hand or soon, and what tests ask of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from halog.adapters.memory import MemoryDisk
from halog.config import SnapshotConfig
from halog.core.log.chain import ChainState
from halog.ports import TopicPartition
from halog.runtime.host.snapshotter import MARKER, Snapshots, marked_position
from halog.runtime.replica.driver import Copy
from halog.runtime.topics.topic_names import state_topic
from halog.testing.cluster import Cluster
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.two import fly, level, west

__all__ = ["west"]

BY_HAND = SnapshotConfig(every_records=1_000_000, every_ms=1_000_000, keep_records=1)
SOON = SnapshotConfig(every_records=5, every_ms=200, keep_records=3)


def second_site(west: Cluster, snapshot: SnapshotConfig) -> Cluster:
    """Not started yet."""
    made = Cluster(2, partitions=3, registry=registry, site="east", home=west)
    made.config = replace(made.config, snapshot=snapshot)
    west.see(made)
    return made


@pytest.fixture
def east(west: Cluster) -> Iterator[Cluster]:
    """Takes snapshots by itself, and keeps little of its log."""
    with second_site(west, SOON) as cluster:
        yield cluster


@pytest.fixture
def calm(west: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The second site, where only the test takes snapshots; one thread does, as in a node."""
    monkeypatch.setattr(Snapshots, "tend", lambda self, copies: None)
    with second_site(west, BY_HAND) as cluster:
        yield cluster


def on(cluster: Cluster, node: str, partition: str = "test-0") -> tuple[Snapshots, Copy]:
    host = cluster.node(node).runtime.host
    assert host is not None
    return host.snapshots, host.copies[partition]


def begins(cluster: Cluster) -> dict[str, int]:
    """Where a site's logs begin."""
    taker, _ = on(cluster, cluster.names[0])
    return {name: taker.log.bounds(on(cluster, cluster.names[0], name)[1].tp)[0] for name in NAMES}


def topic(cluster: Cluster) -> dict[bytes, bytes | None]:
    """The state topic of one partition, as a restore would see it."""
    taker, copy = on(cluster, cluster.names[0])
    return dict(taker.log.read_keyed(TopicPartition(state_topic(cluster.config, "test"), copy.tp.partition)))


def marked(cluster: Cluster) -> tuple[int, ChainState]:
    """Of the same: the offset the marker goes on from, and what it says of the chain."""
    data = topic(cluster)[MARKER]
    position = None if data is None else marked_position(data)
    assert position is not None
    return position.next_offset, position.state


def trimmed(west: Cluster, east: Cluster, flown: int = 0) -> int:
    """Fly until all of the east's logs have been trimmed; how many have flown by then."""
    until = time.monotonic() + 20
    while min(begins(east).values()) == 0:
        assert time.monotonic() < until, begins(east)
        fly(west, *range(flown, flown + 10))
        flown += 10
        level(west, east)
    return flown


def lose(cluster: Cluster, name: str) -> None:
    """A node is killed, and comes back with an empty disk."""
    cluster.kill(name)
    cluster.disks[name] = MemoryDisk(name)
    cluster.restart(name)
    cluster.settle()


def newest(cluster: Cluster, partition: str) -> ChainState:
    """Of all its copies: a replica may be a moment behind."""
    found = [cluster.node(n).runtime.copies[partition].core.state.chain.state for n in cluster.running]
    return max(found, key=lambda state: state.lsn)


def same(west: Cluster, east: Cluster, name: str) -> None:
    """A node of the mirroring site has the history and the objects of the home."""
    level(west, east)
    assert stored(east, name) == stored(west, west.names[0])


def stored(cluster: Cluster, name: str) -> dict[str, list[tuple[bytes, int, bytes]]]:
    family = registry.info(Flight).family_id
    copies = cluster.node(name).runtime.copies
    return {n: [(f.key, f.version, f.value) for f in c.objects.scan(family)] for n, c in copies.items()}


def stopped_at(step: str, taker: Snapshots, patch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """The next snapshot is stopped behind its look at the store, before `step`; then `meanwhile` happens."""
    real, happened = getattr(taker, step), []

    def stopped(*args: Any) -> Any:
        if not happened:
            happened.append(True)
            meanwhile()
        return real(*args)

    patch.setattr(taker, step, stopped)
