"""Replays rows as transactions, from several threads, and notes every answer in the journal.

A landing is two transactions, `Flight` + `Aircraft`, then the `Airport`; anything else is one. Never batches rows. All
rows of one tail number are done one after the other, in file order, and so are those of one airport, by a second set of
threads: rivals for Chicago would mostly run again. A conflict is run again by the decorated form; an unknown outcome
is asked after by its id until it is known, and only what did not happen is run again.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN, Journal, Note
from halog.demo.model import Airport, Flight, Status
from halog.demo.rows import Row
from halog.errors import AvailabilityError, ConflictError, OutcomeUnknownError
from halog.transactions import Node, Transaction

WORKERS = 24
"""Threads for flights, and again for airports: a commit waits for the log and a replica, not for a processor. More in
flight also means more records per produce request and fetch, which is most of what a broker's processor is used for."""
QUEUE_ROWS = 500
"""Rows waiting, for each thread: those held up by a failover must not hold up the others at once."""
RETRIES = 100
"""Runs after a conflict; while a partition fails over, one and the same transaction may meet itself more than once."""
GIVE_UP_S = 60.0
"""A row is tried that long; every fault of the demo is over much sooner."""
FLIGHT, AIRPORT = "flight", "airport"


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
        self._runs = {kind: node.transactional(retries=RETRIES)(f) for kind, f in self._bodies().items()}

    # --- rows ---

    def run(self, rows: Iterable[Row], gate: Gate, workers: int = WORKERS) -> None:
        """Replay all rows."""
        airports = Lines(self._airport_of, workers, self._guarded)
        flights = Lines(lambda row: self._flight_of(row, airports), workers, self._guarded)
        for row in rows:
            gate.wait(row.number)
            flights.put(row.tail, row)
            if self.error is not None:
                break
        flights.finish()
        airports.finish()
        if self.error is not None:
            raise self.error

    def _guarded(self, work: Callable[[], None]) -> None:
        """The first error ends everything; until all threads know, lines are only emptied."""
        if self.error is None:
            try:
                work()
            except BaseException as error:
                self.error = error

    def _flight_of(self, row: Row, airports: Lines) -> None:
        self._transact(row, FLIGHT)
        if row.status is Status.LANDED:
            airports.put(row.destination, row)
        else:
            self._finished()

    def _airport_of(self, row: Row) -> None:
        self._transact(row, AIRPORT)
        self._finished()

    def _finished(self) -> None:
        with self._lock:
            self.tally.rows += 1

    def _bodies(self) -> dict[str, Callable[[Row], None]]:
        return {FLIGHT: self._flight, AIRPORT: self._airport}

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

    def _airport(self, row: Row) -> None:
        tx = self._begun()
        airport = tx.find(Airport, row.destination) or tx.create(Airport(code=row.destination))
        airport.arrivals += 1
        airport.miles += row.miles
        airport.minutes += row.minutes or 0

    # --- one transaction ---

    def _transact(self, row: Row, kind: str) -> None:
        """Exactly once, whatever happens to the nodes meanwhile."""
        until = time.monotonic() + GIVE_UP_S
        self._open.runs = 0
        if row.number == self.sabotaged and kind == FLIGHT:
            self._pretend(row)
        else:
            while not self._attempt(row, kind, time.monotonic() >= until):
                pass
        with self._lock:
            self.tally.transactions += 1
            self.tally.repeated += max(0, self._open.runs - 1)

    def _attempt(self, row: Row, kind: str, last: bool) -> bool:
        """True: settled, one way or the other."""
        epochs = self.epochs()
        try:
            self._runs[kind](row)
        except OutcomeUnknownError as error:
            if self._open.tx.id is None:  # a read or a call was not answered; nothing was committed
                return False
            partition: str = error.evidence["partition"]
            return self._settle(row, kind, partition, epochs[partition])
        except (ConflictError, AvailabilityError):
            if last:
                raise
            return False
        self._note(row, kind, self._open.tx.home, ACKNOWLEDGED)
        return True

    def _settle(self, row: Row, kind: str, partition: str, epoch: int) -> bool:
        """Ask what became of it. The rest of the row waits meanwhile, so no later work can hide the answer."""
        self._note(row, kind, partition, UNKNOWN)
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                answer = self.outcomes.outcome(partition, self._tx_id(), epoch)
            except (AvailabilityError, OutcomeUnknownError):
                continue
            if answer in ("happened", "did not happen"):
                return self._settled(row, kind, partition, happened=answer == "happened")
            time.sleep(0.05)
        return True

    def _settled(self, row: Row, kind: str, partition: str, *, happened: bool) -> bool:
        with self._lock:
            self.tally.unknown -= 1
        self._note(row, kind, partition, ACKNOWLEDGED if happened else DENIED)
        return happened

    def _pretend(self, row: Row) -> None:
        """Sabotage: all the work, an id, a note of success, and no commit."""
        with self.node.transaction() as tx:
            self._flight(row)
            tx.id = self.node.backend.new_transaction_id()
            tx.rollback()
        self._note(row, FLIGHT, self.node.space.route(Flight, row.key).partition, ACKNOWLEDGED)

    def _tx_id(self) -> bytes:
        tx: Transaction = self._open.tx
        assert tx.id is not None, "a transaction that was committed has an id"
        return tx.id

    def _note(self, row: Row, kind: str, partition: str, outcome: str) -> None:
        self.journal.write(Note(row.number, kind, partition, self._tx_id(), outcome))
        with self._lock:
            self.tally.acknowledged += outcome == ACKNOWLEDGED
            self.tally.unknown += outcome == UNKNOWN
