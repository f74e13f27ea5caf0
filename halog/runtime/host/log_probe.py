"""Does the log answer? What copies ask of it before they claim an epoch (`halog.core.election.log_doubt`), and active
ones to know its time (`halog.core.commit.log_clock`), asked on threads of their own, again and again until it does.

An answer is the end of that very partition's log, told by its leader, once there is a producer session to append with:
whoever claims then waits for nothing. Operators are told once, by each node, since when the log is away, and once that
it is back, whatever the number of its partitions: one that takes its time for each answer is not back with each of
them. This module decides nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from halog.core import effects as fx, events as ev
from halog.events import LOG_AWAY, LOG_BACK, Kind
from halog.ports import TopicPartition
from halog.runtime.support.clock import monotonic_ms, wall_ahead_ms

logger = logging.getLogger("halog.log")

ASKERS = 2
"""Threads that ask."""

FIRST_S, ASK_S = 0.2, 1.0
"""One attempt, the first and any other. What is asked while a broker stands still is answered as soon as it goes on;
but where a hundred partitions have one that is away, whoever has another one is not to wait for all of them."""

PAUSE_S = 0.1
"""Between attempts that fail at once: a broker that is back is found within this."""

WAIT_S = 0.1
"""One wait for something to ask."""

SESSION_S = 0.002
"""Between looks whether the session is there."""

TOLD_MS = 1_000
"""A log that says nothing for so long after it was asked is away."""

PROMPT_MS = 500
"""One that was away is back when it answers within this. Where it takes longer it is asked until it does,"""

CALM_MS = 10_000
"""or until so long no question has gone unanswered."""


class AskedCopy(Protocol):
    """This is what is asked of a copy."""

    name: str
    tp: TopicPartition

    def post(self, event: ev.Event) -> None: ...


class _Question:
    __slots__ = ("asked_ms", "copy", "round", "serves", "since_ms", "tried")

    def __init__(self, copy: AskedCopy, e: fx.AskLog, now_ms: int) -> None:
        self.copy = copy
        self.round = e.round
        self.since_ms = e.since_ms
        self.asked_ms = now_ms
        self.tried = 0
        self.serves = e.serves

    def rank(self, after_doubt: bool) -> tuple[int, int]:
        """The lowest is asked first: a doubt that was never asked, since an epoch waits for it; then one that serves
        and one that doubts, by turns: neither may hold up the other, however many they are."""
        if not self.serves and not self.tried:
            return 0, 0
        return (1 if self.serves == after_doubt else 2), self.tried


class LogQuestions:
    """`LogQuestions` asks the log for one node. `end(tp, timeout_s)` asks the log; `ready()` says whether there is a
    session to append with; `tell(kind, cause, more)` tells the history. `clock` counts ms, as the copies' driver does;
    `pause_s`, `wait_s`: see PAUSE_S and WAIT_S."""

    def __init__(
        self,
        end: Callable[[TopicPartition, float], object],
        ready: Callable[[], bool],
        tell: Callable[[Kind, str, Mapping[str, Any]], None],
        *,
        clock: Callable[[], int] = monotonic_ms,
        pause_s: float = PAUSE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._wait_s = wait_s
        self._end = end
        self._ready = ready
        self._tell = tell
        self._lock = threading.Condition()
        self._open: dict[str, _Question] = {}
        """By partition, in the order in which they are asked, but for `_Question.rank`; `_asked` are under way."""
        self._asked: set[str] = set()
        self._after_doubt = False
        """Was the last question one of a copy that doubts?"""
        self._away_since_ms = 0
        """On the driver's clock; 0: nobody was told that it is away."""
        self._why = ""
        self._unanswered_ms = 0
        """What was met last, and when."""
        self._last: AskedCopy | None = None
        """Whose question was answered last, while it is away: by that it is found out whether it is back."""

    def ask(self, copy: AskedCopy, e: fx.AskLog) -> None:
        """The copy wants to know; a later question replaces its earlier one."""
        with self._lock:
            self._open[copy.name] = _Question(copy, e, self._clock())
            self._lock.notify_all()

    def turn(self, closing: threading.Event) -> None:
        """Ask for one partition, and wait for the answer."""
        question, begin = self._next(), self._clock()
        if question is None:
            self._look_again(closing)
            return
        try:
            self._end(question.copy.tp, ASK_S if question.tried else FIRST_S)
            while not self._ready() and not closing.is_set():
                self._look("no producer session yet")
                closing.wait(SESSION_S)
        except Exception as error:
            self._look(str(error))
            self._again(question)
            closing.wait(self._pause_s)
        else:
            self._answered(question, self._clock() - begin)

    def _look_again(self, closing: threading.Event) -> None:
        """Nobody asks any more, and the last answers came late: is it back?"""
        with self._lock:
            copy = self._last
            self._last = None  # one thread is enough
            begin = self._clock()
        if copy is None:
            return
        try:
            self._end(copy.tp, ASK_S)
        except Exception as error:
            with self._lock:
                self._unanswered_ms = self._clock()
                self._why = str(error)
                self._last = copy
            closing.wait(self._pause_s)
        else:
            self._is_heard(copy, self._clock() - begin)

    def _next(self) -> _Question | None:
        with self._lock:
            self._lock.wait_for(lambda: self._open.keys() - self._asked, self._wait_s)
            left = [name for name in self._open if name not in self._asked]
            name = min(left, key=lambda name: self._open[name].rank(self._after_doubt), default=None)
            if name is None:
                return None
            self._asked.add(name)
            self._after_doubt = not self._open[name].serves
            return self._open[name]

    def _again(self, question: _Question) -> None:
        """Put the question behind all others."""
        name = question.copy.name
        with self._lock:
            self._asked.discard(name)
            question.tried += 1
            self._open[name] = self._open.pop(name)

    def _answered(self, question: _Question, took_ms: int) -> None:
        name = question.copy.name
        with self._lock:
            self._asked.discard(name)
            if self._open.get(name) is question:
                del self._open[name]
        question.copy.post(ev.LogAnswered(question.round))
        self._is_heard(question.copy, took_ms)

    def _is_heard(self, copy: AskedCopy, took_ms: int) -> None:
        """Note that the log has answered after so long: it may be back, if it was away."""
        with self._lock:
            now, since = self._clock(), self._away_since_ms
            if not since or self._open:
                return
            if took_ms > PROMPT_MS and now - self._unanswered_ms < CALM_MS:
                self._last = copy
                return
            self._away_since_ms = 0
            self._last = None
        self._tell(LOG_BACK, f"after {(now - since) / 1000:.1f} s", {"away_ms": now - since})

    def _look(self, why: str) -> None:
        """Has it been asked for long, and nobody was told?"""
        with self._lock:
            self._why = why
            now = self._clock()
            self._unanswered_ms = now
            oldest = min((q.since_ms for q in self._open.values()), default=now)
            asked = min((q.asked_ms for q in self._open.values()), default=now)
            count = len(self._open)
            if self._away_since_ms or now - asked < TOLD_MS:
                return
            self._away_since_ms = oldest
        more = {"since": _moment(oldest), "since_ms": oldest + wall_ahead_ms(), "partitions": count}
        self._tell(LOG_AWAY, why, more)

    def view(self) -> dict[str, object] | None:
        """Return for operators since when it is away, why, and which partitions wait for it; None: it is not, or nobody
        waits."""
        with self._lock:
            if not self._away_since_ms or not self._open:
                return None
            waiting = sorted(self._open)
            return {"since_ms": self._away_since_ms + wall_ahead_ms(), "why": self._why, "partitions": waiting}


def _moment(driver_ms: int) -> str:
    return datetime.fromtimestamp((driver_ms + wall_ahead_ms()) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
