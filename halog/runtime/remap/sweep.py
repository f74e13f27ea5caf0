"""Records what became of objects that were to move, and runs the threads that move them (P4).

A policy says how many threads. Batches are begun in their order, and wait for nothing but a free thread; counts are
kept under a lock. It decides nothing about objects.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from halog.backend import CommittedObject
from halog.errors import HalogError

T = TypeVar("T")


class SweepResult:
    """Counts what became of objects that were to move. The first error is kept for the end, and holds up no other
    object. `versions`: what the last look saw, by index key, as far as known. Thread-safe."""

    def __init__(self, versions: Mapping[bytes, int]) -> None:
        self.moved = self.stayed = self.again = 0
        self.problem: HalogError | None = None
        self._versions = dict(versions)
        self._lock = threading.Lock()

    def saw(self, found: Iterable[CommittedObject]) -> None:
        """Note that these objects were looked at, and count those that changed since the look before."""
        with self._lock:
            for f in found:
                self.again += self._versions.get(f.key, f.version) != f.version
                self._versions[f.key] = f.version

    def took(self, count: int) -> None:
        """Count so many more objects as moved."""
        with self._lock:
            self.moved += count

    def failed(self, error: HalogError) -> None:
        """Note why an object stays; only the first reason is kept."""
        with self._lock:
            self.problem = self.problem or error


def side_by_side(work: Callable[[int, T], None], items: Sequence[T], threads: int) -> None:
    """Call `work(thread, item)` for each item, begun in their order by `threads` threads numbered from 0. If one call
    raises, no other item is begun, and the error is raised when the calls under way have ended."""
    left = deque(items)

    def one(number: int) -> None:
        while (item := _next(left)) is not None:
            try:
                work(number, item[0])
            except BaseException:
                left.clear()
                raise

    count = min(threads, len(items))
    if count < 2:
        one(0)
        return
    with ThreadPoolExecutor(count, thread_name_prefix="halog-move") as pool:
        for done in [pool.submit(one, number) for number in range(count)]:
            done.result()


def _next(left: deque[T]) -> tuple[T] | None:
    """Return the next item in a tuple; None if there is none, because another thread was quicker."""
    try:
        return (left.popleft(),)
    except IndexError:
        return None
