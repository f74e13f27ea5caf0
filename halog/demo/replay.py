"""Replays rows as transactions, from several threads, and notes every answer in the journal.

All rows of one tail number go to one thread, in file order. A landing is two transactions, `Flight` + `Aircraft`, then
the `Airport`; anything else is one. Never batches rows. A conflict is run again by halog's decorated form; an unknown
outcome is asked after by its id until it is known, and only what did not happen is run again.
"""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from halog.demo.journal import ACKNOWLEDGED, UNKNOWN, Journal, Note
from halog.demo.model import Airport, Flight, Status
from halog.demo.rows import Row
from halog.errors import AvailabilityError, ConflictError, OutcomeUnknownError
from halog.transactions import Node, Transaction

WORKERS = 12
"""Transactions in flight: a commit waits for the log and a replica, not for a processor; more only queue there."""
QUEUE_ROWS = 500
"""Rows waiting for one thread: a thread held up by a failover must not hold up the others at once."""
RETRIES = 100
"""Runs after a conflict: the hottest airport takes 5 % of all rows, so a run of bad luck is long but ends."""
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
    """Runs after the first: conflicts, mostly on busy airports."""


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


class Replay:
    """One client's work. `run` returns when every row is done; the first error of a thread ends it."""

    def __init__(
        self, node: Node, outcomes: Outcomes, epoch_of: Callable[[str], int], journal: Journal, sabotaged: int = -1
    ) -> None:
        self.node, self.outcomes, self.epoch_of = node, outcomes, epoch_of
        self.journal, self.sabotaged = journal, sabotaged
        self.tally = Tally()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._open = threading.local()
        self._runs = {kind: node.transactional(retries=RETRIES)(f) for kind, f in self._bodies().items()}

    # --- threads ---

    def run(self, rows: Iterable[Row], gate: Gate, workers: int = WORKERS) -> None:
        """Replay all rows."""
        lines: list[queue.Queue[Row | None]] = [queue.Queue(QUEUE_ROWS) for _ in range(workers)]
        threads = [threading.Thread(target=self._work, args=(line,), daemon=True) for line in lines]
        for thread in threads:
            thread.start()
        for row in rows:
            gate.wait(row.number)
            lines[zlib.crc32(row.tail.encode()) % workers].put(row)
            if self.error is not None:
                break
        for line in lines:
            line.put(None)
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _work(self, line: queue.Queue[Row | None]) -> None:
        while (row := line.get()) is not None:
            if self.error is not None:
                continue  # keep emptying, so that nobody waits for a place in this line
            try:
                self.play(row)
            except BaseException as error:
                if self.error is None:
                    self.error = error

    # --- one row ---

    def play(self, row: Row) -> None:
        """All transactions of a row, in order."""
        self._transact(row, FLIGHT)
        if row.status is Status.LANDED:
            self._transact(row, AIRPORT)
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
        airport.land(row.miles, row.minutes or 0)

    # --- one transaction ---

    def _transact(self, row: Row, kind: str) -> None:
        """Exactly once, whatever happens to the nodes meanwhile."""
        partition = self._partition(row, kind)
        until = time.monotonic() + GIVE_UP_S
        self._open.runs = 0
        if row.number == self.sabotaged and kind == FLIGHT:
            self._pretend(row, partition)
        else:
            while not self._attempt(row, kind, partition, time.monotonic() >= until):
                pass
        with self._lock:
            self.tally.transactions += 1
            self.tally.repeated += max(0, self._open.runs - 1)

    def _attempt(self, row: Row, kind: str, partition: str, last: bool) -> bool:
        """True: settled, one way or the other."""
        epoch = self.epoch_of(partition)
        try:
            self._runs[kind](row)
        except OutcomeUnknownError:
            if self._open.tx.id is None:  # a read or a call was not answered; nothing was committed
                return False
            return self._settle(row, kind, partition, epoch)
        except (ConflictError, AvailabilityError):
            if last:
                raise
            return False
        self._note(row, kind, partition, ACKNOWLEDGED)
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
        if happened:
            self._note(row, kind, partition, ACKNOWLEDGED)
        return happened

    def _pretend(self, row: Row, partition: str) -> None:
        """Sabotage: all the work, an id, a note of success, and no commit."""
        with self.node.transaction() as tx:
            self._flight(row)
            tx.id = self.node.backend.new_transaction_id()
            tx.rollback()
        self._note(row, FLIGHT, partition, ACKNOWLEDGED)

    def _tx_id(self) -> bytes:
        tx: Transaction = self._open.tx
        assert tx.id is not None, "a transaction that was committed has an id"
        return tx.id

    def _note(self, row: Row, kind: str, partition: str, outcome: str) -> None:
        self.journal.write(Note(row.number, kind, partition, self._tx_id(), outcome))
        with self._lock:
            if outcome == ACKNOWLEDGED:
                self.tally.acknowledged += 1
            else:
                self.tally.unknown += 1

    def _partition(self, row: Row, kind: str) -> str:
        if kind == FLIGHT:
            return self.node.space.route(Flight, row.key).partition
        return self.node.space.route(Airport, (row.destination,)).partition
