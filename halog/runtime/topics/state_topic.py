"""This module says what a state topic holds, and reads it; `halog.runtime.host.snapshotter` writes it.

A marker in the topic says up to where it is complete. A mark in the coordinator says the same, and where the topic
ended then: markers behind that are newer ones.

A marker of a later format is no marker to this version of halog: the log says it all, and where it does not any more,
that is a LaterRecordError. So is a row of a kind that is not known: it may hold an object (U1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import KEEP
from halog.core.log.transactions import Ledger
from halog.errors import LaterRecordError, LogError
from halog.ports import KeyedLog, TopicPartition
from halog.release import RELEASE
from halog.runtime.store.encoding import StoredPosition
from halog.runtime.topics import ledger_rows

FORMAT = 2
"""The format of the state topic's records. In 1 (which no marker and no mark names) objects stood under their
references. A snapshot of another format is not read: the copy would miss objects, and nobody would know."""

WITH_LEDGER = 3
"""Format 2 with rows of the ledger, which a halog that reads only 2 would miss. Written only where there are any."""

WITH_MAPPING = 4
"""Format 2 or 3, of a partition whose mapping has changed: a halog that reads only 2 and 3 would let older requests
in."""

_FIELDS = {(4, FORMAT), (5, WITH_LEDGER), (4, WITH_MAPPING), (5, WITH_MAPPING)}
"""How many numbers a mark of each format has: the last of five is that of the ledger's rows."""

NEAR = 2_000
"""How many offsets before its end the topic is searched for the last marker: behind a marker only blocks that have
expired are written with it."""

MARKER = b"p"
OBJECT = b"k"
OUTCOMES = b"t"
_KINDS = frozenset((MARKER, OBJECT, OUTCOMES, ledger_rows.LEDGER))

PAIR = struct.Struct(">Q16s")
"""Lsn and transaction id."""

Rows = Iterator[tuple[bytes, bytes | None]]


class SnapshotMarker(msgspec.Struct, frozen=True):
    """A `SnapshotMarker` says that everything up to `position` is in the state topic."""

    position: StoredPosition
    format: int = 1
    rows: int = 0
    """How many rows of the ledger go with it; none in format 2."""


class _Format(msgspec.Struct, frozen=True):
    """Holds what is known of a marker before its format is compared."""

    format: int = 1


_MARKER, _FORMAT = msgspec.msgpack.Decoder(SnapshotMarker), msgspec.msgpack.Decoder(_Format)


class TopicSnapshot(NamedTuple):
    """Holds what a state topic has: everything up to `position`, and perhaps some newer objects."""

    position: StoredPosition
    objects: dict[bytes, bytes]
    """By `k` + index key, as stored."""
    kept: list[tuple[bytes, int]]
    """Transaction ids and their lsns."""
    ledger: Ledger


def load(
    log: KeyedLog,
    name: str,
    at: TopicPartition,
    tp: TopicPartition,
    empty: ChainState,
    family: bytes = b"",
    pace: Callable[[Rows], Rows] = lambda rows: rows,
) -> TopicSnapshot | None:
    """Return what the state topic `tp` of partition `name` holds, whose log is at `at`; None where the log alone holds
    everything. `family`: only objects whose index keys begin with it. Raises LogError if neither has what was trimmed;
    LaterRecordError if a later version of halog wrote what has it."""
    start, _ = log.bounds(at)
    rows = pace(log.read_keyed(tp))
    wanted = OBJECT + family
    latest = dict(rows if not family else (row for row in rows if row[0][:1] != OBJECT or row[0].startswith(wanted)))
    marker = latest.pop(MARKER, None)
    marked = None if marker is None else read_marker(marker)
    position = None if marked is None else marked.position
    if marked is None or position is None or position.state.log_id != empty.log_id:
        if start > 0:
            if marker is not None:
                check_format(marker, tp)
            raise LogError(
                f"the log of {name} begins at offset {start} and no snapshot covers what is missing, or "
                f"none of format {FORMAT}; restore the state topic from a backup, or start a node that has a copy",
                partition=name,
            )
        return None
    if position.next_offset < start:
        raise LogError(f"the log of {name} begins at {start}, its snapshot ends at {position.next_offset}")
    check_kinds(latest, tp)
    blocks = [value for key, value in latest.items() if value and key[:1] == OUTCOMES]
    ids = {pair for block in blocks for pair in PAIR.iter_unpack(block)}
    kept = [(tx, lsn) for lsn, tx in sorted(ids) if lsn <= position.state.lsn][-KEEP:]
    objects = {key: value for key, value in latest.items() if value and key[:1] == OBJECT}
    try:
        ledger = ledger_rows.restored(latest, position.state.lsn, marked.rows, position.settled, position.mapping)
    except LaterRecordError as error:
        raise error.at(f"the state topic {tp.topic}/{tp.partition}") from None
    return TopicSnapshot(position, objects, kept, ledger)


