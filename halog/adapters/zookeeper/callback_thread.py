"""This module has a thread that runs callbacks in order, so that a library's own threads are never held up by ours.

Urgent ones (session states) overtake the others. None is dropped before `close`; a callback that raises is logged.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("halog.dispatch")
Job = Callable[[], object]


class Dispatcher:
    """Runs jobs on one daemon thread; `put` from any thread, also from a callback."""

    def __init__(self, name: str) -> None:
        self._urgent: deque[Job] = deque()
        self._normal: deque[Job] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"halog-{name}", daemon=True)
        self._thread.start()

    def put(self, job: Job, *, urgent: bool = False) -> None:
        """Run `job` soon; nothing happens after `close`."""
        with self._ready:
            if not self._closed:
                (self._urgent if urgent else self._normal).append(job)
                self._ready.notify()

    def close(self) -> None:
        """Let what runs finish, and drop what waits."""
        with self._ready:
            self._closed = True
            self._urgent.clear()
            self._normal.clear()
            self._ready.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)  # a callback must not block; one that does must not hang a shutdown for ever

    def _next(self) -> Job | None:
        with self._ready:
            while not (self._urgent or self._normal or self._closed):
                self._ready.wait()
            if self._closed:
                return None
            return (self._urgent or self._normal).popleft()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                log.exception("a callback raised")
