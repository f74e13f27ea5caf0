"""The journal keeps what it was told; the log is held against it without mercy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from halog.core import records
from halog.core.chain import ChainState
from halog.core.ids import EpochId, digest
from halog.demo.journal import ACKNOWLEDGED, DENIED, UNKNOWN, Journal, Note, claims, read
from halog.demo.verify_log import accepted_ids, judge
from halog.ports import Entry, TopicPartition

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


def note(tx: bytes, outcome: str = ACKNOWLEDGED, row: int = 7) -> Note:
    return Note(row, "flight", "flights-3", tx, outcome)


def test_notes_are_read_back_but_for_a_line_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.write(note(A))
    journal.write(note(B, UNKNOWN))
    journal.close()
    with (tmp_path / "j").open("a") as f:
        f.write("9 flight flights-1 0a0b")
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


def log_of(*txs: bytes) -> list[Entry]:
    """An epoch's records, chained as a writer would."""
    tp, entries = TopicPartition("t", 0), []

    def add(record: records.Record) -> bytes:
        data = records.encode(record)
        entries.append(Entry(tp, len(entries), data, 0))
        return digest(data)

    add(records.EpochStarted(records.Header(LOG_ID, EPOCH), EpochId(0, "", 0), 0))
    prev = add(records.EpochOpened(records.Header(LOG_ID, EPOCH, 1), ()))
    for lsn, tx in enumerate(txs, 2):
        prev = add(records.Commit(records.Header(LOG_ID, EPOCH, lsn, prev, tx), ()))
    return entries


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
