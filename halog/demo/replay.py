"""Replays rows as transactions, from several threads, and notes every answer in the journal.

A row is one transaction: a landing changes `Flight`, `Aircraft` and `Airport`, mostly in two partitions. Never batches
rows. All rows of one tail number are done one after the other, in file order, and those of one airport in turn: rivals
for Chicago would mostly run again. How a row happens exactly once is `exactly`'s.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from halog.demo.exactly import Exactly, Outcomes
from halog.demo.journal import Journal, Note
from halog.demo.model import Airport, Flight, Status
from halog.demo.rows import Row
from halog.transactions import Node, Transaction

W = TypeVar("W")

WORKERS = 32
"""Threads: a commit waits for logs and replicas, not for a processor, and some wait for their airport. More in flight
also means more records per produce request and fetch, which is most of what a broker's processor is used for."""
QUEUE_ROWS = 500
"""Rows waiting, for each thread: those held up by a failover must not hold up the others at once."""
FLIGHT = "flight"
"""What the journal calls a row."""


LOOK_S = 0.1
"""How often who waits at a gate looks whether an error has ended all."""


class Gate:
    """Rows below the limit may be replayed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()

    def open_to(self, limit: int) -> None:
        """Rows below `limit` may pass from now on."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait(self, row: int, ended: Callable[[], bool]) -> None:
        """Until the row may pass, or nothing more is to be done: then nobody may be there to open it."""
        with self._changed:
            while not self._changed.wait_for(lambda: row < self._limit or ended(), LOOK_S):
                pass


class Lines(Generic[W]):
    """Work of one name is done one after the other, in order; of different names by as many threads as there are."""

    def __init__(self, work: Callable[[W], None], count: int, guarded: Callable[[Callable[[], None]], None]) -> None:
        self._work = work
        self._guarded = guarded
        self._room = threading.Semaphore(count * QUEUE_ROWS)
        self._changed = threading.Condition()
        self._lines: dict[str, deque[W]] = {}
        """The rows that wait, of names that a thread has taken on or is to take on."""
        self._ready: deque[str] = deque()
        self._ended = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, name: str, row: W) -> None:
        """Wait for a place, then stand in line."""
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
        """Nothing more comes; everything in line is done when it returns."""
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


class Replay(Exactly[Row]):
    """One client's work. `run` returns when every row is done; the first error of a thread ends it."""

    def __init__(
        self,
        node: Node,
        outcomes: Outcomes,
        epochs: Callable[[], Mapping[str, int]],
        journal: Journal,
        sabotaged: int = -1,
    ) -> None:
        super().__init__(node, outcomes, epochs)
        self.journal = journal
        self.sabotaged = sabotaged
        self._airports: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Whose turn it is."""

    # --- rows ---

    def run(self, rows: Iterable[Row], gate: Gate, workers: int = WORKERS) -> None:
        """Replay all rows."""
        flights = Lines(self._row, workers, self.guarded)
        for row in rows:
            gate.wait(row.number, self.has_failed)
            flights.put(row.tail, row)
            if self.has_failed():
                break
        flights.finish()
        if self.error is not None:
            raise self.error

    def _row(self, row: Row) -> None:
        with self._turn(row):
            self.transact(row, pretend=row.number == self.sabotaged)
        with self._lock:
            self.tally.rows += 1

    def _turn(self, row: Row) -> AbstractContextManager[object]:
        """Of its airport, if it changes that."""
        if row.status is not Status.LANDED:
            return nullcontext()
        with self._lock:
            return self._airports[row.destination]

    def work(self, tx: Transaction, row: Row) -> None:
        """The flight, its aircraft, its airport."""
        flight = tx.create(Flight(*row.key, row.origin, row.destination, row.status, row.miles, row.minutes))
        if row.status is Status.LANDED:
            flight.land()
            airport = tx.find(Airport, row.destination) or tx.create(Airport(code=row.destination))
            airport.arrivals += 1
            airport.miles += row.miles
            airport.minutes += row.minutes or 0

    def note(self, row: Row, partition: str, tx: bytes, outcome: str) -> None:
        """In the journal."""
        self.journal.write(Note(row.number, FLIGHT, partition, tx, outcome))
