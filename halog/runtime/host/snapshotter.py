"""A new copy is made from the state topic; so the log need not be read, or kept, from its beginning.

One compacted partition beside each log partition. Keys:
    k <index key>  an object as stored (no value: deleted), header `lsn`
    t <block>      transaction ids of 1,000 consecutive lsns: (lsn, id) pairs
    l <lsn> <n>    of the ledger at the marker of that lsn (`halog.runtime.topics.ledger_rows`)
    p              the marker: everything up to its position is in the topic

The active copy writes what changed since its last marker in short Kafka transactions, reads it back `read_committed`,
and only then writes the marker in a later one: an abort may be torn, so nothing unread is trusted. The partition's
transactional id fences an older writer. With its writer made, a node looks whether its epoch still stands: one that was
deposed without knowing it must not fence the newer one and write old objects over new. Trimming stays behind the
marker, every registered holder, and a margin from which a restarted node goes on warm. Restore reads the topic to its
end, then the log from the marker; replay is blind and ends past the highest lsn seen, so objects newer than the marker
do no harm. What the topic held goes to the store in one step, position and all: a restore that dies half-way has left
nothing there, and is made again.

Where another site serves the partition, nobody here is active and no epoch says who writes. The node that mirrors it
takes its snapshots, by the coordinator's word (`halog.runtime.sites.mirror_assignment`); for a moment two may believe
that. The law is that the marker never goes back, and that no row is older than it. Both follow from one look, with the
writer made: it has fenced everybody before, so a marker of theirs is in the topic now or never will be; who comes later
fences this one, and looks himself. Whoever finds a marker of a higher offset of this site's log than he has read is
stale, and writes nothing. Else what he writes is as new as any marker, and newer rows of somebody who did not come to
his marker may be overwritten: his log goes on from here and brings them again. The mark in the coordinator may lag
behind the marker, so what the topic got since is read, too. Offsets are compared, not lsns: they grow while epochs
begin and end, and as the log changes hands (F1). So the same look holds when this site takes over, or has given its log
away: an active node has read the `EpochStarted` behind which nobody mirrors, and a mirror the `SiteSwitched` behind the
fence that ended every epoch before. A copy that has read that its own site took over, and is not active, writes
nothing. The marker holds the whole chain state, its owner and fence, as any reader has it at that offset: a copy made
from it judges what comes behind as all others do.

A site that only mirrors does not know which commits decided here all participants have; they stand in the ledger's
rows, from which whoever takes over spreads them again, so its log need not be kept for them. Before it trims its log it
says where another site can begin to read it: `halog.metadata.mirror_starts`.
"""

from __future__ import annotations

import itertools
import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from halog.core.log.chain import ChainState
from halog.core.log.outcomes import KEEP, Outcomes
from halog.core.log.transactions import Ledger
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.errors import HalogError, LogError, RefusedError
from halog.metadata import log_holds as retention, mirror_starts as places
from halog.ports import Coordinator, Log, LogTransaction, Snapshot, TopicPartition, UnknownResult, Versioned
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc.pages import pieces
from halog.runtime.store.object_table import Item, StoredPosition
from halog.runtime.topics import ledger_rows, topic_names
from halog.runtime.topics.state_topic import (
    FORMAT,
    MARKER as MARKER,
    OBJECT,
    OUTCOMES,
    PAIR,
    WITH_LEDGER,
    WITH_MAPPING,
    Rows,
    SnapshotMark,
    SnapshotMarker,
    TopicSnapshot as TopicSnapshot,
    load as load,
    marked_position as marked_position,
    marked_up_to,
    read_marker as read_marker,
)

logger = logging.getLogger("halog.snapshots")

T = TypeVar("T")


class SnapshotSizes(NamedTuple):
    """Says how much of a snapshot is in one row, in one transaction, and in the topic."""

    chunk: int = 2_000
    """Objects per Kafka transaction: an open one hides its rows from readers, so it must be short."""
    chunk_bytes: int = 16_000_000
    """Bytes of these objects."""
    block: int = 1_000
    """Lsns per outcome block: so many transaction ids, but for a merge, whose one lsn has many."""
    ids: int = 20_000
    """Transaction ids per row of a block: half of what brokers take by default."""
    keep: int = KEEP
    """Lsns whose outcomes are kept."""


