"""This module keeps a few threads for requests that wait.

They are daemons. Threads of `concurrent.futures` end with the main thread, but an application may go on in other
threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from halog.errors import ClosedError

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]


class Workers:
    """Runs jobs on at most `most` threads, which are made when they are needed, and kept."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._busy = 0
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` soon. Raises ClosedError after `close`."""
        job: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise ClosedError("the node is closed")
            self._busy += 1
            more = self._busy > self._threads and self._threads < self._most
            self._threads += more
        self._jobs.put((job, work))
        if more:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return job

    def close(self) -> None:
        """Take no more jobs. What was submitted is still done, but nobody waits for it."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            with self._lock:
                self._busy -= 1
