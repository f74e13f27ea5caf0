"""Threads that move objects: as many as asked for, in order, and all end with the first error (P4)."""

from __future__ import annotations

import threading
import time

import pytest

from halog.runtime.remap.sweep import side_by_side

pytestmark = pytest.mark.feature("P4", "P13")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_is_taken_once_by_so_many_at_a_time(threads: int) -> None:
    busy, most, done = set[int](), [0], list[int]()
    lock = threading.Lock()

    def work(thread: int, item: int) -> None:
        with lock:
            assert thread not in busy, "a number is one thread's at a time"
            busy.add(thread)
            most[0] = max(most[0], len(busy))
        time.sleep(0.005)
        with lock:
            busy.discard(thread)
            done.append(item)

    side_by_side(work, range(20), threads)
    assert sorted(done) == list(range(20))
    assert most == [threads]
    assert threads > 1 or done == sorted(done)


def test_one_thread_is_the_callers() -> None:
    seen = set[int]()
    side_by_side(lambda thread, item: seen.add(threading.get_ident()), range(3), 1)
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [ValueError, IndexError])
def test_an_error_ends_all_and_is_raised(threads: int, error: type[Exception]) -> None:
    """Also one that a thread may take for an empty queue."""
    begun: list[int] = []

    def work(thread: int, item: int) -> None:
        begun.append(item)
        if item == 2:
            raise error("two")
        time.sleep(0.02)

    with pytest.raises(error, match="two"):
        side_by_side(work, range(100), threads)
    assert len(begun) <= 2 + threads
