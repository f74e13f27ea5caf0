"""How a node reaches the active copy of a partition: its own, or by asking another node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from halog.core import events as ev
from halog.core.roles import INCOMPLETE
from halog.errors import ClosedError, LockedError
from halog.runtime import frames
from halog.runtime.copy import Copy
from halog.runtime.router import LocalError, Router

T = TypeVar("T")

LOCKED_S = 0.003
"""Pause before what a transaction in doubt held is asked for again: most are decided within."""


class Asker:
    """Shared by everything a node offers its application."""

    def __init__(
        self, name: str, router: Router, copies: Mapping[str, Copy], call_s: float, locked_s: float = 0.0
    ) -> None:
        self.name, self.router, self.copies, self.call_s = name, router, copies, call_s
        self.locked_s = locked_s
        """How long what a transaction in doubt holds is waited for: until it is decided, if all goes well."""
        self.closed = False

    def check_open(self) -> None:
        """ClosedError once the node is closed."""
        if self.closed:
            raise ClosedError(f"node {self.name} is closed")

    def serving(self, partition: str) -> Copy | None:
        """This node's copy, if it is active and the node is not offline (Q1): its copies hear of that one by one."""
        copy = self.copies.get(partition)
        return copy if copy is not None and copy.serving and not self.router.offline() else None

    def readable(self, partition: str) -> Copy | None:
        """This node's copy, active or not, if it shows what it has: it has read all that the log had when it came
        (back), it has no error, and the node is not offline (Q1, P11)."""
        copy = self.copies.get(partition)
        if copy is None or copy.error is not None or copy.core.role in INCOMPLETE or self.router.offline():
            return None
        return copy

    def ask(self, partition: str, frame: frames.Request, until: float | None = None) -> frames.Reply | None:
        """Ask the active node; None if that is this very node by now."""
        self.check_open()
        deadline = self.call_s if until is None else max(0.0, until - time.monotonic())
        try:
            return self.router.ask(partition, frame, deadline, lambda: self.serving(partition) is not None)
        except LocalError:
            return None

    def patiently(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, made again while it meets what a transaction in doubt holds."""
        until = 0.0
        while True:
            try:
                return attempt()
            except LockedError:
                until = until or time.monotonic() + self.locked_s
                if time.monotonic() >= until or self.closed:
                    raise
                time.sleep(LOCKED_S)

    def wait(self, begin: Callable[[Waiter], object]) -> ev.Result:
        """Begin something that is answered once, and wait for the answer."""
        waiter = Waiter()
        begin(waiter)
        return waiter.wait(self.call_s) or ev.Unknown("no answer in time")


class Waiter:
    """Waits on the calling thread for one result."""

    __slots__ = ("_lock", "result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.result: ev.Result | None = None

    def __call__(self, result: ev.Result) -> None:
        self.result = result
        self._lock.release()

    def settled(self) -> bool:
        """Has the result come?"""
        return self.result is not None

    def wait(self, timeout_s: float) -> ev.Result | None:
        """The result, or None if it did not come in time."""
        if self.result is None:
            self._lock.acquire(timeout=max(0.0, timeout_s))
        return self.result
