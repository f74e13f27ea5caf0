"""This module delivers to an event loop what became of its commits (`halog.aio`). It decides nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from halog.errors import OutcomeUnknownError


class Answer(asyncio.Future[int | None]):
    """An `Answer` is what became of a commit. A task that waits for it hears of its own cancellation when the answer is
    there."""

    def cancel(self, msg: Any = None) -> bool:
        """Refuse: the commit is under way."""
        return False

    def give(self, lsn: int | None) -> None:
        """Set the result, on the loop's thread; one that comes too late is dropped."""
        if not self.done():
            self.set_result(lsn)

    def expire(self) -> None:
        """Give up: no answer came in time."""
        if not self.done():
            self.set_exception(OutcomeUnknownError("no answer in time"))


class _Expected:
    """Holds answers with the same deadline, with one timer for all: they are expected in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._loop = loop
        self._deadline_s = deadline_s
        self._answers: deque[tuple[float, Answer]] = deque()
        self._watching = False

    def one(self) -> Answer:
        """Return a new answer."""
        answer, answers = Answer(loop=self._loop), self._answers
        while answers and answers[0][1].done():
            answers.popleft()
        answers.append((self._loop.time() + self._deadline_s, answer))
        if not self._watching:
            self._watch()
        return answer

    def _watch(self) -> None:
        self._watching = bool(self._answers)
        if self._watching:
            self._loop.call_at(self._answers[0][0], self._expire)

    def _expire(self) -> None:
        answers, now = self._answers, self._loop.time()
        while answers and (answers[0][0] <= now or answers[0][1].done()):
            answers.popleft()[1].expire()
        self._watch()


class Mailbox:
    """A `Mailbox` takes answers to a loop, from other threads or its own. However many come together, the loop is woken
    once. When the tasks that they woke have run, the loop looks for more itself. It also says when an answer comes too
    late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, follow_up: Callable[[], None]) -> None:
        self.loop = loop
        self._thread = threading.get_ident()
        self._follow_up = follow_up
        self._following = False
        self._letters: deque[tuple[Answer, int | None]] = deque()
        self._rung = False
        self._expected: dict[float, _Expected] = {}
        """Expected answers by deadline: each policy may have one (P4)."""

    def expect(self, deadline_s: float) -> Answer:
        """Return an answer that must come within the deadline. Only on the loop's thread."""
        expected = self._expected.get(deadline_s)
        if expected is None:
            expected = self._expected[deadline_s] = _Expected(self.loop, deadline_s)
        return expected.one()

    def put(self, answer: Answer, lsn: int | None) -> bool:
        """Deliver an answer, on any thread. True: `follow_up` will be called."""
        if self.loop.is_closed():  # no task waits any more
            return False
        if threading.get_ident() == self._thread:
            answer.give(lsn)
            self.follow()
            return True
        self._letters.append((answer, lsn))
        if not self._rung:
            self._rung = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # closed just now
                return False
        return True

    def _empty(self) -> None:
        self._rung = False  # first: a letter put from now on rings again
        while self._letters:
            answer, lsn = self._letters.popleft()
            answer.give(lsn)
        self.follow()

    def follow(self) -> None:
        """Look for answers once the tasks that can run have run."""
        if not self._following:
            self._following = True
            self.loop.call_soon(self.loop.call_soon, self._look)

    def _look(self) -> None:
        self._following = False
        self._follow_up()
