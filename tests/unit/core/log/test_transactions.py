"""What the records of transactions over several partitions mean: the same for every reader, from the history alone."""

from __future__ import annotations

import pytest

from halog.core.ids import NO_HASH, EpochId
from halog.core.log import records
from halog.core.log.transactions import Applied, DecidedTransaction, ForgottenDecisions, Ledger, PreparedTransaction
from halog.core.results import LockConflict

pytestmark = pytest.mark.feature("D4", "D5")

REF = bytes(24)


class Told:
    """A ledger and the lsn of the next record."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.lsn = 0

    def _header(self, stamp: int) -> records.Header:
        self.lsn += 1
        tx = stamp.to_bytes(8, "big") + bytes(8)
        return records.Header(bytes(16), EpochId(1, "here", 0), self.lsn, NO_HASH, tx)

    def prepare(self, stamp: int, write: bytes = b"w", read: bytes = b"r") -> Applied:
        change = records.Change(records.UPDATE, REF, write, b"new", 1)
        record = records.Prepare(self._header(stamp), "p0", ("p0", "p1"), 0, b"d", (change,), ((read, 1),))
        return self.ledger.accepted(record, self.lsn - 1)

    def outcome(self, stamp: int, *, commit: bool) -> Applied:
        return self.ledger.accepted(records.Outcome(self._header(stamp), commit), self.lsn - 1)

    def horizon(self, stamp: int) -> Applied:
        return self.ledger.accepted(records.Horizon(self._header(0), stamp), self.lsn - 1)


def test_a_prepare_locks_what_it_reads_and_writes_until_its_outcome() -> None:
    told = Told()
    assert type(told.prepare(5)) is PreparedTransaction
    locks = told.ledger.locks
    assert type(locks.against([(b"w", 1)], ())) is LockConflict
    assert locks.against([(b"r", 1)], ()) is None, "what is only read may be read"
    change = records.Change(records.UPDATE, REF, b"r", b"", 1)
    assert type(locks.against((), [change])) is LockConflict, "and not changed"
    meant = told.outcome(5, commit=True)
    assert isinstance(meant, DecidedTransaction)
    assert meant.commit is not None
    assert meant.commit.header.lsn == 2
    assert [c.value for c in meant.commit.changes] == [b"new"]
    assert not locks


def test_an_abort_frees_and_changes_nothing() -> None:
    told = Told()
    told.prepare(5)
    meant = told.outcome(5, commit=False)
    assert isinstance(meant, DecidedTransaction)
    assert meant.commit is None
    assert not told.ledger.locks


@pytest.mark.parametrize("commit", [False, True])
def test_the_first_outcome_counts(commit: bool) -> None:
    told = Told()
    told.prepare(5)
    told.outcome(5, commit=commit)
    assert type(told.outcome(5, commit=not commit)) is records.Outcome
    assert told.ledger.decided[(5).to_bytes(8, "big") + bytes(8)].commit is commit


def test_a_commit_without_a_prepare_is_void_an_abort_is_a_tombstone() -> None:
    told = Told()
    assert type(told.outcome(5, commit=True)) is records.Outcome
    assert type(told.outcome(5, commit=False)) is DecidedTransaction
    assert type(told.prepare(5)) is records.Prepare, "trace 31"
    assert not told.ledger.locks


def test_a_second_prepare_is_void() -> None:
    told = Told()
    told.prepare(5)
    assert type(told.prepare(5, b"other")) is records.Prepare
    assert b"other" not in told.ledger.locks


def test_below_the_horizon_everything_is_void() -> None:
    """Traces 29 and 30: what was held for so long comes too late."""
    told = Told()
    told.prepare(5)
    told.outcome(5, commit=True)
    meant = told.horizon(5)
    assert isinstance(meant, ForgottenDecisions)
    assert len(meant.ids) == 1
    assert not told.ledger.decided
    assert type(told.prepare(5)) is records.Prepare
    assert type(told.outcome(5, commit=False)) is records.Outcome
    assert type(told.outcome(4, commit=True)) is records.Outcome
    assert type(told.prepare(6)) is PreparedTransaction
    told.horizon(3)
    assert told.ledger.horizon == (5).to_bytes(8, "big"), "it only grows"
