"""This module runs the log's delivery reports: on the thread that waits for one, if it can, else on a thread kept for
it.

Each hand-over between threads costs about 0.1 ms on an idle CPU, so a committing thread polls the session itself until
its own record is in the log. Only one thread polls at a time. When it has what it waited for and others still wait, the
kept thread goes on for them, so that many committers cost no more hand-overs than a single polling thread would. An
event loop with many commits takes its `turn` whenever it has run its tasks: then no other thread is needed at all. An
append that nobody waits for, and that is to go with the next one, is the kept thread's only if nobody has polled for it
a moment later. This module decides nothing.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from halog.ports import LogSession

logger = logging.getLogger("halog.host")

IDLE_S = 0.1
"""How often an idle session is polled: its errors come through its poll."""

SOON_S = 0.001
"""A client that has just been answered over several partitions has its next transaction under way by then, and its
thread polls for what was left, too. Another thread that polled meanwhile would have to hand those answers over."""

SLICE_S = 0.05
"""Longest wait in one poll: an answer that comes another way (the epoch ends) is noticed after that."""


class ReportDuty(enum.Enum):
    """Says who runs the delivery report of an append."""

    CALLER = "the thread that appends"
    KEPT = "the kept thread"
    LATER = "whoever polls next, or the kept thread soon"


class CopyAppends(Protocol):
    """This is what is asked of a copy: the tags of its last append, of the last append that somebody waits for, and of
    its last delivery report."""

    @property
    def session(self) -> LogSession | None: ...
    @property
    def appended(self) -> int: ...
    @property
    def awaited(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def take_reports(self) -> None: ...


class DeliveryReports:
    """Runs the delivery reports of one host.

    `session` returns the one in use now; `copies` returns those that may have appends under way. `push` sends what goes
    along with the appends to the replicas: as soon as the appends are with the log, before this waits for it. `failed`
    is called with a session that has failed: a caller of a later append should not have to find that out. `soon_s`,
    `idle_s`: see SOON_S and IDLE_S.
    """

    def __init__(
        self,
        session: Callable[[], LogSession],
        copies: Callable[[], Iterable[CopyAppends]],
        push: Callable[[], None] = lambda: None,
        failed: Callable[[LogSession, str], None] = lambda session, why: None,
        *,
        soon_s: float = SOON_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._soon_s = soon_s
        self._idle_s = idle_s
        self._session = session
        self._copies = copies
        self.push = push
        self._failed = failed
        self._polling = threading.Lock()
        self._wanted = threading.Event()
        self._due = math.inf
        """From when on the kept thread is wanted, by the monotonic clock. Without a lock: what two threads expect
        at once may be polled for as late as the later of them asked, which is 1 ms."""
        self._reported: deque[CopyAppends] = deque()
        self.followed = False
        """Somebody who got an answer will take a turn."""

    def expect(self, within_s: float = 0.0) -> None:
        """Note that an append is under way that nobody polls for; `within_s`: somebody may by then."""
        self._due = min(self._due, time.monotonic() + within_s if within_s else 0.0)
        self._wanted.set()

    def serve(self, copy: CopyAppends, tag: int, settled: Callable[[], bool], until: float) -> None:
        """Run reports until the append `tag` is reported or `settled()`; return at once if another thread polls. Never
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
        """Run what is reported by now; the kept thread runs the rest."""
        self.push()  # first: the thread that polls may be waiting for the log
        if not self._polling.acquire(blocking=False):
            self.expect()  # whoever polls may be about to leave it to us
            return
        try:
            self.followed = False
            self._poll(self._session(), 0)
        finally:
            self._polling.release()
            self._hand_on(followed=self.followed)

    def _poll(self, session: LogSession, timeout_s: float) -> None:
        self.push()
        session.poll(timeout_s)
        self.push()
        self.flush()
        if (why := session.failed) is not None:
            self._failed(session, why)

    def reported(self, copy: CopyAppends) -> None:
        """Note that a delivery report of this copy has come; `flush` hands over all that came in one poll."""
        self._reported.append(copy)

    def flush(self) -> None:
        """Give the copies their reports: after every poll, and after a session was abandoned."""
        while self._reported:
            try:
                copy = self._reported.popleft()
            except IndexError:  # two threads may flush: one polls, one abandons
                return
            copy.take_reports()

    def follow(self, copy: CopyAppends, tag: int, settled: Callable[[], bool], until: float) -> None:
        """Do as `serve` does. Without a tag there is nothing to poll for, or the replicas answer: they hear of it now,
        and the kept thread does the rest."""
        if tag:
            self.serve(copy, tag, settled, until)
        else:
            self.push()

    def _outstanding(self) -> bool:
        return any(c.delivered < c.appended for c in self._copies())

    def _hand_on(self, *, followed: bool = False) -> None:
        """Look, after letting go of the poll, for what is outstanding: a thread that appended meanwhile found the poll
        taken, and relies on this look. A thread that follows runs the reports that somebody waits for. It may not know
        of reports that nobody waits for: the kept thread runs those soon."""
        copies = [c for c in self._copies() if c.delivered < c.appended]
        if not followed and any(c.delivered < c.awaited for c in copies):
            self.expect()
        elif any(c.delivered >= c.awaited for c in copies):
            self.expect(self._soon_s)

    def run(self, closing: threading.Event) -> None:
        """Run the kept thread's loop."""
        while not closing.is_set():
            if not self._is_due():
                continue
            with self._polling:
                self.followed = False
                self._poll(self._session(), 0)
                while self._outstanding() and not self.followed and not closing.is_set():
                    self._poll(self._session(), SLICE_S)
            self._hand_on(followed=self.followed)

    def _is_due(self) -> bool:
        """Wait until the kept thread is wanted, or has been idle for long. False: look again. Another thread has polled
        for what is outstanding, or polls now and will hand it on."""
        self._wanted.wait(min(self._idle_s, max(0.0, self._due - time.monotonic())))
        self._wanted.clear()
        due = self._due
        if due in (0.0, math.inf):
            self._due = math.inf
            return True
        if time.monotonic() < due:
            return False
        self._due = math.inf
        return self._outstanding() and not self._polling.locked()
