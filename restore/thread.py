"""This module reads what one site's log has accepted behind a point, backwards along the hashes (F4).

Each accepted record names the hash of the one before it, so the last one leads to all others. What is not on that
thread did not count: late appends, losers of elections, the second record of two mirrors. Nothing need be known of what
the log held before. Reading costs as much as lies behind the point, not as much as the log holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.errors import LogError
from halog.ports import Entry, Log, TopicPartition

PIECE = 2_000
"""Entries read in one go: some 50 ms, or as many seconds where the entries come from a bulk load."""

BESIDE = 32
"""Entries that are expected beside those that count: fences, late appends. If there are more, they are read next."""

READ_S = 30.0
"""How long to wait for the entries: brokers of another data centre may be busy, too."""


class Link(NamedTuple):
    """A `Link` is an accepted record. `parts`: those of the merge that it makes count, in order."""

    offset: int
    time_ms: int
    record: records.Record
    hash: bytes
    parts: tuple[records.MergePart, ...] = ()

    @property
    def lsn(self) -> int:
        return self.record.header.lsn


class Thread:
    """A `Thread` follows one history in one log, backwards from the record with hash `head`, which is before offset
    `end`.

    Across a merge it goes on with the branch that is in this log: the one of `site`, whose log it is; a third site has
    one of them. `about`: how many records are wanted, as far as is known; what lies before them is best not read at
    all. `beside`: how many others are expected among them.
    """

    def __init__(
        self,
        log: Log,
        tp: TopicPartition,
        end: int,
        head: bytes,
        site: str,
        about: int = PIECE - BESIDE,
        beside: int = BESIDE,
    ) -> None:
        self._log = log
        self._tp = tp
        self._site = site
        self._piece = about + beside
        self._from = end
        """Everything from here on was read."""
        self._wanted: tuple[bytes, ...] = (head,)
        """The hash of the next record. Where it is not known which branch is in this log, the hash of each: only one is
        there, or one of them goes back to the other."""
        self._back: list[Link] = []
        """The links that were found, the last one first."""
        self._parts: dict[EpochId, dict[int, records.MergePart]] = {}
        self._known: dict[bytes, Entry] = {}
        """Entries that were read and are so far not on the thread."""

    def back_to(self, enough: Callable[[Link], bool]) -> list[Link]:
        """Read on until a record is found of which this is true, and all parts it needs. Return that record and all
        behind it, in log order. LogError if the log begins behind it."""
        while not any(enough(link) for link in self._back[-1:]) or not self._is_whole():
            if not self._walk(enough):
                self._read()
        return [self._with_parts(link) for link in reversed(self._back)]

    def back(self) -> Iterator[Link | None]:
        """Yield one link after the other, the last one first, and None after each piece that was read.

        Use it instead of `back_to`: it keeps only a piece, or the pieces with the parts of one merge. LogError where
        the log begins behind the next link.
        """
        while True:
            link = self._next()
            while link is None or not self._has_parts(link.record):
                if link is None:  # parts stand before their merge: what is left is not on the thread
                    self._known.clear()
                    self._parts.clear()
                self._read()
                yield None
                link = link or self._next()
            yield self._with_parts(link)

    def _walk(self, enough: Callable[[Link], bool]) -> bool:
        """Take one more link from what was read, and say whether there was one."""
        if any(enough(link) for link in self._back[-1:]):
            return False
        link = self._next()
        if link is not None:
            self._back.append(link)
        return link is not None

    def _next(self) -> Link | None:
        """Return the link before the last one found; None: it was not read yet."""
        there = [hash_ for hash_ in self._wanted if hash_ in self._known]
        if not there:
            return None
        hash_ = max(there, key=lambda one: self._known[one].offset)
        entry = self._known.pop(hash_)
        record = records.read(entry)
        link = Link(entry.offset, entry.timestamp_ms, record, hash_)
        self._wanted = self._before(record)
        return link

    def _before(self, record: records.Record) -> tuple[bytes, ...]:
        """Return the hash of the record before it, in this log."""
        if isinstance(record, records.EpochMerged):
            here = tuple(b.hash for b in record.branches if b.epoch.site == self._site)
            return here[:1] or tuple(b.hash for b in record.branches)
        return (record.header.prev,)

    def _read(self) -> None:
        begins = self._log.bounds(self._tp)[0]
        if self._from <= begins:
            raise LogError(
                f"the log of {self._tp.topic}/{self._tp.partition} begins at offset {begins}, behind what is to be "
                "read of it: it was trimmed",
                begins=begins,
            )
        start = max(begins, self._from - min(PIECE, self._piece))
        self._piece *= 2
        for entry in self._log.read(self._tp, start, self._from, READ_S):
            self._known[digest(entry.value)] = entry
            if records.is_part(entry.value):
                part = records.read(entry)
                assert isinstance(part, records.MergePart)
                self._parts.setdefault(part.header.epoch, {})[part.index] = part
        self._from = start

    def _is_whole(self) -> bool:
        return all(self._has_parts(link.record) for link in self._back)

    def _has_parts(self, record: records.Record) -> bool:
        if not isinstance(record, records.EpochMerged):
            return True
        return len(self._parts.get(record.header.epoch, ())) >= record.parts

    def _with_parts(self, link: Link) -> Link:
        if not isinstance(link.record, records.EpochMerged):
            return link
        parts = self._parts.get(link.record.header.epoch, {})
        return link._replace(parts=tuple(parts[i] for i in range(link.record.parts)))
