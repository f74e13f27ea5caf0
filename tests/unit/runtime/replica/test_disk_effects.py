"""Copies that wait for the node's disk (R6): one flush at a time, shared by those that wait for one by then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import pytest

from halog.adapters.memory.store import MemoryStore
from halog.runtime.replica.disk_effects import Disk

pytestmark = pytest.mark.feature("R6")


class Slow(MemoryStore):
    """Each flush takes until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.flushes = 0
        self.fails: Exception | None = None

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        self.flushes += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=10)
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def store() -> Slow:
    return Slow()


@pytest.fixture
def disk(store: Slow) -> Iterator[Disk]:
    with closing(Disk(store)) as made:
        yield made
        store.may_end.release(100)


class Told:
    """What was told, and to whom, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Exception | None]] = []
        self.came = threading.Semaphore(0)

    def of(self, name: str) -> Callable[[Exception | None], None]:
        def told(failed: Exception | None) -> None:
            self.all.append((name, failed))
            self.came.release()
            if name == "bad":
                raise ValueError("this copy is broken")

        return told

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=10)


def test_those_that_come_during_a_flush_share_the_next_one(store: Slow, disk: Disk) -> None:
    told = Told()
    disk.flush(told.of("first"))
    assert store.begun.acquire(timeout=10)
    for name in ("second", "bad", "third"):
        disk.flush(told.of(name))
    assert told.all == [], "nobody is told before it is there"
    store.may_end.release()
    assert store.begun.acquire(timeout=10)
    told.wait(1)
    store.may_end.release()
    told.wait(3)
    assert [name for name, _ in told.all] == ["first", "second", "bad", "third"]
    assert store.flushes == 2


def test_a_flush_that_fails_is_told_to_all_that_waited_and_the_next_is_another(store: Slow, disk: Disk) -> None:
    told, store.fails = Told(), OSError("no space left")
    store.may_end.release(2)
    disk.flush(told.of("one"))
    told.wait(1)
    assert told.all == [("one", store.fails)]
    store.fails = None
    disk.flush(told.of("two"))
    told.wait(1)
    assert told.all[-1] == ("two", None)
