"""Who runs the log's delivery reports: the thread that waits for one, if it can, else a thread kept for it.

Each hand-over between threads costs about 0.1 ms on an idle CPU, so a committing thread polls the session itself until
its own record is in the log. Only one thread polls at a time; when it has what it waited for and others still wait, the
kept thread goes on for them, so that many committers cost no more hand-overs than a single polling thread would.
An event loop with many commits takes its `turn` whenever it has run its tasks: then no other thread is needed at all.
This module decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from halog.ports import LogSession

logger = logging.getLogger("halog.host")

IDLE_S = 0.1
"""How often an idle session is looked after: its errors come through its poll."""

SLICE_S = 0.05
"""Longest wait in one poll: an answer that comes another way (the epoch ends) is noticed after that."""


class Waiting(Protocol):
    """What is asked of a copy: the tags of its last append and of its last delivery report."""

    session: LogSession | None
    appended: int
    delivered: int

    def take_reports(self) -> None: ...


class Deliveries:
    """One per host. `session` is the one in use now; `copies` may have appends under way. `push` sends what goes along
    with them to the replicas: as soon as the appends are with the log, before this waits for it."""

    def __init__(
        self,
        session: Callable[[], LogSession],
        copies: Callable[[], Iterable[Waiting]],
        push: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._copies, self.push = session, copies, push
        self._polling = threading.Lock()
        self._wanted = threading.Event()
        self._reported: deque[Waiting] = deque()
        self.followed = False
        """Somebody who got an answer will take a turn himself."""

    def expect(self) -> None:
        """An append is under way that nobody polls for."""
        self._wanted.set()

    def serve(self, copy: Waiting, tag: int, settled: Callable[[], bool], until: float) -> None:
        """Poll until the append `tag` is reported or `settled()`; returns at once if another thread polls. Never
        raises: what goes wrong here says nothing of the caller's commit, which may be in the log."""
        if not self._polling.acquire(blocking=False):
            return
        try:
            session = copy.session
            while session is not None and copy.delivered < tag and not settled():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._poll(session, min(SLICE_S, left))
        except Exception:
            logger.exception("deliveries go on after an error")
        finally:
            self._polling.release()
        self._hand_on()

    def turn(self) -> None:
        """Run what is reported by now; what is not is the kept thread's."""
        self.push()  # first: who polls may be waiting for the log
        if not self._polling.acquire(blocking=False):
            self._wanted.set()  # whoever polls may be about to leave it to us
            return
        try:
            self.followed = False
            self._poll(self._session(), 0)
        finally:
            self._polling.release()
            if not self.followed:
                self._hand_on()

    def _poll(self, session: LogSession, timeout_s: float) -> None:
        self.push()
        session.poll(timeout_s)
        self.push()
        self.flush()

    def reported(self, copy: Waiting) -> None:
        """A delivery report of this copy has come; `flush` hands over all that came in one poll."""
        self._reported.append(copy)

    def flush(self) -> None:
        """Give the copies their reports: after every poll, and after a session was abandoned."""
        while self._reported:
            try:
                copy = self._reported.popleft()
            except IndexError:  # two threads may flush: one polls, one abandons
                return
            copy.take_reports()

    def follow(self, copy: Waiting, tag: int, settled: Callable[[], bool], until: float) -> None:
        """The same; without a tag there is nothing to poll for, or the replicas answer it: they hear of it now, the
        kept thread does the rest."""
        if tag:
            self.serve(copy, tag, settled, until)
        else:
            self.push()

    def _outstanding(self) -> bool:
        return any(c.delivered < c.appended for c in self._copies())

    def _hand_on(self) -> None:
        """After letting go: whoever appended meanwhile found the poll taken, and relies on this look."""
        if self._outstanding():
            self._wanted.set()

    def run(self, closing: threading.Event) -> None:
        """The kept thread's loop."""
        while not closing.is_set():
            self._wanted.wait(IDLE_S)
            self._wanted.clear()
            with self._polling:
                self.followed = False
                self._poll(self._session(), 0)
                while self._outstanding() and not self.followed and not closing.is_set():
                    self._poll(self._session(), SLICE_S)
            if not self.followed:
                self._hand_on()
