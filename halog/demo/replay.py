"""Replays rows as transactions, from several threads, and notes every answer in the journal.

A row is one transaction: a landing changes `Flight`, `Aircraft` and `Airport`, mostly in two partitions. Never batches
rows. All rows of one tail number are done one after the other, in file order, and those of one airport in turn: rivals
for Chicago would mostly run again. A conflict is run again by the decorated form; an unknown outcome is asked after by
its id until it is known, and only what did not happen is run again.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN, Journal, Note
from halog.demo.model import Airport, Flight, Status
from halog.demo.rows import Row
from halog.errors import AvailabilityError, ConflictError, OutcomeUnknownError
from halog.transactions import Node, Transaction

WORKERS = 32
"""Threads: a commit waits for logs and replicas, not for a processor, and some wait for their airport. More in flight
also means more records per produce request and fetch, which is most of what a broker's processor is used for."""
QUEUE_ROWS = 500
"""Rows waiting, for each thread: those held up by a failover must not hold up the others at once."""
RETRIES = 100
"""Runs after a conflict; while a partition fails over, one and the same transaction may meet itself more than once."""
GIVE_UP_S = 60.0
"""A row is tried that long; every fault of the demo is over much sooner."""
FLIGHT = "flight"
"""What the journal calls a row."""


class Outcomes(Protocol):
    """What settles an unknown outcome; the node's runtime."""

    def outcome(self, partition: str, tx: bytes, attempt: int) -> str: ...


@dataclass
class Tally:
    """How far the client is. Counted under its lock."""

    rows: int = 0
    transactions: int = 0
    acknowledged: int = 0
    unknown: int = 0
    repeated: int = 0
    """Runs after the first: conflicts."""


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

    def wait(self, row: int) -> None:
        """Until the row may pass."""
        with self._changed:
            self._changed.wait_for(lambda: row < self._limit)


class Lines:
    """Rows of one name are done one after the other, in order; of different names by as many threads as there are."""

    def __init__(self, work: Callable[[Row], None], count: int, guarded: Callable[[Callable[[], None]], None]) -> None:
        self._work, self._guarded = work, guarded
        self._room = threading.Semaphore(count * QUEUE_ROWS)
        self._changed = threading.Condition()
        self._lines: dict[str, deque[Row]] = {}
        """The rows that wait, of names that a thread has taken on or is to take on."""
        self._ready: deque[str] = deque()
        self._ended = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def put(self, name: str, row: Row) -> None:
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

    def _next_row(self, name: str) -> Row | None:
        with self._changed:
            line = self._lines[name]
            if line:
                return line.popleft()
            del self._lines[name]
            return None


class Replay:
    """One client's work. `run` returns when every row is done; the first error of a thread ends it."""

    def __init__(
        self,
        node: Node,
        outcomes: Outcomes,
        epochs: Callable[[], Mapping[str, int]],
        journal: Journal,
        sabotaged: int = -1,
    ) -> None:
        self.node, self.outcomes, self.epochs = node, outcomes, epochs
        self.journal, self.sabotaged = journal, sabotaged
        self.tally = Tally()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._open = threading.local()
        self._run = node.transactional(retries=RETRIES)(self._flight)
        self._airports: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Whose turn it is."""

    # --- rows ---

    def run(self, rows: Iterable[Row], gate: Gate, workers: int = WORKERS) -> None:
        """Replay all rows."""
        flights = Lines(self._row, workers, self._guarded)
        for row in rows:
            gate.wait(row.number)
            flights.put(row.tail, row)
            if self.error is not None:
                break
        flights.finish()
        if self.error is not None:
            raise self.error

    def _guarded(self, work: Callable[[], None]) -> None:
        """The first error ends everything; until all threads know, lines are only emptied."""
        if self.error is None:
            try:
                work()
            except BaseException as error:
                self.error = error

    def _row(self, row: Row) -> None:
        with self._turn(row):
            self._transact(row)
        with self._lock:
            self.tally.rows += 1

    def _turn(self, row: Row) -> AbstractContextManager[object]:
        """Of its airport, if it changes that."""
        if row.status is not Status.LANDED:
            return nullcontext()
        with self._lock:
            return self._airports[row.destination]

    def _begun(self) -> Transaction:
        """The transaction just begun; remembered, because its id is known only at the end."""
        self._open.tx = tx = self.node.current()
        self._open.runs += 1
        return tx

    def _flight(self, row: Row) -> None:
        tx = self._begun()
        flight = tx.create(Flight(*row.key, row.origin, row.destination, row.status, row.miles, row.minutes))
        if row.status is Status.LANDED:
            flight.land()
            airport = tx.find(Airport, row.destination) or tx.create(Airport(code=row.destination))
            airport.arrivals += 1
            airport.miles += row.miles
            airport.minutes += row.minutes or 0

    # --- one transaction ---

    def _transact(self, row: Row) -> None:
        """Exactly once, whatever happens to the nodes meanwhile."""
        until = time.monotonic() + GIVE_UP_S
        self._open.runs = 0
        if row.number == self.sabotaged:
            self._pretend(row)
        else:
            while not self._attempt(row, time.monotonic() >= until):
                pass
        with self._lock:
            self.tally.transactions += 1
            self.tally.repeated += max(0, self._open.runs - 1)

    def _attempt(self, row: Row, last: bool) -> bool:
        """True: settled, one way or the other."""
        epochs = self.epochs()
        try:
            self._run(row)
        except OutcomeUnknownError as error:
            if self._open.tx.id is None:  # a read or a call was not answered; nothing was committed
                return False
            partition: str = error.evidence["partition"]
            return self._settle(row, partition, epochs[partition])
        except (ConflictError, AvailabilityError):
            if last:
                raise
            return False
        self._note(row, self._open.tx.home, ACKNOWLEDGED)
        return True

    def _settle(self, row: Row, partition: str, epoch: int) -> bool:
        """Ask what became of it. The rest of the row waits meanwhile, so no later work can hide the answer."""
        self._note(row, partition, UNKNOWN)
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                answer = self.outcomes.outcome(partition, self._tx_id(), epoch)
            except (AvailabilityError, OutcomeUnknownError):
                continue
            if answer in ("happened", "did not happen"):
                return self._settled(row, partition, happened=answer == "happened")
            time.sleep(0.05)
        return True

    def _settled(self, row: Row, partition: str, *, happened: bool) -> bool:
        with self._lock:
            self.tally.unknown -= 1
        self._note(row, partition, ACKNOWLEDGED if happened else DENIED)
        return happened

    def _pretend(self, row: Row) -> None:
        """Sabotage: all the work, an id, a note of success, and no commit."""
        with self.node.transaction() as tx:
            self._flight(row)
            tx.id = self.node.backend.new_transaction_id()
            tx.rollback()
        self._note(row, self.node.space.route(Flight, row.key).partition, ACKNOWLEDGED)

    def _tx_id(self) -> bytes:
        tx: Transaction = self._open.tx
        assert tx.id is not None, "a transaction that was committed has an id"
        return tx.id

    def _note(self, row: Row, partition: str, outcome: str) -> None:
        self.journal.write(Note(row.number, FLIGHT, partition, self._tx_id(), outcome))
        with self._lock:
            self.tally.acknowledged += outcome == ACKNOWLEDGED
            self.tally.unknown += outcome == UNKNOWN