def check_kinds(latest: Mapping[bytes, bytes | None], tp: TopicPartition) -> None:
    """Raise LaterRecordError if there is a row of a kind that is not known here: it may be what becomes of an
    object."""
    odd = next((key for key, value in latest.items() if value is not None and key[:1] not in _KINDS), None)
    if odd is not None:
        what = f"a row of kind {odd[:1].hex() or '-'}, which a later version of halog wrote"
        raise _later(tp, what, "rows of kinds k, l, p and t", head=odd[:16].hex())


def check_format(marker: bytes, tp: TopicPartition) -> None:
    """Raise LaterRecordError if a later version of halog wrote this marker."""
    form = _FORMAT.decode(marker).format
    if form > WITH_MAPPING:
        what = f"a marker of format {form}, which a later version of halog wrote"
        raise _later(tp, what, f"formats up to {WITH_MAPPING}", version=form)


def _later(tp: TopicPartition, what: str, reads: str, **evidence: object) -> LaterRecordError:
    return LaterRecordError(
        f"the state topic {tp.topic}/{tp.partition} has {what}: halog {RELEASE} reads {reads}. Upgrade the "
        "installation that says so",
        topic=tp.topic,
        index=tp.partition,
        **evidence,
    )


def marked_position(marker: bytes) -> StoredPosition | None:
    """Return what a marker in the state topic says; None if its topic is of another format."""
    marked = read_marker(marker)
    return None if marked is None else marked.position


def read_marker(data: bytes) -> SnapshotMarker | None:
    """Decode a marker; None if its topic is of another format. LaterRecordError if its history states a level that this
    halog does not know."""
    if _FORMAT.decode(data).format not in (FORMAT, WITH_LEDGER, WITH_MAPPING):
        return None
    found = _MARKER.decode(data)
    records.check_level(found.position.state.level)
    return found


def last_position(log: KeyedLog, tp: TopicPartition, mark: SnapshotMark) -> StoredPosition | None:
    """Return where a history stood at its last snapshot; None: there is none, or one of another format. At first only
    the end of the topic is read: the marker stands near where the mark says that the topic ended."""
    for start in dict.fromkeys((max(0, mark.end - NEAR), 0)):
        markers = [value for key, value in log.read_keyed(tp, start) if key == MARKER and value]
        if markers:
            return marked_position(markers[-1])
    return None


class SnapshotMark(NamedTuple):
    """Holds the last marker, as the coordinator knows it."""

    lsn: int = 0
    next_offset: int = 0
    end: int = 0
    """Where the state topic ended behind it: a topic that is shorter was created again, and holds nothing of it."""
    rows: int = 0
    """Rows of its ledger."""

    @staticmethod
    def from_bytes(mark: bytes) -> SnapshotMark:
        """Decode a mark; zeros for one that names no format, or another: then everything is written anew."""
        words = mark.split()
        fields = [int(word) for word in words if word.isdigit()]
        if len(fields) < len(words) or (len(fields), *fields[3:4]) not in _FIELDS:
            return SnapshotMark()
        lsn, next_offset, end, _, *rows = fields
        return SnapshotMark(lsn, next_offset, end, sum(rows))

    def to_bytes(self, format_: int) -> bytes:
        """Return the mark as the coordinator holds it."""
        return f"{self.lsn} {self.next_offset} {self.end} {format_}{f' {self.rows}' if self.rows else ''}".encode()


def marked_up_to(log: KeyedLog, tp: TopicPartition, mark: SnapshotMark, log_id: bytes) -> int:
    """Return the highest offset of that log that a marker in the state topic `tp` goes on from. The mark says it, or a
    newer marker, whose writer did not come to write the mark. LaterRecordError if a later version of halog wrote the
    last one: nobody here knows how far that goes."""
    if log.bounds(tp)[1] < mark.end:
        mark = SnapshotMark()
    markers = [value for key, value in log.read_keyed(tp, mark.end) if key == MARKER and value]
    if markers:
        check_format(markers[-1], tp)
    since = map(marked_position, markers)
    return max([mark.next_offset, *(p.next_offset for p in since if p is not None and p.state.log_id == log_id)])
