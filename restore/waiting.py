"""This module finds which of the conflicts that merges left to an operator are still open, from a log read in its order
(M2, M3).

Law: a deferred conflict is open as long as its object stands as the merge left it. Anything that gives its key another
version closes it: a commit, whoever made it, or another merge. A commit of `halog conflicts settle` names its merge by
the transaction's id, and also writes what stands already. Where nothing stands and nothing is to, no version can move
on. There a commit without changes closes the conflict; its id names the merge and the key.

A merge that was undone has no open conflicts. They are open again when its undoing is undone.

All of this is in the log alone, so every reader at every site finds the same conflicts open.

It is pure.
"""

from __future__ import annotations

from typing import NamedTuple

from halog.core.ids import TX_BYTES, EpochId, digest
from halog.core.log.merge_parts import taken
from halog.core.log.outcomes import STAMP_BYTES
from halog.core.log.records import Commit, EpochMerged, Merged, MergePart, Record
from halog.core.log.transactions import DecidedTransaction, Ledger
from restore.report import ReportEntry, entry
from restore.undoings import Undoings

SETTLED = "settled"
CHANGED = "changed since"
MERGED = "merged again"
UNDONE = "the merge was undone"


class ConflictEnd(NamedTuple):
    """A `ConflictEnd` says why a conflict is open no more, in one of the words above, and the lsn of what closed it; 0:
    no record of its key did."""

    why: str
    lsn: int


class MergeReport:
    """A `MergeReport` is a merge, with what it told, and what became of the conflicts that it left to an operator."""

    def __init__(self, name: bytes, lsn: int, merged: tuple[Merged, ...]) -> None:
        self.name = name
        self.merged = merged
        self.lsn = lsn
        """The version of everything that it made to stand."""
        self.ending = ending(name)
        self.deferred = {m.key: told for m in merged if (told := entry(m)).why}
        self.closed: dict[bytes, ConflictEnd] = {}
        self.undone = False

    @property
    def open(self) -> list[ReportEntry]:
        """Return the conflicts that are still open, by key."""
        return [told for key, told in sorted(self.deferred.items()) if self.closing(key) is None]

    def closing(self, key: bytes) -> ConflictEnd | None:
        """Return what closed this deferred conflict; None: it is open."""
        return ConflictEnd(UNDONE, 0) if self.undone else self.closed.get(key)


class MergeReports:
    """A `MergeReports` keeps the reports in a log, as far as it was read."""

    def __init__(self) -> None:
        self.found: dict[bytes, MergeReport] = {}
        """The reports by name, in the log's order."""
        self._parts: dict[EpochId, dict[int, MergePart]] = {}
        self._ledger = Ledger()
        self._undoings = Undoings()
        self._awaited: dict[bytes, MergeReport] = {}
        """The merge whose conflict the next change of a key closes. There is one for each key, since a merge closes
        those before it."""
        self._nothing: dict[bytes, tuple[MergeReport, bytes]] = {}
        """The conflict that a commit without changes closes, by the end of its transaction's id."""

    def read(self, record: Record, offset: int, *, counts: bool) -> None:
        """Read the next record of the log. `counts`: it is a part of the history."""
        if isinstance(record, MergePart):
            self._parts.setdefault(record.header.epoch, {})[record.index] = record
        elif counts and isinstance(record, EpochMerged):
            self._merged(record, offset)
        elif counts and isinstance(record, Commit):
            self._committed(record)
        elif counts:
            meant = self._ledger.accepted(record, offset)
            if isinstance(meant, DecidedTransaction) and meant.commit is not None:
                self._committed(meant.commit)

    def _merged(self, record: EpochMerged, offset: int) -> None:
        held = self._parts.pop(record.header.epoch, {})
        merged = taken(record, [held[i] for i in range(record.parts) if i in held])
        self._ledger.merged(merged, offset)
        made = self.found[record.merge] = MergeReport(record.merge, record.header.lsn, merged.merged)
        for m in made.merged:
            self._close(m.key, MERGED, made.lsn)
        self._awaited |= dict.fromkeys(made.deferred, made)
        absent = (key for key, told in made.deferred.items() if told.then is None)
        self._nothing |= {ending(made.name, key): (made, key) for key in absent}
        self._undoings.read(record)
        for report in self.found.values():
            report.undone = self._undoings.is_undone(report.name)

    def _committed(self, commit: Commit) -> None:
        its, lsn = commit.header.tx[STAMP_BYTES:], commit.header.lsn
        for change in commit.changes:
            awaited = self._awaited.get(change.key)
            if awaited is not None:
                self._close(change.key, SETTLED if its == awaited.ending else CHANGED, lsn)
        if not commit.changes and its in self._nothing:
            report, key = self._nothing[its]
            if self._awaited.get(key) is report:
                self._close(key, SETTLED, lsn)

    def _close(self, key: bytes, why: str, lsn: int) -> None:
        report = self._awaited.pop(key, None)
        if report is not None:
            report.closed[key] = ConflictEnd(why, lsn)


def ending(merge: bytes, key: bytes = b"") -> bytes:
    """Return the end of the id of a transaction that settles conflicts of a merge. With a key, it is for the one under
    which nothing stands, nor is to."""
    return digest(b"settle" + len(merge).to_bytes(2, "big") + merge + key)[: TX_BYTES - STAMP_BYTES]
