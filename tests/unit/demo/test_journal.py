"""The journal keeps what it was told; the log is held against it without mercy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.records import CREATE, DELETE, Change
from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN, Journal, Note, claims, read
from halog.demo.verify_log import LogContents, LogCounter, accepted_ids, judge
from halog.ports import Entry, TopicPartition

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
Written = Callable[[Callable[[bytes], records.Header]], records.Record]
"""A record, made of its header once its transaction is known."""


def note(tx: bytes, outcome: str = ACKNOWLEDGED, row: int = 7) -> Note:
    return Note(row, tx.hex(), outcome, "flights-3")


def test_notes_are_read_back_but_for_a_line_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.write(note(A))
    journal.write(note(B, UNKNOWN))
    journal.close()
    with (tmp_path / "j").open("a") as f:
        f.write('{"number":9,"tx":"0a0b"')
    assert list(read(tmp_path / "j")) == [note(A), note(B, UNKNOWN)]


def test_an_unknown_outcome_that_was_settled_is_acknowledged() -> None:
    found = claims([note(A, UNKNOWN), note(A), note(B, UNKNOWN), note(C, row=-1)])
    assert found.acknowledged == {A, C}
    assert found.unknown == {B}
    assert found.acknowledged_rows == 1


def test_a_denied_transaction_must_not_be_in_the_log() -> None:
    """It was run again: found after all, it has happened twice."""
    held = claims([note(A, UNKNOWN), note(A, DENIED), note(B)])
    assert (held.denied, held.unknown) == ({A}, set())
    assert judge(held, Counter({B: 1})) == (0, 0, 0)
    assert judge(held, Counter({A: 1, B: 1})) == (0, 1, 0)


def test_the_judge_counts_lost_doubled_and_unknown_ones_that_happened() -> None:
    held = claims([note(A), note(B), note(C, UNKNOWN)])
    assert judge(held, Counter({A: 1, B: 1})) == (0, 0, 0)
    assert judge(held, Counter({A: 2, C: 1})) == (1, 1, 1)


LOG_ID, EPOCH = b"L" * 16, EpochId(1, "home", 1)
OBJECT = Change(CREATE, b"1" * 24, b"key", b"value", -1)


def log_of(*txs: bytes | Written) -> list[Entry]:
    """An epoch's records, chained as a writer would: commits of these ids, or what they write."""
    tp, entries = TopicPartition("t", 0), []

    def add(record: records.Record) -> bytes:
        data = records.encode(record)
        entries.append(Entry(tp, len(entries), data, 0))
        return digest(data)

    add(records.EpochStarted(records.Header(LOG_ID, EPOCH), EpochId(0, "", 0), 0))
    prev = add(records.EpochOpened(records.Header(LOG_ID, EPOCH, 1), ()))
    for lsn, tx in enumerate(txs, 2):
        write = tx if callable(tx) else commit(tx)
        prev = add(write(partial(records.Header, LOG_ID, EPOCH, lsn, prev)))
    return entries


def commit(tx: bytes, *changes: Change) -> Written:
    return lambda header: records.Commit(header(tx), changes)


def vote(tx: bytes, *changes: Change) -> Written:
    return lambda header: records.Prepare(header(tx), "p", ("p", "q"), 0, b"", changes)


def outcome(tx: bytes, *, happened: bool = True) -> Written:
    return lambda header: records.Outcome(header(tx), happened)


def found_in(**logs: list[Entry]) -> LogContents:
    found = LogCounter()
    for partition, entries in logs.items():
        found.read(partition, entries, ChainState(LOG_ID, "home"))
    return found.logged()


def test_only_accepted_records_count() -> None:
    """A record that does not continue the chain voids the rest, for this reader as for every other."""
    start = ChainState(LOG_ID, "home")
    entries = log_of(A, B, C)
    assert accepted_ids(entries, start) == {A: 1, B: 1, C: 1}
    assert accepted_ids([*entries[:3], entries[4]], start) == {A: 1}


def test_a_record_written_twice_counts_once_because_readers_skip_the_second() -> None:
    start = ChainState(LOG_ID, "home")
    entries = log_of(A)
    assert accepted_ids([*entries, entries[-1]], start) == {A: 1}


@pytest.mark.feature("D4")
def test_a_transaction_over_two_partitions_counts_once_where_both_have_its_commit() -> None:
    both = found_in(p=log_of(A, vote(B), outcome(B)), q=log_of(vote(B), outcome(B)))
    assert both == ({A: 1, B: 1}, 0, 0)


@pytest.mark.feature("D4")
@pytest.mark.parametrize("there", [(), (vote(B),), (vote(B), outcome(B, happened=False)), (outcome(B),)])
def test_one_that_one_of_its_partitions_lacks_is_torn_and_lost(there: tuple[Written, ...]) -> None:
    found = found_in(p=log_of(vote(B), outcome(B)), q=log_of(*there))
    assert tuple(found) == ({}, 1, 0)
    assert judge(claims([note(B)]), found.commits).lost == 1


@pytest.mark.feature("D4")
def test_an_aborted_one_has_not_happened() -> None:
    aborted = outcome(B, happened=False)
    assert found_in(p=log_of(vote(B), aborted), q=log_of(vote(B), aborted)) == ({}, 0, 0)
    assert found_in(p=log_of(vote(B), outcome(B), outcome(B)), q=log_of(vote(B), outcome(B))) == ({B: 1}, 0, 0)


@pytest.mark.feature("P13")
def test_an_object_that_came_to_another_partition_has_moved_there() -> None:
    """It keeps its reference; a new object of the same key has one of its own."""
    leaves = msgspec.structs.replace(OBJECT, op=DELETE, value=None, replaced=2)
    other = msgspec.structs.replace(OBJECT, ref=b"2" * 24)
    p = log_of(commit(A, OBJECT), vote(B, leaves), outcome(B), commit(C, other))
    assert found_in(p=p, q=log_of(vote(B, OBJECT), outcome(B))) == ({A: 1, B: 1, C: 1}, 0, 1)
