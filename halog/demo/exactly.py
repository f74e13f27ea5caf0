"""One piece of work, one transaction, exactly once, whatever happens to the nodes meanwhile; each answer is noted.

A conflict is run again by the decorated form; an unknown outcome is asked after by its id until it is known, under the
highest epoch that a request of it was for, and only what did not happen is run again.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN
from halog.errors import AvailabilityError, ConflictError, OutcomeUnknownError
from halog.transactions import Node, Transaction

RETRIES = 100
"""Runs after a conflict; while a partition fails over, one and the same transaction may meet itself more than once."""
GIVE_UP_S = 60.0
"""A row is tried that long; every fault of the demo is over much sooner."""

W = TypeVar("W")
"""A piece of work."""


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


class Exactly(abc.ABC, Generic[W]):
    """One client's transactions; any thread. What the work is, and where it is noted, a subclass says."""

    def __init__(self, node: Node, outcomes: Outcomes, epochs: Callable[[], Mapping[str, int]]) -> None:
        self.node = node
        self.outcomes = outcomes
        self.epochs = epochs
        self.tally = Tally()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._open = threading.local()
        self._run = node.transactional(retries=RETRIES)(self._begun)

    @abc.abstractmethod
    def work(self, tx: Transaction, what: W) -> None:
        """Do it, in the transaction just begun."""

    @abc.abstractmethod
    def note(self, what: W, partition: str, tx: bytes, outcome: str) -> None:
        """Note what was said of it."""

    def guarded(self, job: Callable[[], None]) -> None:
        """The first error ends everything; until all threads know, jobs are only dropped."""
        if self.error is None:
            try:
                job()
            except BaseException as error:
                self.error = error

    def has_failed(self) -> bool:
        """Was there an error that ended everything?"""
        return self.error is not None

    def transact(self, what: W, *, pretend: bool = False) -> None:
        """Until it is settled. `pretend`: it is noted as done and is not (sabotage)."""
        until = time.monotonic() + GIVE_UP_S
        self._open.runs = 0
        if pretend:
            self._pretend(what)
        else:
            while not self._attempt(what, time.monotonic() >= until):
                pass
        with self._lock:
            self.tally.transactions += 1
            self.tally.repeated += max(0, self._open.runs - 1)

    def _begun(self, what: W) -> None:
        """The transaction is remembered, because its id is known only at the end."""
        self._open.tx = tx = self.node.current()
        self._open.runs += 1
        self.work(tx, what)

    def _attempt(self, what: W, last: bool) -> bool:
        """True: settled, one way or the other."""
        epochs = self.epochs()
        try:
            self._run(what)
        except OutcomeUnknownError as error:
            if self._open.tx.id is None:  # a read or a call was not answered; nothing was committed
                return False
            partition: str = error.evidence["partition"]
            return self._settle(what, partition, max(epochs[partition], error.evidence.get("epoch", 0)))
        except (ConflictError, AvailabilityError):
            if last:
                raise
            return False
        self._note(what, self._open.tx.home, ACKNOWLEDGED)
        return True

    def _settle(self, what: W, partition: str, epoch: int) -> bool:
        """Ask what became of it. What is to follow waits meanwhile, so no later work can hide the answer."""
        self._note(what, partition, UNKNOWN)
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                answer = self.outcomes.outcome(partition, self._tx_id(), epoch)
            except (AvailabilityError, OutcomeUnknownError):
                continue
            if answer in ("happened", "did not happen"):
                return self._settled(what, partition, happened=answer == "happened")
            time.sleep(0.05)
        return True

    def _settled(self, what: W, partition: str, *, happened: bool) -> bool:
        with self._lock:
            self.tally.unknown -= 1
        self._note(what, partition, ACKNOWLEDGED if happened else DENIED)
        return happened

    def _pretend(self, what: W) -> None:
        """All the work, an id, a note of success, and no commit."""
        with self.node.transaction() as tx:
            self._begun(what)
            tx.id = self.node.backend.new_transaction_id()
            tx.rollback()
        self._note(what, "-", ACKNOWLEDGED)

    def _tx_id(self) -> bytes:
        tx: Transaction = self._open.tx
        assert tx.id is not None, "a transaction that was committed has an id"
        return tx.id

    def _note(self, what: W, partition: str, outcome: str) -> None:
        self.note(what, partition, self._tx_id(), outcome)
        with self._lock:
            self.tally.acknowledged += outcome == ACKNOWLEDGED
            self.tally.unknown += outcome == UNKNOWN
