"""This module says which records of a log count, for somebody who reads it from outside.

It is pure: records in, verdicts out. The judge is the one automaton that every reader runs (`halog.core.log.chain`).
Where the log's beginning was trimmed, the records before the snapshot's marker are judged backwards: the marker knows
the hash of the last accepted record, each accepted record knows the one before it, so what is on that thread was
accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.errors import DivergedError, LaterRecordError, RecordFormatError
from halog.ports import Entry

NOWHERE = -1
"""The offset of what is in no log."""


class EntryVerdict(msgspec.Struct, frozen=True):
    """Holds one log entry: its record, and how it counts. `why` is set where the record or the history is broken.
    `offset` is NOWHERE for a record that is shown like one of the log and is not there."""

    offset: int
    timestamp_ms: int
    verdict: str
    record: records.Record | None
    why: str | None = None


class Judge:
    """A `Judge` judges entries in log order, from a known state on."""

    def __init__(self, state: ChainState) -> None:
        self.chain = Chain(state)
        self.stopped = False

    def judge(self, entry: Entry) -> EntryVerdict:
        """Return the entry's record and verdict; after a broken one nothing can be judged any more. LaterRecordError
        if a later version of halog wrote it: what comes behind it would be judged wrongly (U1)."""
        try:
            record = records.read(entry)
        except LaterRecordError:
            raise
        except RecordFormatError as error:
            self.stopped = True
            return EntryVerdict(entry.offset, entry.timestamp_ms, "unreadable", None, str(error))
        if self.stopped:
            return EntryVerdict(entry.offset, entry.timestamp_ms, "unknown", record)
        try:
            verdict = self.chain.read(record, digest(entry.value))
        except DivergedError as error:
            self.stopped = True
            return EntryVerdict(entry.offset, entry.timestamp_ms, "diverged", record, str(error))
        return EntryVerdict(entry.offset, entry.timestamp_ms, verdict.value, record)


def judge_backwards(entries: Sequence[Entry], last: bytes) -> Iterator[EntryVerdict]:
    """Yield the verdicts on entries before a marker, by the thread of hashes that ends in `last`. LaterRecordError if
    a later version of halog wrote one of them: it may be on the thread, and nobody here knows what was before it."""
    decoded = [(entry, _decode(entry)) for entry in entries]
    thread = _thread(decoded, last)
    highest = 0
    for entry, record in decoded:
        if record is None:
            yield EntryVerdict(entry.offset, entry.timestamp_ms, "unreadable", None, "bytes that are no record")
            continue
        verdict = Verdict.SKIPPED
        if digest(entry.value) in thread:
            opens = isinstance(record, records.EpochOpened | records.EpochMerged)
            verdict = Verdict.OPENED if opens else Verdict.ACCEPTED
        elif isinstance(record, records.MergePart):
            verdict = Verdict.HELD
        elif isinstance(record, records.EpochStarted) and record.header.epoch.number > highest:
            verdict = Verdict.STARTED
        highest = max(highest, record.header.epoch.number)
        yield EntryVerdict(entry.offset, entry.timestamp_ms, verdict.value, record)


def _decode(entry: Entry) -> records.Record | None:
    try:
        return records.read(entry)
    except LaterRecordError:
        raise
    except RecordFormatError:
        return None


def _thread(decoded: Iterable[tuple[Entry, records.Record | None]], last: bytes) -> set[bytes]:
    """Return the hashes of the accepted records, from the last one back."""
    before = {digest(entry.value): record.header.prev for entry, record in decoded if record is not None}
    thread: set[bytes] = set()
    while last in before and last not in thread:
        thread.add(last)
        last = before[last]
    return thread
