"""An application that uses objects all the time, and remembers what it was told, to compare it afterwards.

Each thread changes objects of its own share, creates some and deletes some of those, at a pace; a transaction that
meets an object which somebody else changes or moves is run again. What it could not be told is remembered as unknown.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from benchmarks.app import App
from benchmarks.figures import percentile
from benchmarks.judged import NEW
from benchmarks.model import Kept
from benchmarks.payload import payload
from halog.errors import AvailabilityError, ConflictError, OutcomeUnknownError

TRIES_S = 60.0
"""A transaction that cannot be brought through for so long ends the run."""


class Traffic(App):
    """A client node."""

    def begin(self, objects: int, threads: int, rate: float) -> dict[str, Any]:
        """`rate`: transactions a second of each thread, if they are answered so fast."""
        self._stop = threading.Event()
        self._users = [_User(self.node, i, threads, objects, rate, self._stop) for i in range(threads)]
        return {}

    def so_far(self) -> dict[str, Any]:
        """How many transactions were committed."""
        return {"done": sum(len(u.took) for u in self._users)}

    def end(self, since: float, until: float) -> dict[str, Any]:
        """Stop, and tell of those transactions that ended between two times of the monotonic clock, and of those before
        `since`: how many, their ms, and the ms of those that took longer than any before, or had to be run again."""
        self._stop.set()
        for user in self._users:
            user.thread.join(2 * TRIES_S)
        took = [t for u in self._users for t in u.took]
        during, before = ([t for t in took if a <= t.end < b] for a, b in ((since, until), (0.0, since)))
        usual = max((t.ms for t in before), default=0.0)
        return {
            "errors": [e for u in self._users for e in u.errors],
            "during": _figures([t.ms for t in during]),
            "before": _figures([t.ms for t in before]),
            "paused": _figures([t.ms for t in during if t.ms > usual or t.tries > 1]),
        }

    def created(self) -> dict[str, Any]:
        """Numbers that are there, that are not, and that may be."""
        there = [n for u in self._users for n in u.there]
        perhaps = [n for u in self._users for n in u.perhaps]
        return {"there": there, "perhaps": perhaps}

    def judge(self) -> dict[str, Any]:
        """Numbers of the objects whose count is not what their user was told."""
        wrong = []
        for user in self._users:
            for number, told in user.counted.items():
                with self.node.transaction() as tx:
                    found = tx.find(Kept, number)
                count = -1 if found is None else found.count
                if not told <= count <= told + user.unknown.get(number, 0):
                    wrong.append(number)
        return {"wrong": wrong, "touched": sum(len(u.counted) for u in self._users)}


class _Took:
    """One transaction."""

    __slots__ = ("end", "ms", "tries")

    def __init__(self, begin: float, end: float, tries: int) -> None:
        self.end = end
        self.ms = (end - begin) * 1_000
        self.tries = tries


class _User:
    """One thread."""

    def __init__(self, node: Any, i: int, of: int, objects: int, rate: float, stop: threading.Event) -> None:
        self.node = node
        self.mine = range(i, objects, of)
        self.pace_s = 1 / rate
        self.stop = stop
        self.next_new = NEW + i
        self.of = of
        self.counted: dict[int, int] = {}
        self.unknown: dict[int, int] = {}
        self.there: set[int] = set()
        self.perhaps: set[int] = set()
        self.took: list[_Took] = []
        self.errors: list[str] = []
        self.thread = threading.Thread(target=self._run, args=(random.Random(i),), daemon=True)
        self.thread.start()

    def _run(self, chance: random.Random) -> None:
        turn = 0
        while not self.stop.is_set():
            begin, tries = time.monotonic(), 1
            work = self._count if turn % 4 else self._create if turn % 8 else self._delete
            what = chance.choice(self.mine) if turn % 4 else 0
            try:
                while not self._tried(work, what, begin):
                    tries += 1
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                return
            self.took.append(_Took(begin, time.monotonic(), tries))
            turn += 1
            self.stop.wait(max(0.0, self.pace_s - (time.monotonic() - begin)))

    def _tried(self, work: Any, what: int, begin: float) -> bool:
        try:
            work(what)
        except (ConflictError, AvailabilityError):
            if time.monotonic() - begin > TRIES_S:
                raise
            return False
        return True

    def _count(self, number: int) -> None:
        try:
            with self.node.transaction() as tx:
                tx.get(Kept, number).count += 1
        except OutcomeUnknownError:
            self.unknown[number] = self.unknown.get(number, 0) + 1
        else:
            self.counted[number] = self.counted.get(number, 0) + 1

    def _create(self, _: int) -> None:
        number = self.next_new
        try:
            with self.node.transaction() as tx:
                tx.create(Kept(number=number, text=payload(number)))
        except OutcomeUnknownError:
            self.perhaps.add(number)
        else:
            self.there.add(number)
        self.next_new += self.of

    def _delete(self, _: int) -> None:
        if not self.there:
            return
        number = min(self.there)
        try:
            with self.node.transaction() as tx:
                tx.delete(tx.get(Kept, number))
        except OutcomeUnknownError:
            self.perhaps.add(number)
        self.there.discard(number)


def _figures(ms: list[float]) -> dict[str, Any]:
    if not ms:
        return {"p50": None, "p99": None, "count": 0}
    ordered = sorted(ms)
    return {"p50": round(percentile(ordered, 0.5), 2), "p99": round(percentile(ordered, 0.99), 2), "count": len(ms)}
