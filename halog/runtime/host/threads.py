"""This module keeps the threads of a node: those that take turns until it closes, and a pool for what may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

logger = logging.getLogger("halog.host")

ERROR_PAUSE_S = 0.1
"""Between attempts at what is not to be had just now: a server that is back is found within this."""


class HostThreads:
    """A `HostThreads` starts the threads of a node, and waits for them at its end."""

    def __init__(self, closing: threading.Event) -> None:
        """`closing` is set when the node closes: no thread takes another turn."""
        self._closing = closing
        self._executor = ThreadPoolExecutor(8, thread_name_prefix="halog-work")
        self.ends: list[Callable[[], None]] = []
        """What is called once no thread runs."""
        self.started: list[threading.Thread] = []

    def spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Start a thread that `close` waits for."""
        thread = threading.Thread(target=work, name=f"halog-{name}", daemon=True)
        thread.start()
        self.started.append(thread)
        return thread

    def keep_on(self, name: str, turn: Callable[[], None], end: Callable[[], None] = lambda: None) -> None:
        """Take turns on a thread of their own until the node closes; `end` is called once no thread runs."""
        self.spawn(name, partial(self._forever, turn))
        self.ends.append(end)

    def run(self, work: Callable[[], None]) -> None:
        """Do something that may block on another thread."""
        if not self._closing.is_set():
            self._executor.submit(_logged, work)

    def close(self) -> None:
        """Wait for the threads, once the node is closing, and for the work that has begun."""
        for thread in self.started:
            thread.join(5)
        for end in self.ends:
            end()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _forever(self, turn: Callable[[], None]) -> None:
        """A thread must outlive whatever one turn of it meets: without it the node would live on, half dead."""
        while not self._closing.is_set():
            try:
                turn()
            except BaseException:  # whatever the application's code in it raises, too
                logger.exception("%s goes on after an error", threading.current_thread().name)
                self._closing.wait(ERROR_PAUSE_S)


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException:
        logger.exception("a background task failed")
