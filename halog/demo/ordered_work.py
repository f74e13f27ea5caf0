"""This module does the work of one client in order where order matters, from several threads.

All work of one tail number is done one after the other, in order, and that of one airport in turn: rivals for Chicago
would mostly run again. How one piece of work happens exactly once is up to `exactly`.
"""

from __future__ import annotations

import abc
import functools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, NamedTuple, TypeVar

from halog.demo.exactly import ExactlyOnce, OutcomeSource
from halog.demo.journal import Journal
from halog.transactions import Node

W = TypeVar("W")

QUEUE_ROWS = 500
"""Rows waiting, for each thread: rows held up by a failover must not hold up the others at once."""
LOOK_S = 0.1
"""How often a thread that waits at a gate looks whether an error has ended all."""


class RowGate:
    """A `RowGate` lets rows below its limit pass."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()

    def open_to(self, limit: int) -> None:
        """Let rows below `limit` pass from now on."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait(self, row: int, ended: Callable[[], bool]) -> None:
        """Wait until the row may pass, or the work has ended: then nobody may be there to open the gate."""
        with self._changed:
            while not self._changed.wait_for(lambda: row < self._limit or ended(), LOOK_S):
                pass


class WorkLines(Generic[W]):
    """`WorkLines` does work of one name one after the other, in order; `count` threads share the names."""

    def __init__(self, work: Callable[[W], None], count: int, guarded: Callable[[Callable[[], None]], None]) -> None:
        self._work = work
        self._guarded = guarded
        self._room = threading.Semaphore(count * QUEUE_ROWS)
        self._changed = threading.Condition()
        self._lines: dict[str, deque[W]] = {}
        """Work that waits, by name; a thread has taken each of these names, or it is in `_ready`."""
        self._ready: deque[str] = deque()
        self._ended = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, name: str, row: W) -> None:
        """Wait for room, then put work in the line of its name."""
        self._room.acquire()
        with self._changed:
            line = self._lines.get(name)
            if line is not None:
                line.append(row)
                return
            self._lines[name] = deque((row,))
            self._ready.append(name)
            self._changed.notify()

    def finish(self) -> None:
        """End the lines: no more work comes, and all work is done when this returns."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (name := self._next_name()) is not None:
            while (row := self._next_row(name)) is not None:
                self._guarded(functools.partial(self._work, row))
                self._room.release()

    def _next_name(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            return self._ready.popleft() if self._ready else None

    def _next_row(self, name: str) -> W | None:
        with self._changed:
            line = self._lines[name]
            if line:
                return line.popleft()
            del self._lines[name]
            return None


class WorkPlace(NamedTuple):
    """Says where a piece of work stands: its number, its tail number, and the airport that it changes, or None."""

    number: int
    tail: str
    airport: str | None


class OrderedWork(ExactlyOnce[W]):
    """An `OrderedWork` is one client's work. `run` returns when all is done; the first error of a thread ends it."""

    def __init__(
        self,
        node: Node,
        outcomes: OutcomeSource,
        epochs: Callable[[], Mapping[str, int]],
        journal: Journal,
        sabotaged: int = -1,
    ) -> None:
        super().__init__(node, outcomes, epochs)
        self.journal = journal
        self.sabotaged = sabotaged
        """The number of the work that is noted as done and is not; -1: none."""
        self._airports: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """A lock by airport; the thread that holds it has the turn."""

    @abc.abstractmethod
    def place(self, what: W) -> WorkPlace:
        """Return where this piece of work stands."""

    def before(self, what: W) -> None:
        """Prepare for this piece of work, before it is put in line."""

    def run(self, work: Iterable[W], gate: RowGate, workers: int) -> None:
        """Do all work, each piece when the gate lets it pass."""
        lines = WorkLines(self._do, workers, self.guarded)
        for what in work:
            number, tail, _ = self.place(what)
            gate.wait(number, self.has_failed)
            self.before(what)
            lines.put(tail, what)
            if self.has_failed():
                break
        lines.finish()
        if self.error is not None:
            raise self.error

    def _do(self, what: W) -> None:
        number, _, airport = self.place(what)
        with self._turn(airport):
            self.transact(what, pretend=number == self.sabotaged)
        with self._lock:
            self.tally.rows += 1

    def _turn(self, airport: str | None) -> AbstractContextManager[object]:
        if airport is None:
            return nullcontext()
        with self._lock:
            return self._airports[airport]
