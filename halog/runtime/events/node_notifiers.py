"""This module calls an application's notifiers of remote nodes (N3), on threads that only they use.

A node that has something to be told of has a thread, for as long as there is something: so the calls for one node come
one after the other, and a notifier that hangs for one node holds up no other node. Whoever finds that there is
something to tell puts a name into a queue, and never waits.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

logger = logging.getLogger("halog.nodes")

AGAIN_S: Final = 1.0
"""Pause where the operating system gives no thread."""


@dataclass(frozen=True)
class NodeChange:
    """A `NodeChange` says that a remote node is in a state, as this process sees it (N3)."""

    node: str
    state: str
    """The state by name. For a notifier the one that follows once the notifiers have returned: Up, or Down,
    DuplicateLocation, DuplicateTimestamp, UnsupportedProtocol."""
    why: str
    time_ms: int
    """Since when: ms since 1970, by the clock of this process."""


NodeNotifier = Callable[[NodeChange], object]


class NotifierPair:
    """A `NotifierPair` is what one call of `on_node_change` installed. `told` are the nodes that it was told are
    up."""

    def __init__(self, available: NodeNotifier | None, unavailable: NodeNotifier | None) -> None:
        self.available = available
        self.unavailable = unavailable
        self.told: set[str] = set()


class NotifierThreads:
    """Calls what is due for nodes. `next_call(node)` returns the next call, which is under way from then on; None:
    there is none, and the thread ends."""

    def __init__(self, next_call: Callable[[str], Callable[[], object] | None]) -> None:
        self._next_call = next_call
        self._due: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._starter: threading.Thread | None = None
        self._callers: dict[str, threading.Thread] = {}

    def begin(self) -> None:
        """Start the thread that starts the others, unless it runs."""
        if self._starter is None:
            self._starter = threading.Thread(target=self._start, name="halog-node-notifiers", daemon=True)
            self._starter.start()

    def call(self, node: str) -> None:
        """Make a thread call what is due for this node, of which no thread takes care now."""
        self._due.put(node)

    def close(self, wait_s: float) -> None:
        """Start no thread any more. Wait so long for calls that are under way, but not for the caller's own."""
        self._due.put(None)
        until = time.monotonic() + wait_s
        for thread in [self._starter, *list(self._callers.values())]:
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    def _start(self) -> None:
        while (node := self._due.get()) is not None:
            caller = threading.Thread(target=partial(self._work, node), name=f"halog-notify-{node}", daemon=True)
            self._callers[node] = caller
            try:
                caller.start()
            except RuntimeError as error:
                del self._callers[node]
                logger.error("notifiers for node %s wait for a thread: %s", node, error)
                time.sleep(AGAIN_S)
                self._due.put(node)

    def _work(self, node: str) -> None:
        while (call := self._next_call(node)) is not None:
            call()
