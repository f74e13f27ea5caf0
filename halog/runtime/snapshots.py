"""The state topic: what a new copy starts from, so that the log need not be read, or kept, from its beginning.

One compacted partition beside each log partition. Keys:
    k <index key>  an object as stored (no value: deleted), header `lsn`
    t <block>      transaction ids of 1,000 consecutive lsns: (lsn, id) pairs
    l <lsn> <n>    of the ledger at the marker of that lsn (`halog.runtime.ledger_rows`)
    p              the marker: everything up to its position is in the topic

The active copy writes what changed since its last marker in short Kafka transactions, reads it back `read_committed`,
and only then writes the marker in a later one: an abort may be torn, so nothing unread is trusted. The partition's
transactional id fences an older writer. With its writer made, a node looks whether its epoch still stands: one that was
deposed without knowing it must not fence the newer one and write old objects over new. Trimming stays behind the
marker, every registered holder, and a margin from which a restarted node goes on warm. Restore reads the topic to its
end, then the log from the marker; replay is blind and ends past the highest lsn seen, so objects newer than the marker
do no harm. What the topic held goes to the store in one step, position and all: a restore that dies half-way has left
nothing there, and is made again.
"""

from __future__ import annotations

import itertools
import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from halog.core.chain import ChainState
from halog.core.ledger import Ledger
from halog.core.outcomes import KEEP, Outcomes
from halog.core.table import PartitionTable
from halog.errors import HalogError, LogError, RefusedError
from halog.ports import Coordinator, KeyedLog, Log, LogTransaction, Snapshot, TopicPartition, UnknownResult, Versioned
from halog.runtime import ledger_rows, retention
from halog.runtime.copy import Copy
from halog.runtime.objects import Item, StoredPosition

logger = logging.getLogger("halog.snapshots")

CHUNK = 2_000
"""Objects per Kafka transaction: an open one hides its rows from readers, so it must be short."""

BLOCK = 1_000
"""Transaction ids per outcome block."""

FORMAT = 2
"""Of the state topic's records. In 1 (which no marker and no mark names) objects stood under their references. What
another format's snapshot holds is not read: it would be a copy that misses objects, and nobody would know."""

WITH_LEDGER = 3
"""The same with rows of the ledger, which a halog that reads only 2 would miss. Written only where there are any."""

WITH_MAPPING = 4
"""Either, in a partition whose mapping has changed: a halog that reads only 2 and 3 would let older requests in."""

_FIELDS = {(4, FORMAT), (5, WITH_LEDGER), (4, WITH_MAPPING), (5, WITH_MAPPING)}
"""How many numbers a mark of each format has: the last of five is that of the ledger's rows."""

MARKER = b"p"
_OBJECT = ord("k")
_PAIR = struct.Struct(">Q16s")
_BLOCK = struct.Struct(">Q")

Keyed = tuple[bytes, bytes | None, dict[str, bytes]]
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


class Policy(msgspec.Struct, frozen=True):
    """When to take a snapshot, and how much log to keep behind it."""

    every_records: int
    every_ms: int
    keep_records: int


class Known(NamedTuple):
    """The last marker this node knows of."""

    lsn: int
    end: int
    """Where the state topic ended behind it: a topic that is shorter was created again, and holds nothing of it."""
    at: float
    """When it was taken or read, in monotonic seconds."""
    rows: int = 0
    """Of its ledger."""


