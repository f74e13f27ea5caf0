"""What became of objects that were to move, and the threads that move them: as many as their policy says (P4).

The theory: batches are begun in their order, and wait for nothing but a free thread; who counts, counts under a lock.
Decides nothing of objects.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from halog.backend import Found
from halog.errors import HalogError

T = TypeVar("T")


class Swept:
    """What became of objects that were to move. The first that cannot is told at the end; it holds up no other.
    `versions`: by index key, those of the last look, as far as known. Thread-safe."""

    def __init__(self, versions: Mapping[bytes, int]) -> None:
        self.moved = self.stayed = self.again = 0
        self.problem: HalogError | None = None
        self._versions = dict(versions)
        self._lock = threading.Lock()

    def saw(self, found: Iterable[Found]) -> None:
        """They were looked at: how many are others than at the look before?"""
        with self._lock:
            for f in found:
                self.again += self._versions.get(f.key, f.version) != f.version
                self._versions[f.key] = f.version

    def took(self, count: int) -> None:
        """So many more have moved."""
        with self._lock:
            self.moved += count

    def failed(self, error: HalogError) -> None:
        """Some object stays, and why."""
        with self._lock:
            self.problem = self.problem or error


def side_by_side(work: Callable[[int, T], None], items: Sequence[T], threads: int) -> None:
    """`work(thread, item)` for each item, begun in their order by `threads` numbered from 0. What one raises ends all:
    no other item is begun, and it is raised when those under way have ended."""
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
    """None: another thread was quicker."""
    try:
        return (left.popleft(),)
    except IndexError:
        return None