SIZES: Final = SnapshotSizes()

_BLOCK = struct.Struct(">Q")

Keyed = tuple[bytes, bytes | None, dict[str, bytes]]


class Policy(msgspec.Struct, frozen=True):
    """Says when to take a snapshot, and how much log to keep behind it."""

    every_records: int
    every_ms: int
    keep_records: int


class KnownMarker(NamedTuple):
    """The last marker this node knows of."""

    mark: SnapshotMark
    at: float
    """When it was taken or read, in monotonic seconds."""


class Mirrors(Protocol):
    """Says who mirrors what at this site; see `halog.runtime.sites.mirror_assignment`."""

    def is_wanted(self, copy: Copy) -> bool:
        """Is this node to mirror that partition, and is its log the other site's? Asked at every turn."""
        ...

    def is_told(self, copy: Copy) -> bool:
        """Is it this node that does, by the coordinator's word? Asked when a snapshot is due."""
        ...


class Snapshots:
    """Takes and restores snapshots. One thread calls `tend`; `restore` may run beside it."""

    def __init__(
        self,
        log: Log,
        coordinator: Coordinator,
        state_topic: Callable[[str], str],
        cluster: str,
        policy: Policy,
        mirrors: Mirrors | None = None,
        sizes: SnapshotSizes = SIZES,
    ) -> None:
        """Take and restore for one node. `mirrors` says who mirrors what; without it there are no other sites."""
        self._sizes = sizes
        self.log = log
        self.coordinator = coordinator
        self.cluster = cluster
        self.policy = policy
        self._state_topic = state_topic
        self._writers: dict[str, LogTransaction] = {}
        self._marked: dict[str, KnownMarker] = {}
        self.mirrors = mirrors

    def state_tp(self, copy: Copy) -> TopicPartition:
        """Return where the copy's state topic is."""
        return TopicPartition(self._state_topic(copy.core.state.table.policy), copy.tp.partition)

    # --- taking ---

    def tend(self, copies: Iterable[Copy]) -> None:
        """Take a snapshot of every copy that is due. Errors are logged; the next turn tries again."""
        for copy in copies:
            try:
                if not (copy.serving or self._mirrored(copy)):
                    self.retire(copy)
                elif self._due(copy) and self._is_taker(copy):
                    self.take(copy)
            except (HalogError, UnknownResult) as e:
                logger.warning("no snapshot of %s this time: %s", copy.name, e)
                self.retire(copy)
            except Exception:  # of this copy only
                logger.exception("no snapshot of %s this time", copy.name)
                self.retire(copy)

    def retire(self, copy: Copy) -> None:
        """Stop counting: nothing is to be taken here (any more). Whoever takes the next one starts from the marker."""
        copy.objects.dirty = None
        self._marked.pop(copy.name, None)
        writer = self._writers.pop(copy.name, None)
        if writer is not None:
            writer.close()

    def _mirrored(self, copy: Copy) -> bool:
        return self.mirrors is not None and self.mirrors.is_wanted(copy)

    def _is_taker(self, copy: Copy) -> bool:
        return copy.serving or (self.mirrors is not None and self.mirrors.is_told(copy))

    def _due(self, copy: Copy) -> bool:
        known = self._known_marker(copy)
        behind = copy.core.state.chain.state.lsn - known.mark.lsn
        waited = time.monotonic() - known.at >= self.policy.every_ms / 1000
        return behind >= self.policy.every_records or (behind > 0 and waited)

    def _known_marker(self, copy: Copy) -> KnownMarker:
        known = self._marked.get(copy.name)
        if known is None:
            found = self._read_mark(copy)
            mark = SnapshotMark() if found is None else SnapshotMark.from_bytes(found.data)
            known = self._marked[copy.name] = KnownMarker(mark, time.monotonic())
        return known

    def _since(self, copy: Copy) -> int:
        """Return the lsn up to which the state topic is complete: everything above it is to be written."""
        mark = self._known_marker(copy).mark
        if mark.lsn and self.log.bounds(self.state_tp(copy))[1] < mark.end:
            logger.warning("the state topic of %s was created again: everything is written to it", copy.name)
            copy.objects.dirty = None
            return 0
        return mark.lsn

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
            self._check(copy, position)
            self._write(copy, self._changes(copy, view, dirty, since))
            self._mark(copy, position, since, ledger)
        except BaseException:
            copy.objects.dirty = None
            raise
        self._trim(copy, position, ledger)
        copy.node.store.write(self._forget(copy, position))

    def _forget(self, copy: Copy, position: StoredPosition) -> list[Item]:
        lsn = position.state.lsn
        return [*copy.objects.forget_tombstones(lsn), *copy.objects.forget_outcomes(lsn - self._sizes.keep)]

    def _changes(self, copy: Copy, view: Snapshot, dirty: set[bytes] | None, since: int) -> Iterator[Keyed]:
        """Yield objects and outcomes above lsn `since`, as the state topic holds them."""
        objects = copy.objects
        if dirty is None:
            for key, data in objects.objects(view):
                if _lsn(data) > since:
                    yield OBJECT + key, data, {"lsn": data[:8]}
            deleted = dict.fromkeys(key for lsn, key in objects.tombstones(view) if lsn > since)
            gone = [key for key in deleted if objects.object_bytes(view, key) is None]  # else created again since
        else:
            gone = []
            for key in sorted(dirty):  # the store is read in its order, and a restore has little to sort
                data_ = objects.object_bytes(view, key)
                if data_ is None:
                    gone.append(key)
                else:
                    yield OBJECT + key, data_, {"lsn": data_[:8]}
        for key in gone:
            yield OBJECT + key, None, {}
        yield from self._outcome_blocks(copy, view, since)

    def _outcome_blocks(self, copy: Copy, view: Snapshot, since: int) -> Iterator[Keyed]:
        size = self._sizes.block
        first = since // size * size
        items = copy.objects.outcomes_between(view, max(0, first - 1))
        for block, group in itertools.groupby(items, key=lambda item: item[0] // size):
            for n, some in enumerate(_batched(group, self._sizes.ids)):
                more = bytes((n,)) if n else b""
                yield OUTCOMES + _BLOCK.pack(block) + more, b"".join(PAIR.pack(lsn, tx) for lsn, tx in some), {}

    def _expired_blocks(self, since: int, lsn: int) -> Iterator[Keyed]:
        """Yield the blocks that the marker at `lsn` does without and the one before, at `since`, did not."""
        keep, size = self._sizes.keep, self._sizes.block
        for block in range(max(0, since - keep) // size, max(0, lsn - keep) // size):
            yield OUTCOMES + _BLOCK.pack(block), None, {}

    def _check(self, copy: Copy, position: StoredPosition) -> None:
        """Raise RefusedError if what is stored here may be older than what the state topic holds."""
        if position.state.owner:
            self._check_not_stale(copy, position)
        elif copy.core.leading is not None:
            self._check_epoch(copy, position)
        else:
            raise RefusedError(f"this site serves {copy.name}, and its active node takes the snapshots")

    def _check_not_stale(self, copy: Copy, position: StoredPosition) -> None:
        """Check it with the writer at hand: nobody before us marks anything any more, and whoever comes later fences
        ours."""
        self._writer(copy)
        self.coordinator.sync(self._path(copy))
        found = self._read_mark(copy)
        mark = SnapshotMark() if found is None else SnapshotMark.from_bytes(found.data)
        self._marked[copy.name] = KnownMarker(mark, time.monotonic())
        marked = marked_up_to(self.log, self.state_tp(copy), mark, position.state.log_id)
        if marked > position.next_offset:
            raise RefusedError(
                f"this copy of {copy.name} is behind its snapshot: that goes on from offset {marked}, and this copy "
                f"has read up to {position.next_offset}"
            )

    def _check_epoch(self, copy: Copy, position: StoredPosition) -> None:
        """Check it with the writer at hand: whoever becomes active after this look makes its own later, and fences
        ours."""
        self._writer(copy)
        path = f"partitions/{copy.name}"
        self.coordinator.sync(path)
        found = self.coordinator.get(path)
        if found is None or PartitionTable.from_bytes(found.data).epoch != position.state.epoch:
            raise RefusedError(f"the epoch of {copy.name} is over: another node takes its snapshots")

    def _writer(self, copy: Copy) -> LogTransaction:
        writer = self._writers.get(copy.name)
        if writer is None:
            writer = self._writers[copy.name] = self.log.transaction(topic_names.snapshots_id(self.cluster, copy.name))
        return writer

    def _checked_writer(self, copy: Copy) -> LogTransaction:
        """Return the writer that was at hand at the look; another one would fence whoever is newer."""
        writer = self._writers.get(copy.name)
        if writer is None:
            raise RefusedError(f"the snapshot of {copy.name} was given up")
        return writer

    def _write(self, copy: Copy, changes: Iterator[Keyed]) -> None:
        """Write in chunks, and read each back before it counts."""
        tp = self.state_tp(copy)
        for chunk in pieces(changes, _size_of, self._sizes.chunk_bytes, self._sizes.chunk):
            start = self.log.bounds(tp)[1]
            self._checked_writer(copy).write(tp, chunk)
            seen = dict(self.log.read_keyed(tp, start))
            if any(key not in seen or seen[key] != value for key, value, _ in chunk):
                raise LogError(f"the state topic of {copy.name} does not hold what was committed to it")

    def _mark(self, copy: Copy, position: StoredPosition, since: int, ledger: Ledger) -> None:
        tp = self.state_tp(copy)
        lsn, rows, last = position.state.lsn, ledger_rows.rows(ledger), self._known_marker(copy).mark
        self._write(copy, ledger_rows.keyed(lsn, rows))
        form = WITH_MAPPING if position.mapping else WITH_LEDGER if rows else FORMAT
        data = msgspec.msgpack.encode(SnapshotMarker(position, form, len(rows)))
        start = self.log.bounds(tp)[1]
        self._checked_writer(copy).write(tp, [(MARKER, data, {}), *self._expired_blocks(since, position.state.lsn)])
        if not any(key == MARKER and value == data for key, value in self.log.read_keyed(tp, start)):
            raise RefusedError(f"the marker of {copy.name} was not committed")
        mark = SnapshotMark(lsn, position.next_offset, self.log.bounds(tp)[1], len(rows))
        found = self._read_mark(copy)
        if found is None:
            self.coordinator.create(self._path(copy), mark.to_bytes(form))
        elif not since or int(found.data.split()[0]) < position.state.lsn:
            self.coordinator.set(self._path(copy), mark.to_bytes(form), found.version)
        self._marked[copy.name] = KnownMarker(mark, time.monotonic())
        if last.rows and last.lsn != lsn:
            self._write(copy, ledger_rows.gone(last.lsn, last.rows))

    def _trim(self, copy: Copy, position: StoredPosition, ledger: Ledger) -> None:
        """Delete log behind the marker, a margin, what is in doubt at the marker or decided and not confirmed by all
        participants, and whatever a registered holder still needs."""
        open_ = [u.offset for u in ledger.undecided.values()]
        if not position.state.owner:
            leading = copy.core.leading
            unconfirmed = ledger.decided if leading is None else leading.votes.unconfirmed
            open_ += [d.offset for tx, d in ledger.decided.items() if tx in unconfirmed]
        first = self.log.bounds(copy.tp)[0]
        wanted = min([position.next_offset - self.policy.keep_records, *open_])
        if wanted > first:
            if position.state.owner:
                places.offer(self.coordinator, copy.name, Checkpoint(position.next_offset, position.state))
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
        copy.objects.drop()
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


def _size_of(row: Keyed) -> int:
    return len(row[0]) + len(row[1] or b"")


def _lsn(stored: bytes) -> int:
    return int.from_bytes(stored[:8], "big")


def _batched(items: Iterator[T], size: int) -> Iterator[tuple[T, ...]]:
    while batch := tuple(itertools.islice(items, size)):
        yield batch
