"""A dumb reader of one site's log, written from protocol.md R1-R3, F1, F2, F5 and not from halog/core/log/chain.py.

A log is its own site's from the beginning (or from an `EpochStarted` of that site on, above all of its earlier ones)
until a `SiteSwitched` that counts; then what continues the history counts, whoever wrote it, once it is opened. A merge
counts where all its parts were read before it, in one term, and one of its branches ends where the history ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from halog.core.ids import NO_HASH, NO_TX, EpochId, digest
from halog.core.log.records import (
    Commit,
    EpochMerged,
    EpochOpened,
    EpochStarted,
    HandedOver,
    Merged,
    MergePart,
    Record,
    SiteSwitched,
    decode,
)
from tests.sim.violation import demand

HOME = "west"


class Object(NamedTuple):
    """As it stands."""

    ref: bytes
    value: bytes
    version: int


Objects = dict[bytes, Object]


class Written(NamedTuple):
    """Who wrote a key: a transaction, or a merge (None); behind so many records."""

    tx: bytes | None
    place: int


class Committed(NamedTuple):
    """A commit that counts."""

    record: Commit
    before: Objects


class Merge(NamedTuple):
    """A merge that counts, and what stood before it in this log."""

    record: EpochMerged
    merged: tuple[Merged, ...]
    place: int
    """So many records are before it."""
    before: Objects
    happened: frozenset[bytes]
    """The transactions that it says have happened: readers of the other branch believe it."""


class Read:
    """What a log says."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.records: list[Record] = []
        self.digests: list[bytes] = []
        self.lineage: tuple[tuple[EpochId, int], ...] = ()
        self.now: Objects = {}
        self.written: dict[bytes, list[Written]] = {}
        self.commits: dict[bytes, Committed] = {}
        self.merges: list[Merge] = []
        self.happened: dict[bytes, int] = {}
        """Transactions, and behind so many records."""
        self.states: list[Objects] = [{}]
        """What stood behind so many records."""
        self.lsn = 0

    @property
    def objects(self) -> Objects:
        return self.now

    @property
    def pairs(self) -> Iterable[tuple[bytes, Record]]:
        """Hash and record."""
        return zip(self.digests, self.records, strict=True)

    @property
    def head(self) -> bytes:
        return self.digests[-1] if self.digests else NO_HASH

    def take(self, record: Record, hash_: bytes) -> None:
        """The next one that counts."""
        self.records.append(record)
        self.digests.append(hash_)
        self.lsn = record.header.lsn
        if isinstance(record, EpochOpened):
            self.lineage = (*self.lineage, (record.header.epoch, record.header.lsn))
        elif isinstance(record, Commit) and record.header.tx != NO_TX:
            self._commit(record)
        self.states.append(self.now)

    def _commit(self, record: Commit) -> None:
        tx, lsn = record.header.tx, record.header.lsn
        demand(tx not in self.happened, f"P5: {tx.hex()} happened twice at {self.site}")
        self.happened[tx] = len(self.records) - 1
        self.commits[tx] = Committed(record, self.now)
        self.now = dict(self.now)
        for c in record.changes:
            found = self.now.pop(c.key, None)
            there = -1 if found is None else found.version
            demand(there == c.replaced, f"P4: lsn {lsn} at {self.site} changes {c.key!r} of {c.replaced}, not {there}")
            if c.value is not None:
                self.now[c.key] = Object(c.ref, c.value, lsn)
            self.written.setdefault(c.key, []).append(Written(tx, len(self.records) - 1))

    def join(self, record: EpochMerged, hash_: bytes, parts: Sequence[MergePart]) -> None:
        """A merge that counts."""
        merged = tuple(m for part in parts for m in part.merged)
        place = len(self.records)
        happened = frozenset(tx for part in parts for tx in part.happened)
        self.merges.append(Merge(record, merged, place, self.now, happened))
        for tx in happened:
            self.happened.setdefault(tx, place)
        self.lineage = (*record.branches[0].lineage, (record.header.epoch, record.header.lsn))
        self.now = dict(self.now)
        for m in merged:
            self.now.pop(m.key, None)
            if m.value is not None:
                self.now[m.key] = Object(m.ref, m.value, record.header.lsn)
            self.written.setdefault(m.key, []).append(Written(None, place))
        self.take(record, hash_)


