"""This module reads the accepted history of one partition on an executor: log entries go in, changes of objects come
out.

It is pure; `halog.core.log.chain` and `halog.core.log.transactions` decide. A commit that a later epoch appended again
is accepted only once. A transaction over several partitions changes its objects where its `Outcome` stands.
`HistoryState` is all that must be known to go on later, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from halog.core.ids import NO_TX, EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.merge_parts import continues
from halog.core.log.transactions import DecidedTransaction, Ledger
from halog.ports import Entry
from halog.runtime.topics import ledger_rows
from halog.runtime.topics.log_judge import judge_backwards
from restore.report import changes_of


class Step(NamedTuple):
    """A `Step` is an accepted record, and what it changes. `time_ms`: the broker's, in ms since 1970."""

    lsn: int
    epoch: int
    offset: int
    time_ms: int
    tx: bytes
    changes: tuple[records.Change, ...]


class CountedRecord(NamedTuple):
    """A `CountedRecord` is a record that counts, the hash of its bytes, and what it does."""

    record: records.Record
    hash: bytes
    step: Step
    merged: tuple[records.Merged, ...] = ()
    """The states that a merge sets."""
    brought: tuple[bytes, ...] = ()
    """Transactions that it brings from elsewhere."""
    happened: tuple[bytes, ...] = ()
    """Transactions that are known as committed from here on."""
    voted: int = 0
    """The lsn of the vote that is decided; 0: there is none."""


class HistoryState(msgspec.Struct, frozen=True):
    """A `HistoryState` says where a history stands: what a reader that goes on at `next_offset` must know."""

    next_offset: int
    state: ChainState
    ledger: tuple[bytes, ...] = ()
    horizon: bytes = b""
    parts: tuple[bytes, ...] = ()
    """Parts of a merge that may still count, as the log has them."""

    def pack(self) -> bytes:
        """Encode it as MessagePack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(data: bytes) -> HistoryState:
        """Read what `pack` wrote."""
        return _CARRIED.decode(data)


_CARRIED = msgspec.msgpack.Decoder(HistoryState)


class History:
    """A `History` reads each entry in log order; RecordFormatError and DivergedError say that the log cannot be read
    on; the former, as LaterRecordError, where a later version of halog wrote the record.

    `linked`: only the chain is wanted, so commits come without their changes, at a third of the price.
    """

    def __init__(self, carried: HistoryState, *, linked: bool = False) -> None:
        self._chain = Chain(carried.state)
        self._decode = records.read_linked if linked else records.read
        lsn, rows = carried.state.lsn, carried.ledger
        known = {key: value for key, value, _ in ledger_rows.keyed(lsn, rows)}
        self._ledger = ledger_rows.restored(known, lsn, len(rows), carried.horizon)
        self.next_offset = carried.next_offset
        self._parts = list(carried.parts)
        for data in self._parts:
            self._chain.read(records.decode(data), digest(data))

    @property
    def state(self) -> ChainState:
        """Return the state of the chain."""
        return self._chain.state

    @property
    def lsn(self) -> int:
        """Return the lsn of the last accepted record."""
        return self._chain.state.lsn

    @property
    def ledger(self) -> Ledger:
        """Return the transactions over several partitions."""
        return self._ledger

    def read(self, entry: Entry) -> Step | None:
        """Return what the entry does; None for one that does not count, or was read before."""
        found = self.accepted(entry)
        return None if found is None else found.step

    def accepted(self, entry: Entry) -> CountedRecord | None:
        """Return the same as `read`, with the record."""
        if entry.offset < self.next_offset:
            return None
        record, hash_, was = self._decode(entry), digest(entry.value), self._chain.state
        verdict = self._chain.read(record, hash_)
        self.next_offset = entry.offset + 1
        if verdict is Verdict.HELD:
            self._parts.append(entry.value)
        elif verdict is not Verdict.SKIPPED:
            self._parts.clear()
        if verdict not in (Verdict.ACCEPTED, Verdict.OPENED):
            return None
        if type(record) is records.EpochMerged and self._chain.merged is not None:
            merged = self._chain.merged
            self._ledger.merged(merged, entry.offset)
            second = not continues(was, record.branches[0])
            step = _step(self._ledger, record, entry, changes_of(merged.merged, second=second))
            brought = (*merged.happened, *(tx for tx, commit in merged.decided if commit))
            return CountedRecord(record, hash_, step, merged.merged, brought, merged.happened)
        vote = self._ledger.undecided.get(record.header.tx) if type(record) is records.Outcome else None
        step = _step(self._ledger, record, entry)
        happened = (step.tx,) if step.changes and step.tx != NO_TX else ()
        return CountedRecord(
            record, hash_, step, happened=happened, voted=0 if vote is None else vote.prepare.header.lsn
        )

    def carried(self) -> HistoryState:
        """Return what is needed to go on from here."""
        rows = tuple(ledger_rows.rows(self._ledger))
        return HistoryState(self.next_offset, self._chain.state, rows, self._ledger.horizon, tuple(self._parts))


def _step(ledger: Ledger, record: records.Record, entry: Entry, merged: Iterable[records.Change] = ()) -> Step:
    """Return what an accepted record does; `merged`: the changes of a merge. Commits need no look at the ledger."""
    changes = tuple(merged)
    if type(record) is records.Commit:
        changes = record.changes
    elif type(meant := ledger.accepted(record, entry.offset)) is DecidedTransaction and meant.commit is not None:
        changes = meant.commit.changes
    h = record.header
    return Step(h.lsn, h.epoch.number, entry.offset, entry.timestamp_ms, h.tx, changes)


def steps_before(entries: Iterable[Entry], marked: ChainState) -> list[Step]:
    """Return what `entries` tell of the history in front of a snapshot's marker, by the thread of hashes that ends in
    the marker's own.

    `entries` end where the marker stands. There is no hole up to the marker. A decision whose `Prepare` was trimmed
    away changes something unknown, so nothing up to it is told.
    """
    ledger = Ledger()
    found: list[Step] = []
    listed, parts = list(entries), _Parts()
    for entry, judged in zip(listed, judge_backwards(listed, marked.hash), strict=True):
        record = judged.record
        parts.read(record)
        if record is None or judged.verdict not in (Verdict.ACCEPTED.value, Verdict.OPENED.value):
            continue
        unknown = type(record) is records.Outcome and record.commit and not _prepared(ledger, record.header.tx)
        step = _step(ledger, record, entry, changes_of(parts.merged(record)))
        if unknown:
            found.clear()
        else:
            found.append(step)
    return found


class _Parts:
    """Parts of merges are collected here, as they come."""

    def __init__(self) -> None:
        self._of: dict[EpochId, dict[int, records.MergePart]] = {}

    def read(self, record: records.Record | None) -> None:
        if isinstance(record, records.MergePart):
            self._of.setdefault(record.header.epoch, {})[record.index] = record

    def merged(self, record: records.Record) -> list[records.Merged]:
        """Return what the record makes count."""
        its = self._of.get(record.header.epoch, {}) if isinstance(record, records.EpochMerged) else {}
        return [m for i in sorted(its) for m in its[i].merged]


def _prepared(ledger: Ledger, tx: bytes) -> bool:
    """Say whether it was prepared, or decided, in what was read. A second decision changes nothing."""
    return tx in ledger.undecided or tx in ledger.decided
