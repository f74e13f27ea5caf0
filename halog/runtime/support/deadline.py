"""Work of the application's that somebody waits for, and may hang: whoever waits has what is done when time is over.

A thread cannot be ended from outside. So one that hangs is left alone, and nothing that it still does is heard.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def in_time(seconds: float, work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """Its results for these, one after the other: as many as come in time. What it is at then goes on, nobody hears of
    it, and it is given no other one."""
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
