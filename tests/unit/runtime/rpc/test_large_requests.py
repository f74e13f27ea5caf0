"""What is sent whole and fits no frame is refused by name: how large it is, what it is of, and that nothing happened
(R5, R8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import halog
from halog.errors import RecordTooLargeError
from halog.schema import Registry
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("R5", "R8")

REGISTRY = Registry()
FRAME = 60_000
MANY = 400
"""Objects whose keys and versions take more than a frame has, if a transaction has read them all."""


@halog.managed(key=("book", "name"), partition_by="book", registry=REGISTRY)
class Page:
    book: str
    name: str
    n: int = 0

    def text(self, size: int) -> str:
        self.n += 1
        return "x" * size

    def take(self, text: str) -> int:
        self.n += 1
        return len(text)

    def read_all(self) -> int:
        return sum(1 for page in halog.current().extent(Page) if page.book == self.book)

    def fail(self, size: int) -> None:
        error = ValueError("it has much to say")
        error.what = ["x" * 1_000] * (size // 1_000)  # type: ignore[attr-defined]
        raise error


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(2, partitions=1, registry=REGISTRY)
    limits = replace(made.config.limits, max_record_bytes=FRAME // 2, max_frame_bytes=FRAME)
    policy = replace(made.config.policies["test"], before_images=False)
    made.config = replace(made.config, limits=limits, policies={"test": policy}).validate()
    with made:
        made.start()
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Any:
    client: Any = cluster.client()
    client.load([Page("b", f"{i:0200}") for i in range(MANY)])
    client.load([Page("b", "one")])
    return client


def refused(told: pytest.ExceptionInfo[RecordTooLargeError], *parts: str) -> None:
    error = told.value
    assert error.happened is False
    assert error.evidence["size"] > error.evidence["limit"] == FRAME
    for part in ("nothing was changed", "60,000 (limits.max_frame_bytes)", f"{error.evidence['size']:,} bytes", *parts):
        assert part in error.message


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda page: page.text(2 * FRAME), "answer of method Page.text, called in partition test-0"),
        (lambda page: page.take("x" * 2 * FRAME), "call of method Page.take in partition test-0"),
        (lambda page: page.read_all(), "answer of method Page.read_all"),
    ],
    ids=["result", "arguments", "what it has read"],
)
def test_a_call(client: Any, call: Any, what: str) -> None:
    with client.transaction() as tx:
        page = tx.get(Page, "b", "one")
        with pytest.raises(RecordTooLargeError) as told:
            call(page)
        assert page.n == 0
        assert page.text(3) == "xxx", "the transaction goes on"
    refused(told, what)
    assert told.value.evidence["method"] in what
    assert told.value.evidence["partition"] == "test-0"


def test_a_call_of_a_transaction_that_has_read_too_much(client: Any) -> None:
    with client.transaction() as tx:
        pages = {page.name: page for page in tx.extent(Page)}
        with pytest.raises(RecordTooLargeError) as told:
            pages["one"].text(3)
    refused(told, "call of method Page.text", "has read 401 objects there")


def test_a_commit_of_a_transaction_that_has_read_too_much(client: Any) -> None:
    with pytest.raises(RecordTooLargeError) as told, client.transaction() as tx:
        for page in tx.extent(Page):
            if page.name == "one":
                page.n = 1
    refused(told, "the commit in partition test-0", "has read 400 objects there", "changed 1", "split the transaction")
    assert tx.outcome == "rolled back"
    with client.transaction() as tx:
        assert tx.get(Page, "b", "one").n == 0


def test_an_exception_that_says_too_much_is_cut(client: Any) -> None:
    with client.transaction() as tx:
        page = tx.get(Page, "b", "one")
        with pytest.raises(ValueError, match="it has much to say") as told:
            page.fail(20_000_000)
        tx.rollback()
    assert str(told.value.what).startswith("['xxx")  # type: ignore[attr-defined]
