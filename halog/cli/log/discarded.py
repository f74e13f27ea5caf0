"""The discarded transactions of a partition are listed here, record by record, with what became of them (X9).

There are two kinds. The first are records of the log that readers skipped. Nothing is judged here: the one automaton
that every reader runs says whether a record counts; for a decision of a transaction over several partitions the ledger
says it. The second never reached the log; the nodes that had them in flight told of them (`halog.cli.log.unlogged`).
The module is pure.

A discarded record says that an attempt did not count. It does not say that its transaction did not happen: the same id
may have been committed by another attempt, before or behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from halog.cli.log.unlogged import UnloggedTransaction, found_in
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.log.merge_parts import taken
from halog.core.log.transactions import DecidedTransaction, Ledger
from halog.events import Event
from halog.runtime.topics.log_judge import EntryVerdict

DISCARDED, UNDECIDED = "discarded", "undecided"

_PASSED_OVER = frozenset({Verdict.SKIPPED.value, Verdict.VOIDED.value})
_COUNTED = frozenset({Verdict.ACCEPTED.value, Verdict.OPENED.value})


class DiscardedRecord(msgspec.Struct, frozen=True):
    """Holds a discarded record. `outcome` is discarded, undecided, or "committed as lsn N". Undecided means that no
    higher epoch has opened yet, so it may still be committed anew; or that it is prepared anew, and in doubt. `told` is
    what its node told of it, where the log does not have it."""

    judged: EntryVerdict
    outcome: str
    told: UnloggedTransaction | None = None


def discarded(judged: Iterable[EntryVerdict], events: Iterable[Event] = ()) -> Iterator[DiscardedRecord]:
    """Yield the skipped transactions among these records, which are all there are, in log order. Then yield those of
    this partition that the events tell and the log does not have, in the order of the events."""
    passed: list[tuple[EntryVerdict, records.Commit | records.Prepare]] = []
    history = _History()
    for item in judged:
        record = item.record
        if isinstance(record, records.Commit | records.Prepare) and item.verdict in _PASSED_OVER:
            passed.append((item, record))
        elif record is not None:
            history.read(item, record)
    for item, record in passed:
        yield DiscardedRecord(item, history.outcome(record.header.tx, record.header.epoch.number))
    logged = {(r.header.epoch.number, r.header.lsn, r.header.tx) for _, r in passed}
    for told in found_in(events):
        if told.key not in logged:
            yield DiscardedRecord(told.judged(), history.outcome(told.tx, told.epoch), told)


class _History:
    """Knows which transactions happened, by the records that count."""

    def __init__(self) -> None:
        self._led = 0
        self._happened: dict[bytes, int] = {}
        self._ledger = Ledger()
        self._parts: dict[EpochId, dict[int, records.MergePart]] = {}
        self._whole: bool | None = None
        """Says whether the log's beginning is there; if not, a decision may be of a `Prepare` that was trimmed."""

    def outcome(self, tx: bytes, epoch: int) -> str:
        """Return what became of a transaction with an attempt in that epoch that did not count."""
        if tx in self._happened:
            return f"committed as lsn {self._happened[tx]}"
        return DISCARDED if self._led > epoch and tx not in self._ledger.undecided else UNDECIDED

    def read(self, item: EntryVerdict, record: records.Record) -> None:
        """Read the next record that was not skipped."""
        if self._whole is None:
            self._whole = item.offset == 0
        if isinstance(record, records.MergePart):
            self._parts.setdefault(record.header.epoch, {})[record.index] = record
        elif item.verdict in _COUNTED:
            self._count(record, item.offset)

    def _count(self, record: records.Record, offset: int) -> None:
        header = record.header
        if isinstance(record, records.EpochOpened | records.EpochMerged):
            self._led = header.epoch.number
        if isinstance(record, records.EpochMerged):
            self._merged(record, offset)
        elif isinstance(record, records.Commit):
            self._happened[header.tx] = header.lsn
        elif isinstance(record, records.Outcome):
            self._decided(record, offset)
        else:
            self._ledger.accepted(record, offset)

    def _decided(self, record: records.Outcome, offset: int) -> None:
        tx, ledger = record.header.tx, self._ledger
        unknown = not self._whole and tx not in ledger.decided and not ledger.expired(tx)
        counts = isinstance(ledger.accepted(record, offset), DecidedTransaction) or unknown
        if counts and record.commit:
            self._happened.setdefault(tx, record.header.lsn)

    def _merged(self, record: records.EpochMerged, offset: int) -> None:
        parts = self._parts.get(record.header.epoch, {})
        meant = taken(record, [part for _, part in sorted(parts.items()) if part.index < record.parts])
        self._parts.clear()
        self._ledger.merged(meant, offset)
        for tx in (*meant.happened, *(tx for tx, commit in meant.decided if commit)):
            self._happened.setdefault(tx, record.header.lsn)
