"""Requests that once could not be answered: pages over a frame, a commit that never settles, forgotten outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from halog.backend import Work
from halog.errors import OutcomeUnknownError
from halog.runtime.node import Runtime
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Blob:
    name: str
    data: bytes = b""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=REGISTRY) as cluster:
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
    from halog.runtime import service

    assert [len(p) for p in _pages(active(cluster))] == [2, 2, 2, 1]
    assert cluster.config.limits.max_frame_bytes > service.PAGE_BYTES * 2


def _pages(node: Runtime) -> Iterator[list[object]]:
    from halog.runtime.service import _page

    objects = node.copies["test-0"].objects
    after = b""
    while page := _page(objects.scan(b"", after), 500):
        yield list(page)
        assert page[-1] is not None
        after = page[-1].key


@pytest.mark.feature("R5")
def test_a_read_does_not_wait_for_a_commit_that_never_came_about(cluster: Cluster) -> None:
    """The conflict named a record in flight; then its epoch ended."""
    node, began = active(cluster), time.monotonic()
    assert node.fetch("test-0", [b"nothing"], settled=1_000) == [None]
    assert time.monotonic() - began < 8


@pytest.mark.feature("R5")
def test_a_forgotten_outcome_is_told_at_once_from_everywhere(cluster: Cluster) -> None:
    node = active(cluster)
    node.copies["test-0"].core.outcomes.horizon = b"\xff" * 8
    client = cluster.client()
    assert isinstance(client, object)
    (other,) = {"A", "B"} - {node.name}
    for asked in (node, cluster.node(other).runtime):
        began = time.monotonic()
        with pytest.raises(OutcomeUnknownError) as told:
            asked.commit("test-0", bytes(16), Work((), ()))
        assert told.value.evidence["expired"]
        assert time.monotonic() - began < 8
