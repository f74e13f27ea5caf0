"""Snapshots that meet failovers: what a restore finds is never older than what the marker says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from halog.errors import RefusedError
from halog.runtime import snapshots
from halog.runtime.copy import Copy
from halog.runtime.snapshots import Snapshots
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Counter:
    name: str
    value: int = 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def on(cluster: Cluster, name: str) -> tuple[Snapshots, Copy]:
    host = cluster.node(name).runtime.host
    assert host is not None
    return host.snapshots, host.copies["test-0"]


def put(cluster: Cluster, value: int) -> None:
    with cluster.client().transaction() as tx:
        tx.get(Counter, "c").value = value


def state(cluster: Cluster, name: str) -> dict[bytes, bytes | None]:
    """The state topic as a restore would see it."""
    taker, copy = on(cluster, name)
    return {key: value for key, value, _ in taker.log.read_keyed(taker._tp(copy))}


@pytest.mark.feature("N4", "R1")
@pytest.mark.parametrize("step", ["_writer", "_changes", "_mark"])
def test_a_deposed_node_that_does_not_know_it_writes_nothing_old_over_a_newer_snapshot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is stopped behind its look at the store, before `step`; another node takes over, and takes a snapshot."""
    old = cluster.active_for(Counter, "c")
    (new,) = {"A", "B"} - {old}
    put(cluster, 1)
    taker, copy = on(cluster, old)
    real = getattr(taker, step)
    after: list[dict[bytes, bytes | None]] = []

    def stopped(*args: Any) -> Any:
        if not after:
            cluster.node(old).runtime.operators.hand_over("test-0", new)
            put(cluster, 2)
            Snapshots.take(*on(cluster, new))
            after.append(state(cluster, new))
        return real(*args)

    monkeypatch.setattr(taker, step, stopped)
    with pytest.raises(RefusedError):
        taker.take(copy)
    assert state(cluster, old) == after[0]


@pytest.mark.feature("N4")
def test_outcomes_too_old_to_be_asked_for_leave_the_topic_whole(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "KEEP", 10)
    monkeypatch.setattr(snapshots, "BLOCK", 2)
    name = cluster.active_for(Counter, "c")
    for turn in range(4):
        for i in range(15):
            put(cluster, 100 * turn + i)
        Snapshots.take(*on(cluster, name))
    lsn = on(cluster, name)[1].core.chain.state.lsn
    blocks = [int.from_bytes(k[1:], "big") for k, v in state(cluster, name).items() if k[:1] == b"t" and v]
    assert min(blocks) == (lsn - 10) // 2
    assert sorted(blocks) == list(range(min(blocks), lsn // 2 + 1))


@pytest.mark.feature("N4")
def test_a_deleted_object_leaves_nothing_in_the_state_topic(cluster: Cluster) -> None:
    name = cluster.active_for(Counter, "c")
    Snapshots.take(*on(cluster, name))
    with cluster.client().transaction() as tx:
        tx.delete(tx.get(Counter, "c"))
    Snapshots.take(*on(cluster, name))
    assert [v for k, v in state(cluster, name).items() if k[:1] == b"o"] == [None]
