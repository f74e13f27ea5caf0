"""This module reads the objects of one partition at a moment, on an executor: as a node restores a copy, then rolled to
the moment.

The state topic gives the objects as of its marker (and perhaps some newer ones), the log the rest. For an earlier
moment the log is undone by the before-images its changes keep: the first change of an object behind the moment says
what it was. Nothing is held meanwhile. If the log is trimmed while it is read, there is a newer marker, and the reading
begins again. Nothing here knows Spark.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from halog.backend import CommittedObject
from halog.core.log.chain import ChainState
from halog.core.log.records import Change
from halog.errors import LogError, RefusedError
from halog.ports import Entry, KeyedLog, TopicPartition
from halog.runtime.host.snapshotter import TopicSnapshot, load
from halog.runtime.store.encoding import unpack_object
from halog.runtime.topics import ledger_rows
from spark_jobs.history import History, HistoryState, Step, steps_before

PIECE = 20_000
"""How many log entries are asked for at once: well under a second."""
PIECE_S = 30.0
"""How long one piece may take: longer than a broker's restart."""
NO_OBJECTS = b"\xff" * 9
"""No index key begins like this."""
ATTEMPTS = 5
"""How often reading begins again: a log that is trimmed faster than it is read would be read for ever."""


class Readable(KeyedLog, Protocol):
    """A `Readable` is what reading objects needs of a `Log`."""

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]: ...


class Place(msgspec.Struct, frozen=True):
    """A `Place` is a partition, as far as readers must know it."""

    name: str
    index: int
    log: str
    """The log's topic."""
    state: str
    """The state topic."""
    log_id: str
    site: str
    home: str = ""
    """The other site in which its history begins."""

    @property
    def empty(self) -> ChainState:
        """Return where its history begins."""
        return ChainState(bytes.fromhex(self.log_id), self.site, owner=self.home)


class Moment(msgspec.Struct, frozen=True):
    """A `Moment` is everything up to this lsn, or appended up to this time (ms since 1970); neither: now."""

    lsn: int | None = None
    time_ms: int | None = None

    def has(self, lsn: int, time_ms: int) -> bool:
        """Say whether a record belongs to it."""
        if self.lsn is not None:
            return lsn <= self.lsn
        return self.time_ms is None or time_ms <= self.time_ms

    @property
    def is_now(self) -> bool:
        return self.lsn is None and self.time_ms is None


NOW = Moment()


class Objects(NamedTuple):
    """An `Objects` is the objects of a partition as of `lsn`, by index key."""

    lsn: int
    found: dict[bytes, CommittedObject]


class Trimmed(Exception):
    """The log begins behind what was to be read next."""


def entries(log: Readable, tp: TopicPartition, start: int, end: int) -> Iterator[Entry]:
    """Yield the log's entries in [start, end). `Trimmed` if it does not begin there any more."""
    for at in range(start, end, PIECE):
        if log.bounds(tp)[0] > at:
            raise Trimmed
        yield from log.read(tp, at, min(end, at + PIECE), PIECE_S)
    if end > start and log.bounds(tp)[0] > start:
        raise Trimmed  # trimmed while it was read: what was missing was left out in silence


def objects_at(log: Readable, place: Place, family: bytes, moment: Moment) -> Objects:
    """Return the objects of one family (8 bytes; b"": all). RefusedError for a moment before what is kept, or that is
    not there yet; LogError where the log cannot be read."""
    for _ in range(ATTEMPTS):
        try:
            return _objects_at(log, place, family, moment)
        except Trimmed:
            continue
    raise LogError(f"the log of {place.name} is trimmed faster than it is read; hold it (`halog log hold`)")


def start_of(place: Place, loaded: TopicSnapshot | None) -> HistoryState:
    """Return where the log is to be read on behind what the state topic holds."""
    if loaded is None:
        return HistoryState(0, place.empty)
    position = loaded.position
    rows = tuple(ledger_rows.rows(loaded.ledger))
    return HistoryState(position.next_offset, position.state, rows, position.settled)


def begins_at(log: KeyedLog, place: Place) -> tuple[HistoryState, int]:
    """Return where a log can be followed from, and its end. The start is its beginning, or its snapshot's marker where
    that was trimmed. LogError if there is no such marker."""
    tp = TopicPartition(place.log, place.index)
    start, end = log.bounds(tp)
    if start == 0:
        return HistoryState(0, place.empty), end
    state = TopicPartition(place.state, place.index)
    return start_of(place, load(log, place.name, tp, state, place.empty, NO_OBJECTS)), end


