"""Objects that could not be changed at their size are refused, whichever way they come; those of before can be got rid
of (R8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import halog
from halog.core.commit import size_limits as sizes
from halog.errors import RecordTooLargeError
from halog.schema import Registry
from halog.testing.cluster import Cluster
from halog.transactions.node import Node
from tests.unit.runtime.keys import remapped

pytestmark = pytest.mark.feature("R8")

REGISTRY = Registry()
LIMIT = 100_000
"""Of a record."""
MOST = 48_900
"""Of an object, where before-images are kept, about; and nearly twice that where they are not."""
OLD = 99_000
"""Of an object of before there was such a limit."""


@halog.managed(key=("book", "name"), partition_by="book", registry=REGISTRY)
class Page:
    book: str
    name: str
    text: bytes = b""
    n: int = 0

    def put(self, size: int) -> int:
        self.text = bytes(size)
        return size

    def touch(self) -> int:
        self.n += 1
        return self.n

    def beside(self, name: str, size: int) -> None:
        halog.current().create(Page(self.book, name, bytes(size)))


def made(keeps: bool, **more: Any) -> Cluster:
    cluster = Cluster(2, partitions=2, registry=REGISTRY)
    limits = replace(cluster.config.limits, max_record_bytes=LIMIT)
    policy = replace(cluster.config.policies["test"], before_images=keeps, **more)
    cluster.config = replace(cluster.config, limits=limits, policies={"test": policy}).validate()
    return cluster


@pytest.fixture(params=["consistent_hash", "round_robin"])
def mapper(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[True, False])
def keeps(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def cluster(keeps: bool, mapper: str) -> Iterator[Cluster]:
    with made(keeps, mapper=mapper) as cluster:
        yield cluster


def within(node: Node, work: Callable[[], object]) -> None:
    """In a transaction; again while one before it, over several partitions and refused, has not told all of them."""
    node.transactional()(work)()


def ways(node: Node, name: str, size: int) -> Sequence[Callable[[], object]]:
    """All that make an object of this size; an object "small" exists."""

    def change() -> None:
        node.get(Page, "b", "small").text = bytes(size)

    return (
        lambda: within(node, lambda: node.create(Page("b", name, bytes(size)))),
        lambda: node.load([Page("b", "one"), Page("b", name, bytes(size)), Page("b", "two")], duplicates="skip"),
        lambda: within(node, change),
        lambda: within(node, lambda: node.get(Page, "b", "small").put(size)),
        lambda: within(node, lambda: node.get(Page, "b", "small").beside(name, size)),
    )


def test_what_could_not_be_changed_is_refused_by_name_whichever_way_it_comes(cluster: Cluster, keeps: bool) -> None:
    most = MOST if keeps else 2 * MOST - 1_000
    for node in (cluster.client(), cluster.node("A")):
        with node.transaction():
            if node.find(Page, "b", "small") is None:
                node.create(Page("b", "small"))
        for work in ways(node, "big", most + 2_000):
            with pytest.raises(RecordTooLargeError) as refused:
                work()
            (named,) = {"big", "small"} & set(str(refused.value).split("'"))
            evidence = refused.value.evidence
            assert f"Page 'b', '{named}' would have {evidence['size']:,} bytes" in str(refused.value)
            assert evidence["object"] == f"Page 'b', '{named}'"
            assert most + 2_000 <= evidence["size"] <= most + 2_020
            assert most <= evidence["limit"] < most + 2_000
            assert f"the limit is {evidence['limit']:,}" in str(refused.value)
        with node.transaction():
            assert node.find(Page, "b", "big") is None
            assert node.get(Page, "b", "small").text == b""


def test_whatever_may_be_created_may_be_changed_at_its_size_and_deleted(cluster: Cluster, keeps: bool) -> None:
    most = MOST - 1_000 if keeps else 2 * MOST - 2_000
    node = cluster.client()
    within(node, lambda: node.create(Page("b", "small")))
    for i, work in enumerate(ways(node, "big", most)):
        work()
        name = "small" if i in (2, 3) else "big"
        within(node, lambda name=name: node.get(Page, "b", name).touch())  # type: ignore[misc]
        within(node, lambda name=name: node.get(Page, "b", name).put(most))  # type: ignore[misc]
        with node.transaction():
            assert (len(node.get(Page, "b", name).text), node.get(Page, "b", name).n) == (most, 1)
            node.delete(node.get(Page, "b", name))
        if name == "small" or i == 3:
            within(node, lambda: node.create(Page("b", "small")))


def test_objects_of_before_can_be_read_made_smaller_and_deleted(
    cluster: Cluster, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.client()
    size = OLD if keeps else LIMIT - 300
    with monkeypatch.context() as before:
        before.setattr(sizes, "too_large", lambda *_: None)
        for name in ("a", "b", "c"):
            within(node, lambda name=name: node.create(Page("b", name, bytes(size))))  # type: ignore[misc]
    with node.transaction() as tx:
        assert [len(p.text) for p in tx.extent(Page)] == [size] * 3
        assert len(tx.get(Page, "b", "a").text) == size
    with pytest.raises(RecordTooLargeError, match="Page 'b', 'a' would have "), node.transaction():
        node.get(Page, "b", "a").n = 1
    with pytest.raises(RecordTooLargeError, match="Page 'b', 'a' would have "), node.transaction():
        node.get(Page, "b", "a").touch()
    within(node, lambda: node.get(Page, "b", "a").put(10))
    within(node, lambda: node.get(Page, "b", "a").touch())
    for name in ("a", "b", "c"):
        within(node, lambda name=name: node.delete(node.get(Page, "b", name)))  # type: ignore[misc]
    with node.transaction() as tx:
        assert list(tx.extent(Page)) == []


@pytest.mark.feature("P13")
def test_objects_of_before_move_to_other_partitions(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the mapping does not stop at them."""
    monkeypatch.setattr(remapped, "TYPES", REGISTRY)
    with made(keeps) as cluster:
        node = cluster.client()
        size = OLD if keeps else LIMIT - 300
        with monkeypatch.context() as before:
            before.setattr(sizes, "too_large", lambda *_: None)
            for i in range(12):
                within(node, lambda i=i: node.create(Page(f"{i}", "p", bytes(size))))  # type: ignore[misc]
        was = remapped.where(cluster)
        remapped.begin(cluster, partitions=4)
        remapped.wait_done(cluster, 1, 40)
        now = remapped.where(cluster)
        assert now.keys() == was.keys()
        assert sum(now[key] != was[key] for key in now) > 2
        remapped.check(cluster, cluster.config)
        with node.transaction() as tx:
            assert [len(p.text) for p in tx.extent(Page)] == [size] * 12


@pytest.mark.feature("R8")
def test_a_transaction_over_partitions_that_reads_too_much_is_told_so() -> None:
    """Its records have the keys of what it has read; no object of it is large."""
    with made(True) as cluster:
        client = cluster.client()
        books = {cluster.partition_of(Page, book, ""): book for book in "abcdefgh"}
        assert len(books) == 2
        with pytest.raises(RecordTooLargeError) as told, client.transaction() as tx:
            for book in books.values():
                for n in range(600):
                    assert tx.find(Page, book, f"{n:0200}") is None
                tx.create(Page(book, "one"))
        assert "most of it are the keys of 600 objects that were read (" in str(told.value)
        assert (told.value.evidence["read"], told.value.evidence["limit"]) == (600, LIMIT)
        with client.transaction() as tx:
            assert not any(tx.find(Page, book, "one") for book in books.values())
        with client.transaction() as tx:  # in one partition nobody writes down what was read
            for n in range(600):
                assert tx.find(Page, "a", f"{n:0200}") is None
            tx.create(Page("a", "one"))
