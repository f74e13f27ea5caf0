"""This module runs work of the application's, which may hang, and gives the caller what is done when the time is over.

A thread cannot be ended from outside. So a thread that hangs is left alone, and nothing that it still does is used.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def in_time(seconds: float, work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """Return the results of `work` for these items, one after the other: as many as come within `seconds`. The item
    that is under way then goes on, its result is dropped, and no other item is begun. An error of `work` is raised."""
    results, ended, over = list[T](), queue.SimpleQueue[BaseException | None](), threading.Event()

    def run() -> None:
        try:
            for item in items:
                if over.is_set():
                    return
                results.append(work(item))
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="halog-in-time", daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except queue.Empty:
        over.set()
        error = None
    if error is not None:
        raise error
    return results[:]
