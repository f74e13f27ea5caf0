"""This module does one piece of work in one transaction, exactly once, whatever happens to the nodes meanwhile; each
answer is noted.

The decorated form runs a conflict again. The client asks by its id for an unknown outcome until that is known, under
the highest epoch that a request was sent for. Only work that did not happen is run again.
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
"""Runs after a conflict; while a partition fails over, one transaction may conflict with itself more than once."""
GIVE_UP_S = 60.0
"""A row is tried for so long; every fault of the demo is over much sooner."""

W = TypeVar("W")
"""A piece of work."""


class OutcomeSource(Protocol):
    """An `OutcomeSource` settles unknown outcomes; the node's runtime is one."""

    def outcome(self, partition: str, tx: bytes, attempt: int) -> str: ...


@dataclass
class ClientTally:
    """Counts how far the client is. It is changed under the client's lock."""

    rows: int = 0
    transactions: int = 0
    acknowledged: int = 0
    unknown: int = 0
    repeated: int = 0
    """Runs after the first one of a transaction: conflicts."""


class ExactlyOnce(abc.ABC, Generic[W]):
    """An `ExactlyOnce` runs one client's transactions, on any thread. A subclass says what the work is, and where it is
    noted."""

    def __init__(self, node: Node, outcomes: OutcomeSource, epochs: Callable[[], Mapping[str, int]]) -> None:
        self.node = node
        self.outcomes = outcomes
        self.epochs = epochs
        self.tally = ClientTally()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._open = threading.local()
        self._run = node.transactional(retries=RETRIES)(self._begun)

    @abc.abstractmethod
    def work(self, tx: Transaction, what: W) -> None:
        """Do the work, in the transaction just begun."""

    @abc.abstractmethod
    def note(self, what: W, partition: str, tx: bytes, outcome: str) -> None:
        """Note the answer for this work."""

    def guarded(self, job: Callable[[], None]) -> None:
        """Do a job, unless a thread has failed: the first error ends everything, and later jobs are only dropped."""
        if self.error is None:
            try:
                job()
            except BaseException as error:
                self.error = error

    def has_failed(self) -> bool:
        """Was there an error that ended everything?"""
        return self.error is not None

    def transact(self, what: W, *, pretend: bool = False) -> None:
        """Do the work until its outcome is settled. `pretend`: note it as done and do not do it (sabotage)."""
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
        """Do the work in the transaction just begun, and remember that, since its id is known only at the end."""
        self._open.tx = tx = self.node.current()
        self._open.runs += 1
        self.work(tx, what)

    def _attempt(self, what: W, last: bool) -> bool:
        """Run the work once. True: its outcome is settled."""
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
        """Ask for the outcome of the work. Later work of the same name waits meanwhile, so it cannot hide the answer.
        True: the work is settled."""
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
        """Do all the work, take an id, note success, and commit nothing."""
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
