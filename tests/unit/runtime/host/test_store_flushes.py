"""A node's store goes to the disk by time and by count, and never for nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from halog.adapters.memory.store import MemoryStore
from halog.errors import StoreError
from halog.runtime.store.flusher import FlushedStore

pytestmark = pytest.mark.feature("R6")


class Watched(MemoryStore):
    """Remembers how many items each write had, and whether it was flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, bool]] = []
        self.fails = False

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        if self.fails:
            raise StoreError("the disk is gone")
        todo = list(items)
        super().write(todo, flush=flush)
        self.writes.append((len(todo), flush))

    @property
    def flushes(self) -> int:
        return sum(flush for _, flush in self.writes)


def some(n: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"%d" % i, b"x") for i in range(n)]


def turn(store: FlushedStore) -> threading.Thread:
    thread = threading.Thread(target=store.run)
    thread.start()
    return thread


def test_time_brings_what_was_written_to_the_disk() -> None:
    below = Watched()
    store = FlushedStore(below, 0.02, 1_000)
    store.write(some(3))
    assert below.flushes == 0
    store.run()
    assert below.writes == [(3, False), (0, True)]
    assert store.get(b"2") == b"x"


def test_nothing_written_is_nothing_flushed() -> None:
    below = Watched()
    store = FlushedStore(below, 0.001, 1_000)
    store.run()
    store.write(some(1), flush=True)
    store.run()
    assert below.writes == [(1, True)]


def test_a_flushed_write_does_not_speak_for_others() -> None:
    """What another copy wrote at the same moment may have come too late for it."""
    below = Watched()
    store = FlushedStore(below, 0.001, 1_000)
    store.write(some(2))
    store.write(some(1), flush=True)
    store.run()
    assert below.writes == [(2, False), (1, True), (0, True)]


def test_many_changes_do_not_wait_for_the_time() -> None:
    below = Watched()
    store = FlushedStore(below, 60.0, 10)
    waiting = turn(store)
    store.write(some(9))
    time.sleep(0.02)
    assert below.flushes == 0
    store.write(some(1))
    waiting.join(5)
    assert not waiting.is_alive()
    assert below.flushes == 1


def test_a_flush_that_failed_is_tried_again() -> None:
    below = Watched()
    store = FlushedStore(below, 0.001, 1_000)
    store.write(some(1))
    below.fails = True
    with pytest.raises(StoreError):
        store.run()
    below.fails = False
    store.run()
    assert below.flushes == 1


def test_whoever_closes_does_not_wait_for_the_time() -> None:
    store = FlushedStore(Watched(), 60.0, 10)
    waiting = turn(store)
    store.wake()
    waiting.join(5)
    assert not waiting.is_alive()