class Snapshots:
    """Takes and restores snapshots. One thread calls `tend`; `restore` may run beside it."""

    def __init__(
        self, log: Log, coordinator: Coordinator, state_topic: Callable[[str], str], cluster: str, policy: Policy
    ) -> None:
        self.log, self.coordinator, self.cluster, self.policy = log, coordinator, cluster, policy
        self._state_topic = state_topic
        self._writers: dict[str, LogTransaction] = {}
        self._marked: dict[str, Known] = {}

    def _tp(self, copy: Copy) -> TopicPartition:
        return TopicPartition(self._state_topic(copy.core.table.policy), copy.tp.partition)

    # --- taking ---

    def tend(self, copies: Iterable[Copy]) -> None:
        """Take a snapshot of every copy that is due. Errors are logged; the next turn tries again."""
        for copy in copies:
            try:
                if not copy.serving:
                    self._retire(copy)
                elif self._due(copy):
                    self.take(copy)
            except (HalogError, UnknownResult) as e:
                logger.warning("no snapshot of %s this time: %s", copy.name, e)
                self._retire(copy)
            except Exception:  # of this copy only
                logger.exception("no snapshot of %s this time", copy.name)
                self._retire(copy)

    def _retire(self, copy: Copy) -> None:
        """Not active (any more): stop counting; the next active starts from the marker."""
        copy.objects.dirty = None
        self._marked.pop(copy.name, None)
        writer = self._writers.pop(copy.name, None)
        if writer is not None:
            writer.close()

    def _due(self, copy: Copy) -> bool:
        known = self._known_marker(copy)
        behind = copy.core.chain.state.lsn - known.lsn
        waited = time.monotonic() - known.at >= self.policy.every_ms / 1000
        return behind >= self.policy.every_records or (behind > 0 and waited)

    def _known_marker(self, copy: Copy) -> Known:
        known = self._marked.get(copy.name)
        if known is None:
            found = self._read_mark(copy)
            lsn, end, rows = (0, 0, 0) if found is None else _numbers(found.data)
            known = self._marked[copy.name] = Known(lsn, end, time.monotonic(), rows)
        return known

    def _since(self, copy: Copy) -> int:
        """The lsn up to which the state topic is complete: everything above it is to be written."""
        known = self._known_marker(copy)
        if known.lsn and self.log.bounds(self._tp(copy))[1] < known.end:
            logger.warning("the state topic of %s was created again: everything is written to it", copy.name)
            copy.objects.dirty = None
            return 0
        return known.lsn

    def _path(self, copy: Copy) -> str:
        return f"snapshots/{copy.name}"

    def _read_mark(self, copy: Copy) -> Versioned | None:
        return self.coordinator.get(self._path(copy))

    def take(self, copy: Copy) -> None:
        """Write what changed since the last marker, verify it, mark it, trim the log behind it."""
        since = self._since(copy)
        with copy.lock:
            copy.objects.save()
            view = copy.node.store.snapshot()
            dirty, copy.objects.dirty = copy.objects.dirty, set()
        try:
            position, ledger = copy.objects.load_position(view), copy.objects.load_ledger(view)
            if position is None:
                return
            self._check_epoch(copy, position)
            self._write(copy, self._changes(copy, view, dirty, since))
            self._mark(copy, position, since, ledger)
        except BaseException:
            copy.objects.dirty = None
            raise
        self._trim(copy, position, ledger)
        copy.node.store.write(self._forget(copy, position))

    def _forget(self, copy: Copy, position: StoredPosition) -> list[Item]:
        lsn = position.state.lsn
        return [*copy.objects.forget_tombstones(lsn), *copy.objects.forget_outcomes(lsn - KEEP)]

    def _changes(self, copy: Copy, view: Snapshot, dirty: set[bytes] | None, since: int) -> Iterator[Keyed]:
        """Objects and outcomes above lsn `since`, as the state topic holds them."""
        objects = copy.objects
        if dirty is None:
            for key, data in objects.objects(view):
                if _lsn(data) > since:
                    yield b"k" + key, data, {"lsn": data[:8]}
            deleted = dict.fromkeys(key for lsn, key in objects.tombstones(view) if lsn > since)
            gone = [key for key in deleted if objects.object_bytes(view, key) is None]  # else created again since
        else:
            gone = []
            for key in sorted(dirty):  # the store is read in its order, and a restore has little to sort
                data_ = objects.object_bytes(view, key)
                if data_ is None:
                    gone.append(key)
                else:
                    yield b"k" + key, data_, {"lsn": data_[:8]}
        for key in gone:
            yield b"k" + key, None, {}
        yield from self._outcome_blocks(copy, view, since)

    def _outcome_blocks(self, copy: Copy, view: Snapshot, since: int) -> Iterator[Keyed]:
        first = since // BLOCK * BLOCK
        items = copy.objects.outcomes_between(view, max(0, first - 1))
        for block, group in itertools.groupby(items, key=lambda item: item[0] // BLOCK):
            yield b"t" + _BLOCK.pack(block), b"".join(_PAIR.pack(lsn, tx) for lsn, tx in group), {}

    def _expired_blocks(self, since: int, lsn: int) -> Iterator[Keyed]:
        """Blocks that the marker at `lsn` does without and the one before, at `since`, did not."""
        for block in range(max(0, since - KEEP) // BLOCK, max(0, lsn - KEEP) // BLOCK):
            yield b"t" + _BLOCK.pack(block), None, {}

    def _check_epoch(self, copy: Copy, position: StoredPosition) -> None:
        """With the writer at hand: whoever becomes active after this look makes its own later, and fences ours."""
        self._writer(copy)
        path = f"partitions/{copy.name}"
        self.coordinator.sync(path)
        found = self.coordinator.get(path)
        if found is None or PartitionTable.from_bytes(found.data).epoch != position.state.epoch:
            raise RefusedError(f"the epoch of {copy.name} is over: another node takes its snapshots")

    def _writer(self, copy: Copy) -> LogTransaction:
        writer = self._writers.get(copy.name)
        if writer is None:
            writer = self._writers[copy.name] = self.log.transaction(f"halog.{self.cluster}.{copy.name}")
        return writer

    def _write(self, copy: Copy, changes: Iterator[Keyed]) -> None:
        """Write in chunks, and read each back before it counts."""
        tp = self._tp(copy)
        for chunk in _batched(changes, CHUNK):
            start = self.log.bounds(tp)[1]
            self._writer(copy).write(tp, chunk)
            seen = dict(self.log.read_keyed(tp, start))
            if any(key not in seen or seen[key] != value for key, value, _ in chunk):
                raise LogError(f"the state topic of {copy.name} does not hold what was committed to it")

    def _mark(self, copy: Copy, position: StoredPosition, since: int, ledger: Ledger) -> None:
        tp = self._tp(copy)
        lsn, rows, last = position.state.lsn, ledger_rows.rows(ledger), self._known_marker(copy)
        self._write(copy, ledger_rows.keyed(lsn, rows))
        form = WITH_MAPPING if position.mapping else WITH_LEDGER if rows else FORMAT
        data = msgspec.msgpack.encode(Marker(position, form, len(rows)))
        start = self.log.bounds(tp)[1]
        self._writer(copy).write(tp, [(MARKER, data, {}), *self._expired_blocks(since, position.state.lsn)])
        if not any(key == MARKER and value == data for key, value in self.log.read_keyed(tp, start)):
            raise RefusedError(f"the marker of {copy.name} was not committed")
        end = self.log.bounds(tp)[1]
        mark = f"{lsn} {position.next_offset} {end} {form}{f' {len(rows)}' if rows else ''}".encode()
        found = self._read_mark(copy)
        if found is None:
            self.coordinator.create(self._path(copy), mark)
        elif not since or int(found.data.split()[0]) < position.state.lsn:
            self.coordinator.set(self._path(copy), mark, found.version)
        self._marked[copy.name] = Known(lsn, end, time.monotonic(), len(rows))
        if last.rows and last.lsn != lsn:
            self._write(copy, ledger_rows.gone(last.lsn, last.rows))

    def _trim(self, copy: Copy, position: StoredPosition, ledger: Ledger) -> None:
        """Delete log behind the marker, a margin, what is in doubt at the marker or decided and not confirmed by all
        participants, and whatever a registered holder still needs."""
        leading = copy.core.leading
        open_ = [u.offset for u in ledger.undecided.values()]
        open_ += [d.offset for tx, d in ledger.decided.items() if leading is None or tx in leading.votes.unconfirmed]
        first = self.log.bounds(copy.tp)[0]
        wanted = min([position.next_offset - self.policy.keep_records, *open_])
        if wanted > first:
            before = retention.allowed(self.coordinator, copy.name, wanted)
            if before > first:
                self.log.trim(copy.tp, before)

    # --- restoring ---

    def restore(
        self, copy: Copy, policy: str, empty: ChainState, pace: Callable[[Rows], Rows] = lambda rows: rows
    ) -> tuple[ChainState, int, Outcomes, int]:
        """(state, next offset, outcomes, last offset) a new copy begins with; its objects are in the store. `pace`: the
        same rows, in the time they may take."""
        name = f"restore-{copy.node.me.node}"
        retention.hold_the_rest(self.coordinator, copy.name, name, self.log.bounds(copy.tp)[0], "a copy is restored")
        try:
            return self._restore(copy, TopicPartition(self._state_topic(policy), copy.tp.partition), empty, pace)
        finally:
            with suppress(HalogError, UnknownResult):  # gone with our session, or it will be: what was restored stands
                retention.release(self.coordinator, copy.name, name)

    def _restore(
        self, copy: Copy, tp: TopicPartition, empty: ChainState, pace: Callable[[Rows], Rows]
    ) -> tuple[ChainState, int, Outcomes, int]:
        found = load(self.log, copy.name, copy.tp, tp, empty, pace=pace)
        if found is None:
            return empty, 0, Outcomes(), -1
        position = found.position
        copy.objects.restore(found.objects, found.kept, position, found.ledger)
        return position.state, position.next_offset, Outcomes(found.kept, position.horizon), position.last_offset

    def close(self) -> None:
        """Let go of the writers."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


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
    wanted = b"k" + family
    latest = dict(rows if not family else (row for row in rows if row[0][:1] != b"k" or row[0].startswith(wanted)))
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
    blocks = [value for key, value in latest.items() if value and key[:1] == b"t"]
    ids = {lsn: tx for block in blocks for lsn, tx in _PAIR.iter_unpack(block)}
    kept = [(tx, lsn) for lsn, tx in sorted(ids.items()) if lsn <= position.state.lsn][-KEEP:]
    objects = {key: value for key, value in latest.items() if value and key[0] == _OBJECT}
    ledger = ledger_rows.restored(latest, position.state.lsn, marked.rows, position.settled, position.mapping)
    return Loaded(position, objects, kept, ledger)


def marked_position(marker: bytes) -> StoredPosition | None:
    """What a marker in the state topic says; None if its topic is of another format."""
    marked = read_marker(marker)
    return None if marked is None else marked.position


def read_marker(data: bytes) -> Marker | None:
    """None if its topic is of another format."""
    return _MARKER.decode(data) if _FORMAT.decode(data).format in (FORMAT, WITH_LEDGER, WITH_MAPPING) else None


def _numbers(mark: bytes) -> tuple[int, int, int]:
    """(lsn, end, rows) of a mark; zeros for one that names no format, or another: everything is written anew."""
    words = mark.split()
    fields = [int(word) for word in words if word.isdigit()]
    if len(fields) < len(words) or (len(fields), *fields[3:4]) not in _FIELDS:
        return 0, 0, 0
    return fields[0], fields[2], sum(fields[4:])


def _lsn(stored: bytes) -> int:
    return int.from_bytes(stored[:8], "big")


def _batched(items: Iterator[Keyed], size: int) -> Iterator[tuple[Keyed, ...]]:
    while batch := tuple(itertools.islice(items, size)):
        yield batch
