"""What a state topic holds, and how it is read: see `halog.runtime.host.snapshotter`, which writes it.

A marker in the topic says up to where it is complete, and a mark in the coordinator says the same and where the topic
ended then: markers behind that are newer ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from halog.core.log.chain import ChainState
from halog.core.log.outcomes import KEEP
from halog.core.log.transactions import Ledger
from halog.errors import LogError
from halog.ports import KeyedLog, TopicPartition
from halog.runtime.store.encoding import StoredPosition
from halog.runtime.topics import ledger_rows

FORMAT = 2
"""Of the state topic's records. In 1 (which no marker and no mark names) objects stood under their references. What
another format's snapshot holds is not read: it would be a copy that misses objects, and nobody would know."""

WITH_LEDGER = 3
"""The same with rows of the ledger, which a halog that reads only 2 would miss. Written only where there are any."""

WITH_MAPPING = 4
"""Either, in a partition whose mapping has changed: a halog that reads only 2 and 3 would let older requests in."""

_FIELDS = {(4, FORMAT), (5, WITH_LEDGER), (4, WITH_MAPPING), (5, WITH_MAPPING)}
"""How many numbers a mark of each format has: the last of five is that of the ledger's rows."""

NEAR = 2_000
"""Offsets: behind a marker only blocks that have expired are written with it."""

MARKER = b"p"
OBJECT = b"k"
OUTCOMES = b"t"

PAIR = struct.Struct(">Q16s")
"""Lsn and transaction id."""

Rows = Iterator[tuple[bytes, bytes | None]]


class Marker(msgspec.Struct, frozen=True):
    """Everything up to `position` is in the state topic."""

    position: StoredPosition
    format: int = 1
    rows: int = 0
    """How many rows of the ledger go with it; none in format 2."""


class _Format(msgspec.Struct, frozen=True):
    """Of a marker only this is known before it is compared."""

    format: int = 1


_MARKER, _FORMAT = msgspec.msgpack.Decoder(Marker), msgspec.msgpack.Decoder(_Format)


class Loaded(NamedTuple):
    """What a state topic holds: everything up to `position`, and perhaps some newer objects."""

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
) -> Loaded | None:
    """The state topic `tp` of partition `name`, whose log is at `at`; None where the log alone holds everything.
    `family`: only objects whose index keys begin with it. LogError if neither has what was trimmed."""
    start, _ = log.bounds(at)
    rows = pace(log.read_keyed(tp))
    wanted = OBJECT + family
    latest = dict(rows if not family else (row for row in rows if row[0][:1] != OBJECT or row[0].startswith(wanted)))
    marker = latest.pop(MARKER, None)
    marked = None if marker is None else read_marker(marker)
    position = None if marked is None else marked.position
    if marked is None or position is None or position.state.log_id != empty.log_id:
        if start > 0:
            raise LogError(
                f"the log of {name} begins at offset {start} and no snapshot covers what is missing, or "
                f"none of format {FORMAT}; restore the state topic from a backup, or start a node that has a copy",
                partition=name,
            )
        return None
    if position.next_offset < start:
        raise LogError(f"the log of {name} begins at {start}, its snapshot ends at {position.next_offset}")
    blocks = [value for key, value in latest.items() if value and key[:1] == OUTCOMES]
    ids = {pair for block in blocks for pair in PAIR.iter_unpack(block)}
    kept = [(tx, lsn) for lsn, tx in sorted(ids) if lsn <= position.state.lsn][-KEEP:]
    objects = {key: value for key, value in latest.items() if value and key[:1] == OBJECT}
    ledger = ledger_rows.restored(latest, position.state.lsn, marked.rows, position.settled, position.mapping)
    return Loaded(position, objects, kept, ledger)


def marked_position(marker: bytes) -> StoredPosition | None:
    """What a marker in the state topic says; None if its topic is of another format."""
    marked = read_marker(marker)
    return None if marked is None else marked.position


def read_marker(data: bytes) -> Marker | None:
    """None if its topic is of another format."""
    return _MARKER.decode(data) if _FORMAT.decode(data).format in (FORMAT, WITH_LEDGER, WITH_MAPPING) else None


def last_position(log: KeyedLog, tp: TopicPartition, mark: Mark) -> StoredPosition | None:
    """Where a history stood at its last snapshot; None: there is none, or one of another format. Not the whole topic
    is read: the marker stands near where the mark says that the topic ended."""
    for start in dict.fromkeys((max(0, mark.end - NEAR), 0)):
        markers = [value for key, value in log.read_keyed(tp, start) if key == MARKER and value]
        if markers:
            return marked_position(markers[-1])
    return None


class Mark(NamedTuple):
    """The last marker, as the coordinator knows it."""

    lsn: int = 0
    next_offset: int = 0
    end: int = 0
    """Where the state topic ended behind it: a topic that is shorter was created again, and holds nothing of it."""
    rows: int = 0
    """Of its ledger."""

    @staticmethod
    def from_bytes(mark: bytes) -> Mark:
        """Zeros for one that names no format, or another: everything is written anew."""
        words = mark.split()
        fields = [int(word) for word in words if word.isdigit()]
        if len(fields) < len(words) or (len(fields), *fields[3:4]) not in _FIELDS:
            return Mark()
        lsn, next_offset, end, _, *rows = fields
        return Mark(lsn, next_offset, end, sum(rows))

    def to_bytes(self, format_: int) -> bytes:
        """As the coordinator holds it."""
        return f"{self.lsn} {self.next_offset} {self.end} {format_}{f' {self.rows}' if self.rows else ''}".encode()


def marked_up_to(log: KeyedLog, tp: TopicPartition, mark: Mark, log_id: bytes) -> int:
    """The highest offset of that log that a marker in the state topic `tp` goes on from: what the mark says, and what
    was marked since by somebody who did not come to say so."""
    if log.bounds(tp)[1] < mark.end:
        mark = Mark()
    since = (marked_position(value) for key, value in log.read_keyed(tp, mark.end) if key == MARKER and value)
    return max([mark.next_offset, *(p.next_offset for p in since if p is not None and p.state.log_id == log_id)])