class Reader:
    """Goes through one log; what it says so far is `read`."""

    def __init__(self, site: str) -> None:
        self.read = Read(site)
        self.own = site == HOME
        self.started = 0
        """The highest epoch of this site that was started."""
        self.epoch: EpochId | None = None
        self.opened = self.ended = False
        self.closed_for = ""
        self.parts: dict[EpochId, dict[int, tuple[bytes, MergePart]]] = {}

    def entry(self, data: bytes) -> None:
        record, hash_ = decode(data), digest(data)
        epoch = record.header.epoch
        if isinstance(record, EpochStarted):
            if epoch.site == self.read.site and epoch.number > self.started:
                self.started = epoch.number
                self.epoch = epoch
                self.own = True
                self.opened = False
                self.ended = False
                self.closed_for = ""
                self.parts = {}
        elif self.own:
            if epoch == self.epoch:
                self._own(record, hash_)
        elif epoch.site != self.read.site or epoch.number > self.started:
            self._mirrored(record, hash_)

    def _own(self, record: Record, hash_: bytes) -> None:
        if isinstance(record, SiteSwitched):
            if not self.ended or self.closed_for == record.to:
                self.own = False
                self.opened = True
                self.ended = False
                self.parts = {}
            return
        if self.ended:
            return
        if isinstance(record, MergePart):
            self._hold(record, hash_)
        elif isinstance(record, EpochMerged):
            fits = record.branches[0].hash == self.read.head and not self.opened
            self.ended = not (fits and self._join(record, hash_))
        else:
            opens = isinstance(record, EpochOpened)
            self.ended = not self._fits(record) or (opens and self.opened)
            if not self.ended:
                self._take(record, hash_)

    def _mirrored(self, record: Record, hash_: bytes) -> None:
        if isinstance(record, MergePart):
            self._hold(record, hash_)
        elif isinstance(record, EpochMerged):
            if any((b.lsn, b.hash) == (self.read.lsn, self.read.head) for b in record.branches):
                self._join(record, hash_)
        elif self._fits(record):
            goes_on = bool(self.read.lineage) and record.header.epoch == self.read.lineage[-1][0] and not self.ended
            if goes_on or isinstance(record, EpochOpened):
                self.ended = False
                self._take(record, hash_)

    def _fits(self, record: Record) -> bool:
        return record.header.lsn == self.read.lsn + 1 and record.header.prev == self.read.head

    def _take(self, record: Record, hash_: bytes) -> None:
        self.opened = self.opened or isinstance(record, EpochOpened)
        if isinstance(record, HandedOver):
            self.ended = True
            self.closed_for = record.to
        self.parts = {}
        self.read.take(record, hash_)

    def _hold(self, record: MergePart, hash_: bytes) -> None:
        self.parts.setdefault(record.header.epoch, {})[record.index] = hash_, record

    def _join(self, record: EpochMerged, hash_: bytes) -> bool:
        found = self.parts.get(record.header.epoch, {})
        inner = [found[i] for i in range(record.parts) if i in found]
        if len(inner) != record.parts or digest(b"".join(h for h, _ in inner)) != record.parts_hash:
            return False
        self.epoch = record.header.epoch
        self.opened = True
        self.ended = False
        self.parts = {}
        self.read.join(record, hash_, [part for _, part in inner])
        return True


def read(site: str, entries: Sequence[bytes]) -> Read:
    """From its beginning."""
    reader = Reader(site)
    for data in entries:
        reader.entry(data)
    return reader.read
