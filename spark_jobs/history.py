"""The accepted history of one partition, read on an executor: log entries in, changes of objects out.

Pure; `halog.core.chain` and `halog.core.ledger` decide. A commit that a later epoch appended again is accepted once
only, and what a transaction over several partitions changes is changed where its `Outcome` stands. `Carried` is all
that must be known to go on later, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from halog.core import records
from halog.core.chain import Chain, ChainState, Verdict
from halog.core.ids import digest
from halog.core.ledger import Decided, Ledger
from halog.ports import Entry
from halog.runtime import ledger_rows
from halog.runtime.verdicts import judge_backwards


class Step(NamedTuple):
    """An accepted record, and what it changes. `time_ms`: the broker's, in ms since 1970."""

    lsn: int
    epoch: int
    offset: int
    time_ms: int
    tx: bytes
    changes: tuple[records.Change, ...]


class Carried(msgspec.Struct, frozen=True):
    """Where a history stands: what a reader that goes on at `next_offset` must know."""

    next_offset: int
    state: ChainState
    ledger: tuple[bytes, ...] = ()
    horizon: bytes = b""

    def pack(self) -> bytes:
        """MessagePack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(data: bytes) -> Carried:
        """The inverse of `pack`."""
        return _CARRIED.decode(data)


_CARRIED = msgspec.msgpack.Decoder(Carried)


class History:
    """`read` each entry in log order; RecordFormatError and DivergedError say that the log cannot be read on."""

    def __init__(self, carried: Carried) -> None:
        self._chain = Chain(carried.state)
        lsn, rows = carried.state.lsn, carried.ledger
        known = {key: value for key, value, _ in ledger_rows.keyed(lsn, rows)}
        self._ledger = ledger_rows.restored(known, lsn, len(rows), carried.horizon)
        self.next_offset = carried.next_offset

    @property
    def state(self) -> ChainState:
        """Of the chain."""
        return self._chain.state

    @property
    def lsn(self) -> int:
        """Of the last accepted record."""
        return self._chain.state.lsn

    def read(self, entry: Entry) -> Step | None:
        """What the entry does; None for one that does not count, or was read before."""
        if entry.offset < self.next_offset:
            return None
        record = records.decode(entry.value)
        verdict = self._chain.read(record, digest(entry.value))
        self.next_offset = entry.offset + 1
        if verdict not in (Verdict.ACCEPTED, Verdict.OPENED):
            return None
        return _step(self._ledger, record, entry)

    def carried(self) -> Carried:
        """To go on from here."""
        rows = tuple(ledger_rows.rows(self._ledger))
        return Carried(self.next_offset, self._chain.state, rows, self._ledger.horizon)


def _step(ledger: Ledger, record: records.Record, entry: Entry) -> Step:
    """What an accepted record does. Commits need not be asked about."""
    changes: tuple[records.Change, ...] = ()
    if type(record) is records.Commit:
        changes = record.changes
    elif type(meant := ledger.accepted(record, entry.offset)) is Decided and meant.commit is not None:
        changes = meant.commit.changes
    h = record.header
    return Step(h.lsn, h.epoch.number, entry.offset, entry.timestamp_ms, h.tx, changes)


def steps_before(entries: Iterable[Entry], marked: ChainState) -> list[Step]:
    """What `entries`, which end where a snapshot's marker stands, tell of the history in front of it, by the thread of
    hashes that ends in the marker's own. Without a hole up to the marker; a decision whose `Prepare` was trimmed away
    changes something nobody knows, so nothing up to it is told."""
    ledger = Ledger()
    found: list[Step] = []
    listed = list(entries)
    for entry, judged in zip(listed, judge_backwards(listed, marked.hash), strict=True):
        record = judged.record
        if record is None or judged.verdict not in (Verdict.ACCEPTED.value, Verdict.OPENED.value):
            continue
        unknown = type(record) is records.Outcome and record.commit and not _prepared(ledger, record.header.tx)
        step = _step(ledger, record, entry)
        if unknown:
            found.clear()
        else:
            found.append(step)
    return found


def _prepared(ledger: Ledger, tx: bytes) -> bool:
    """Was it prepared, or decided, in what was read? A second decision changes nothing."""
    return tx in ledger.undecided or tx in ledger.decided
