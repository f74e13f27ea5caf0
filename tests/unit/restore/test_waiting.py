"""Which conflicts wait for an operator, read off a log: record by record (M2, M3)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from halog.core.ids import ABSENT, NO_TX, EpochId
from halog.core.log.records import (
    CREATE,
    DELETE,
    UPDATE,
    Branch,
    Change,
    Commit,
    EpochMerged,
    Header,
    MergePart,
    Outcome,
    Prepare,
    Record,
)
from restore.compensation import Defer, KeepSource, Verdict
from restore.merge import Difference, Instance, Kind, State
from restore.plan import Choice
from restore.report import merged
from restore.undoings import undoing
from restore.waiting import CHANGED, MERGED, SETTLED, UNDONE, ConflictEnd, MergeReports, ending

pytestmark = pytest.mark.feature("M2", "M3")

OURS, THEIRS = Instance(b"r" * 24, b"ours"), Instance(b"r" * 24, b"theirs")
STAMP = b"\x01" * 8
TX = STAMP + b"somebody"
FIRST, SECOND = b"first", b"second"


class Log:
    """What a reader has read, one record behind the other."""

    def __init__(self) -> None:
        self.reports = MergeReports()
        self.lsn = 0

    def head(self, tx: bytes = NO_TX, epoch: int = 1) -> Header:
        return Header(b"l" * 16, EpochId(epoch, "east", 1), self.lsn, b"h" * 16, tx)

    def read(self, *records: Record, counts: bool = True) -> None:
        for record in records:
            self.reports.read(record, 10 * self.lsn, counts=counts)

    def merge(
        self, name: bytes, left: Iterable[tuple[bytes, State]], why: str = "ask", *, counts: bool = True, at: int = 100
    ) -> None:
        """One that leaves what stands under these keys to an operator."""
        self.lsn = at
        verdict: Verdict = Defer(why) if why else KeepSource()
        found = [Difference(key, Kind.STATE_CONFLICT, None, state, THEIRS, (), ()) for key, state in left]
        told = tuple(merged(Choice(f, verdict, f.source), "trigger") for f in found)
        head = self.head(epoch=at)
        branch = Branch(EpochId(1, "east", 1), 1, b"h" * 16, ())
        self.read(MergePart(head, 0, told), counts=False)
        self.read(EpochMerged(head, name, (branch,), (), (), 1, b"", 0, 0), counts=counts)

    def commit(self, tx: bytes, *changes: Change, counts: bool = True) -> None:
        self.lsn += 1
        self.read(Commit(self.head(tx), changes), counts=counts)

    def closed(self, name: bytes) -> dict[bytes, ConflictEnd | None]:
        report = self.reports.found[name]
        told = {key: report.closing(key) for key in report.deferred}
        assert [e.found.key for e in report.open] == sorted(key for key, closed in told.items() if closed is None)
        return told


def change(key: bytes, op: int = UPDATE) -> Change:
    return Change(op, OURS.ref, key, None if op == DELETE else b"new", ABSENT if op == CREATE else 100)


@pytest.fixture
def log() -> Log:
    """A merge left a, b, which is nowhere, and c to an operator."""
    made = Log()
    made.merge(FIRST, {b"a": OURS, b"b": None, b"c": OURS}.items())
    return made


def test_what_is_written_waits_no_more_whoever_wrote_it(log: Log) -> None:
    log.commit(TX, change(b"a"), change(b"other"))
    log.commit(STAMP + ending(FIRST), change(b"b", CREATE))
    log.commit(TX, change(b"a"), change(b"b", DELETE))
    assert log.closed(FIRST) == {b"a": ConflictEnd(CHANGED, 101), b"b": ConflictEnd(SETTLED, 102), b"c": None}


def test_readers_go_by_what_counts(log: Log) -> None:
    """A record that they skip closes nothing, and leaves nothing to anybody."""
    log.commit(TX, change(b"a"), counts=False)
    log.merge(SECOND, [(b"a", OURS)], counts=False)
    assert log.closed(FIRST) == {b"a": None, b"b": None, b"c": None}
    assert [*log.reports.found] == [FIRST]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_several_partitions_counts_where_it_is_decided(log: Log, commit: bool) -> None:
    log.lsn = 101
    log.read(Prepare(log.head(TX), "p", ("p", "q"), 0, b"", (change(b"a"),), ()))
    assert log.closed(FIRST)[b"a"] is None
    log.lsn = 102
    log.read(Outcome(log.head(TX), commit))
    assert log.closed(FIRST)[b"a"] == (ConflictEnd(CHANGED, 102) if commit else None)


def test_where_nothing_stands_nor_is_to_an_id_says_that_it_is_settled(log: Log) -> None:
    """It names the merge and the key, and settles nothing but what waits there."""
    log.commit(STAMP + ending(FIRST, b"a"))  # what stands is settled by writing it
    log.commit(STAMP + ending(FIRST))
    log.commit(STAMP + ending(SECOND, b"b"))
    log.commit(STAMP + ending(FIRST, b"b"), change(b"other"))
    assert log.closed(FIRST)[b"b"] is None
    log.commit(STAMP + ending(FIRST, b"b"))
    assert log.closed(FIRST) == {b"a": None, b"b": ConflictEnd(SETTLED, 105), b"c": None}


def test_another_merge_of_the_key_closes_what_was_before(log: Log) -> None:
    log.merge(SECOND, [(b"b", None)], at=200)
    log.merge(b"third", [(b"a", OURS)], why="", at=300)
    log.commit(STAMP + ending(FIRST, b"b"))  # late
    assert log.closed(FIRST) == {b"a": ConflictEnd(MERGED, 300), b"b": ConflictEnd(MERGED, 200), b"c": None}
    assert log.closed(SECOND) == {b"b": None}
    assert log.closed(b"third") == {}


def test_a_merge_that_was_undone_waits_for_nobody_until_that_is_undone(log: Log) -> None:
    log.commit(TX, change(b"a"))
    log.merge(undoing(FIRST), [(b"x", OURS)], why="", at=200)
    assert log.closed(FIRST) == dict.fromkeys((b"a", b"b", b"c"), ConflictEnd(UNDONE, 0))
    log.merge(undoing(undoing(FIRST)), [(b"x", OURS)], why="", at=300)
    assert log.closed(FIRST) == {b"a": ConflictEnd(CHANGED, 101), b"b": None, b"c": None}


def test_what_was_undone_in_another_branch_is_undone(log: Log) -> None:
    """A later merge names it."""
    log.lsn = 200
    branch = Branch(EpochId(1, "west", 1), 1, b"h" * 16, ())
    log.read(EpochMerged(log.head(epoch=200), SECOND, (branch, branch), (), (undoing(FIRST),), 0, b"", 0, 0))
    assert log.closed(FIRST)[b"a"] == ConflictEnd(UNDONE, 0)
