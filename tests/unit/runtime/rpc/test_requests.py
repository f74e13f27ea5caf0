"""Requests that once could not be answered: pages over a frame, a commit that never settles, forgotten outcomes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import halog
from halog import Node
from halog.backend import Work
from halog.errors import ConflictError, OutcomeUnknownError
from halog.runtime.node.node import Runtime
from halog.runtime.rpc import frames, pages
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster

REGISTRY = Registry()
CALL_MS = 60_000
SOON_S = 30.0
"""Before a call's deadline, on a busy machine, too."""


@managed(key="name", registry=REGISTRY)
class Blob:
    name: str
    data: bytes = b""

    def sizes(self, names: list[str]) -> int:
        """Of others, together."""
        return sum(len(halog.current().get(Blob, name).data) for name in names)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Megabytes are on their way: on a busy machine an answer takes its time."""
    made = Cluster(2, partitions=1, registry=REGISTRY)
    timing = replace(made.config.timing, call_deadline_ms=CALL_MS, append_deadline_ms=CALL_MS // 2)
    made.config = replace(made.config, timing=timing).validate()
    with made as cluster:
        yield cluster


def active(cluster: Cluster) -> Runtime:
    return cluster.node(cluster.active_for(Blob, "b")).runtime


@pytest.mark.feature("R5")
def test_an_extent_of_large_objects_comes_in_pages_that_fit_a_frame(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    for i in range(7):
        with client.transaction() as tx:
            tx.create(Blob(f"b{i}", bytes(600_000)))
    with client.transaction() as tx:
        assert [b.name for b in tx.extent(Blob)] == [f"b{i}" for i in range(7)]
    assert cluster.config.limits.max_frame_bytes > pages.PAGE_BYTES * 2
    assert [(len(p.items), p.end) for p in asked_for(client, 500)] == [(1, False)] * 6 + [(1, True)]


def asked_for(client: Any, limit: int) -> Iterator[frames.Objects]:
    """The pages of partition test-0, as its active node answers them."""
    after, end = b"", False
    while not end:
        request = frames.Scan("test-0", Blob.__halog__.family_id, after, limit, False)  # type: ignore[attr-defined]
        page = client.runtime.router.ask("test-0", request, 10, lambda: False)
        assert isinstance(page, frames.Objects)
        yield page
        end = page.end
        if page.items:
            assert page.items[-1] is not None
            after = page.items[-1].key


@pytest.mark.feature("R5", "O2")
def test_a_short_page_is_not_the_last_one(cluster: Cluster) -> None:
    """However few objects a page has: it says itself whether there are more, also where as many were wanted."""
    client = cluster.client()
    client.load(Blob(f"{i:04}", bytes(5_000)) for i in range(1_000))
    made = list(asked_for(client, 500))
    assert [p.end for p in made] == [False] * (len(made) - 1) + [True]
    assert len(made) > 5
    assert all(len(p.items) < 500 for p in made)
    assert [f.key for p in made for f in p.items if f] == sorted({f.key for p in made for f in p.items if f})
    assert sum(len(p.items) for p in made) == 1_000
    assert [(len(p.items), p.end) for p in asked_for(client, 1_000)] == [(len(p.items), p.end) for p in made]
    with client.transaction() as tx:
        assert sum(1 for _ in tx.extent(Blob)) == 1_000


@pytest.mark.feature("R5")
def test_a_page_ends_where_there_is_nothing_more(cluster: Cluster) -> None:
    client = cluster.client()
    assert [(p.items, p.end) for p in asked_for(client, 10)] == [([], True)]
    client.load(Blob(f"{i:04}") for i in range(20))
    assert [(len(p.items), p.end) for p in asked_for(client, 10)] == [(10, False), (10, True)]


@pytest.mark.feature("R5", "D1")
def test_many_large_objects_are_fetched_in_as_many_answers_as_it_takes(cluster: Cluster) -> None:
    """Their keys are asked for at once, and a frame does not take them all."""
    client: Any = cluster.client()
    client.load(Blob(f"{i:04}", bytes(400_000)) for i in range(60))
    info = Blob.__halog__  # type: ignore[attr-defined]
    keys = [info.index_key((f"{i:04}",)) for i in range(0, 120, 2)]
    whole = client.runtime.fetch("test-0", keys)
    assert [None if f is None else (f.key, len(f.value) > 400_000) for f in whole] == [
        (key, True) if i < 30 else None for i, key in enumerate(keys)
    ]
    brief = client.runtime.fetch("test-0", keys, brief=True)
    assert brief == [f and msgspec.structs.replace(f, value=b"") for f in whole]
    here = active(cluster).fetch("test-0", keys, brief=True)
    assert here == brief


@pytest.mark.feature("D1")
def test_a_load_passes_over_objects_that_exist_whatever_their_size(cluster: Cluster) -> None:
    client = cluster.client()
    client.load(Blob(f"{i:04}", bytes(40_000)) for i in range(500))
    again = client.load((Blob(f"{i:04}") for i in range(600)), duplicates="skip")
    assert (again.objects, again.duplicate_count) == (100, 500)
    with client.transaction() as tx:
        assert [len(b.data) for b in tx.extent(Blob)] == [40_000] * 500 + [0] * 100


@pytest.mark.feature("D1", "R8")
def test_a_load_never_makes_a_record_that_is_too_large_of_objects_that_are_not(cluster: Cluster) -> None:
    """A large one behind many small ones of the same partition goes into a transaction of its own."""
    client = cluster.client()
    sizes = [1_900] * 400 + [2_400_000] + [900_000, 2_400_000] * 3
    assert client.load(Blob(f"{i:04}", bytes(size)) for i, size in enumerate(sizes)).objects == len(sizes)


@pytest.mark.feature("R5", "D3")
def test_reads_whose_keys_exceed_a_frame_are_validated_all_the_same(cluster: Cluster) -> None:
    """Some hundred keys of 100 kB, read and checked together, and one that has changed is found among the last."""
    client, other = cluster.client(), cluster.client()
    names = ["x" * 100_000 + f"{i:04}" for i in range(200)]
    client.load(Blob(name) for name in names)
    with client.transaction() as tx:
        assert [tx.find(Blob, name) is not None for name in names] == [True] * 200
    with pytest.raises(ConflictError), client.transaction() as tx:
        assert [tx.find(Blob, name) is not None for name in names] == [True] * 200
        meanwhile = threading.Thread(target=change, args=(other, names[-1]))
        meanwhile.start()
        meanwhile.join(60)


def change(node: Node, name: str) -> None:
    with node.transaction() as tx:
        tx.get(Blob, name).data = b"new"


@pytest.mark.feature("R5")
def test_a_read_does_not_wait_for_a_commit_that_never_came_about(cluster: Cluster) -> None:
    """The conflict named a record in flight; then its epoch ended."""
    node, began = active(cluster), time.monotonic()
    assert node.fetch("test-0", [b"nothing"], settled=1_000) == [None]
    assert time.monotonic() - began < SOON_S


@pytest.mark.feature("R5")
def test_a_forgotten_outcome_is_told_at_once_from_everywhere(cluster: Cluster) -> None:
    node = active(cluster)
    node.copies["test-0"].core.state.outcomes.horizon = b"\xff" * 8
    client = cluster.client()
    assert isinstance(client, object)
    (other,) = {"A", "B"} - {node.name}
    for asked in (node, cluster.node(other).runtime):
        began = time.monotonic()
        with pytest.raises(OutcomeUnknownError) as told:
            asked.commit("test-0", bytes(16), Work((), ()))
        assert told.value.evidence["expired"]
        assert time.monotonic() - began < SOON_S


@pytest.mark.feature("R5", "D1")
def test_a_method_may_read_more_than_a_frame_takes(cluster: Cluster) -> None:
    """What it has read counts as read by the caller, who fetches what its answer had no room for."""
    client, other = cluster.client(), cluster.client()
    names = [f"{i:02}" for i in range(12)]
    client.load(Blob(name, bytes(2_000_000)) for name in names)
    client.load([Blob("all")])
    with client.transaction() as tx:
        assert tx.get(Blob, "all").sizes(names) == 24_000_000
        assert [len(tx.get(Blob, name).data) for name in names] == [2_000_000] * 12
        tx.get(Blob, "all").data = b"x"
    with pytest.raises(ConflictError), client.transaction() as tx:
        assert tx.get(Blob, "all").sizes(names) == 24_000_000
        meanwhile = threading.Thread(target=change, args=(other, names[-1]))
        meanwhile.start()
        meanwhile.join(60)
        tx.get(Blob, "all").data = b"y"
    with client.transaction() as tx:
        assert tx.get(Blob, "all").data == b"x"
