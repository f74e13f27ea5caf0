"""This module counts how many objects a history has touched behind the place where it parted from another one (M1).

Its log is read backwards once, along the hashes, from where the history ends to that place; from there on only what is
new is read. Objects are counted, and not compared: whether the other branch has touched the same objects, or has the
same transaction (`restore.branches`), makes no difference here. Counting ends after so many records: then the number is
a lower bound, and nothing more is read.

It counts in pieces, so that the caller can stop, and leave the processor to others in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halog.core.ids import digest
from halog.core.keys.directory import is_entry
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.transactions import DecidedTransaction, Ledger, UndecidedTransaction
from halog.ports import Entry, Log, TopicPartition
from restore.branch import stands_on
from restore.divergence import Place
from restore.thread import READ_S, Link, Thread

PIECE = 2_000
"""Entries read in one go: some 50 ms."""

MOST = 100_000
"""How many records of one branch are counted: some seconds of reading, less than 10 MB of keys."""


class TouchCounter:
    """A `TouchCounter` follows one site's log of a partition from a place in it, and counts what its history has
    touched behind a fork.

    `log` may be set anew between two calls: another connection to the same log.
    """

    def __init__(
        self,
        site: str,
        log: Log,
        tp: TopicPartition,
        state: ChainState,
        offset: int,
        undecided: Iterable[UndecidedTransaction] = (),
        most: int = MOST,
    ) -> None:
        """Begin at `offset`. What is before it led to `state`, and left `undecided` in doubt."""
        self.site = site
        self.log = log
        self.tp = tp
        self.offset = offset
        self.place: Place | None = None
        """The place behind which it counts; None: nothing is counted yet."""
        self.at_least = False
        """Was there more than could be read?"""
        self._chain = Chain(state)
        self._ledger = Ledger(tuple(undecided))
        self._most = most
        self._keys: set[int] = set()
        """A mark of each object."""
        self._records = 0

    @property
    def state(self) -> ChainState:
        """Return where the history ends, as far as it was read."""
        return self._chain.state

    @property
    def objects(self) -> int:
        return len(self._keys)

    # --- forwards ---

    def read_on(self, end: int) -> Iterator[None]:
        """Follow the history up to offset `end`; the count grows with it. DeadlineError."""
        while self.offset < end and not self.at_least:
            upto = min(end, self.offset + PIECE)
            for entry in self.log.read(self.tp, self.offset, upto, READ_S):
                self._read(entry)
                self.offset = entry.offset + 1
            self.offset = upto
            yield

    def _read(self, entry: Entry) -> None:
        record, offset = records.read(entry), entry.offset
        if self._chain.read(record, digest(entry.value)) not in (Verdict.ACCEPTED, Verdict.OPENED):
            return
        meant, merged = self._ledger.accepted(record, offset), self._chain.merged
        if isinstance(record, records.EpochMerged):
            assert merged is not None
            self._ledger.merged(merged, offset)
            self._count(m.key for m in merged.merged)
        elif isinstance(meant, DecidedTransaction):
            self._count(() if meant.commit is None else (c.key for c in meant.commit.changes))
        else:
            self._count(_committed(record))

    def _count(self, keys: Iterable[bytes]) -> None:
        """Count one more record, if it is behind the place."""
        if self.place is None:
            return
        self._keys.update(_marks(keys))
        self._records += 1
        self.at_least = self.at_least or self._records >= self._most

    # --- backwards ---

    def count_behind(self, place: Place) -> Iterator[None]:
        """Count anew all that the history has behind `place`, a record of it. LogError where the log begins behind
        that; DeadlineError."""
        self._keys = set()
        self._records = 0
        self.at_least = False
        self.place = None
        found = _Back()
        if self.state.head != place:
            for link in Thread(self.log, self.tp, self.offset, self.state.hash, self.site).back():
                if link is None:
                    yield
                    continue
                found.take(link)
                self._records += 1
                found.there = found.there or stands_on(link, place)
                self.at_least = self._records >= self._most
                if self.at_least or (found.there and not found.wanted) or link.lsn <= 1:
                    break
        self._keys = found.keys
        self.place = place


class _Back:
    """What is met on the way back is collected here. A vote is met after its decision, and may be before the fork."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.wanted: set[bytes] = set()
        """Transactions that were decided behind the fork, and whose votes were not met yet."""
        self.there = False
        """Was the fork met?"""

    def take(self, link: Link) -> None:
        """Take the next link on the way back."""
        record = link.record
        if isinstance(record, records.Prepare):
            if record.header.tx in self.wanted:
                self.wanted.discard(record.header.tx)
                self.keys.update(_marks(c.key for c in record.changes))
        elif self.there:
            return
        elif isinstance(record, records.Outcome):
            self.wanted |= {record.header.tx} if record.commit else set()
        else:
            self.keys.update(_marks(m.key for part in link.parts for m in part.merged))
            self.keys.update(_marks(_committed(record)))


def mark(key: bytes) -> int:
    """Return eight bytes that stand for the key, as a number."""
    return int.from_bytes(digest(key)[:8], "big")


def _marks(keys: Iterable[bytes]) -> Iterator[int]:
    """Yield the mark of each object. Entries of a directory do not count."""
    return (mark(key) for key in keys if not is_entry(key))


def _committed(record: records.Record) -> Iterator[bytes]:
    if isinstance(record, records.Commit):
        yield from (c.key for c in record.changes)