def _objects_at(log: Readable, place: Place, family: bytes, moment: Moment) -> Objects:
    at, state = TopicPartition(place.log, place.index), TopicPartition(place.state, place.index)
    begin = log.bounds(at)[0]
    loaded = load(log, place.name, at, state, place.empty, family)
    history = History(start_of(place, loaded))
    end = log.bounds(at)[1]  # after the state topic was read: it holds nothing the log does not have
    known = {} if loaded is None else loaded.objects
    objects = {key[1:]: unpack_object(key[1:], data) for key, data in known.items()}
    earlier: list[Step] = []
    if not moment.is_now:
        earlier = steps_before(entries(log, at, begin, history.next_offset), history.state)
    rolled = _Rolled(place.name, objects, family, moment, history.lsn)
    later = (step for entry in entries(log, at, history.next_offset, end) if (step := history.read(entry)))
    for step in itertools.chain(earlier, later):
        rolled.take(step)
    return Objects(rolled.position(), rolled.objects)


class _Rolled:
    """It takes objects as of lsn `marked`, and applies or undoes steps until they are those of the moment."""

    def __init__(
        self, name: str, objects: dict[bytes, CommittedObject], family: bytes, moment: Moment, marked: int
    ) -> None:
        self.objects = objects
        self._name = name
        self._family = family
        self._moment = moment
        self._marked = marked
        self._last = self._at = marked
        self._over = False
        """Is the moment behind us? Later records are not in it, whatever the broker's clock says of them."""
        self._begun = False
        self._undone: set[bytes] = set()

    def take(self, step: Step) -> None:
        """Take the next step of the history; the first one says what is kept."""
        if not self._begun:
            self._begun = True
            self._check_kept(step)
        self._over = self._over or not self._moment.has(step.lsn, step.time_ms)
        self._last = step.lsn
        if not self._over:
            self._at = step.lsn
        for change in step.changes:
            if change.key.startswith(self._family):
                self._change(step, change)

    def _change(self, step: Step, change: Change) -> None:
        if self._over:
            if change.key not in self._undone:
                self._undone.add(change.key)
                self._undo(step, change)
        elif step.lsn > self._marked:
            if change.value is None:
                self.objects.pop(change.key, None)
            else:
                self.objects[change.key] = CommittedObject(change.ref, step.lsn, change.value, change.key)

    def _undo(self, step: Step, change: Change) -> None:
        """Undo the first change behind the moment: what it replaced is what was there."""
        now = self.objects.get(change.key)
        if change.replaced < 0:
            self.objects.pop(change.key, None)
        elif change.before is not None:
            self.objects[change.key] = CommittedObject(change.ref, change.replaced, change.before, change.key)
        elif now is None or now.version != change.replaced:
            raise RefusedError(
                f"{self._name}: what lsn {step.lsn} replaced is not in the log, because its policy keeps no "
                f"before-images: the earliest is lsn {self._marked}",
                partition=self._name,
                earliest_lsn=self._marked,
            )

    def _check_kept(self, step: Step) -> None:
        self._at = step.lsn - 1
        if step.lsn == 1 or self._moment.is_now:
            return
        lsn, time_ms = self._moment.lsn, self._moment.time_ms
        if (lsn is not None and lsn < self._at) or (time_ms is not None and time_ms < step.time_ms):
            asked = f"lsn {lsn}" if time_ms is None else time_text(time_ms)
            raise RefusedError(
                f"{asked} is not kept any more in {self._name}: the earliest is lsn {self._at}, or "
                f"{time_text(step.time_ms)}",
                partition=self._name,
                earliest_lsn=self._at,
                earliest_ms=step.time_ms,
            )

    def position(self) -> int:
        """Return the lsn of the moment."""
        lsn, time_ms = self._moment.lsn, self._moment.time_ms
        if lsn is not None and not self._begun and lsn < self._marked:
            raise RefusedError(f"lsn {lsn} is not kept any more in {self._name}: the earliest is lsn {self._marked}")
        if lsn is not None and lsn > self._last:
            raise RefusedError(f"lsn {lsn} of {self._name} is not there yet: its log ends at lsn {self._last}")
        if time_ms is not None and not self._begun and self._marked:
            raise RefusedError(f"nothing of the log of {self._name} is kept, so that no times are known: read it as is")
        return self._at


def time_text(time_ms: int) -> str:
    """Return the time in UTC, to the millisecond."""
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat(" ", "milliseconds")
