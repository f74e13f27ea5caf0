"""This module finds where two histories of one partition parted: rule F4 of the protocol.

A history is what one site's log has accepted. Its lineage names it: every epoch it went through, and for each epoch the
last records it stands on (two of them where branches were merged). An epoch has one writer, so a history that has a
record of it has every earlier one of it as well. Two histories that share an epoch therefore share it up to the shorter
end, and no record need be compared to know that. Hashes, where they are known, only confirm it.

Behind the fork the histories differ, but not everything in them does. A transaction that one branch accepted and the
other recovered (same id, same original epoch and lsn) happened on both and is merged with nothing.

It is pure: it reads nothing, and decides nothing about what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from halog.core.ids import NO_EPOCH, NO_TX, EpochId
from halog.core.log.chain import ChainState
from halog.core.log.records import Commit, EpochOpened, EpochStarted, Record
from halog.errors import DivergedError

Place = tuple[EpochId, int]
"""A place names a record: the epoch that wrote it, and its lsn. (NO_EPOCH, 0) is the beginning of every history."""

BEGINNING: Place = (NO_EPOCH, 0)


class OpenedEpoch(NamedTuple):
    """An `OpenedEpoch` is one epoch of a lineage: the lsn of its `EpochOpened`, and the last records it stands on. It
    continues the first of `parents`, whose lsn is one less."""

    epoch: EpochId
    lsn: int
    parents: tuple[Place, ...]


class AcceptedRecord(NamedTuple):
    """An `AcceptedRecord` is a record a reader accepted. `origin`: where a recovered commit was first written; else
    None."""

    epoch: EpochId
    lsn: int
    hash: bytes
    tx: bytes = NO_TX
    origin: Place | None = None

    @property
    def place(self) -> Place:
        return self.epoch, self.lsn

    @property
    def first_written(self) -> tuple[bytes, Place]:
        """Return what makes it the same transaction on both branches."""
        return self.tx, self.origin or self.place


class History(msgspec.Struct, frozen=True):
    """A `History` is one branch.

    The lineage is complete. `accepted` may lack what was trimmed, or be a summary: then fewer hashes are confirmed, and
    common transactions are found among those given only.
    """

    log_id: bytes
    head: Place
    """The last accepted record."""
    lineage: tuple[OpenedEpoch, ...]
    accepted: Sequence[AcceptedRecord] = ()


class Point(NamedTuple):
    """A `Point` is a record both branches have; `hash` is None if neither gave it."""

    epoch: EpochId
    lsn: int
    hash: bytes | None


class Unrelated(msgspec.Struct, frozen=True):
    """The log ids differ: these are not two branches, but two partitions."""


class Same(msgspec.Struct, frozen=True):
    """A `Same` says that both histories end with the same record."""


class Behind(msgspec.Struct, frozen=True):
    """One head is an ancestor of the other; `first` says whether it is the first history's. That history follows the
    other; there is nothing to merge."""

    first: bool
    at: Point
    """The head that is behind."""


class Fork(msgspec.Struct, frozen=True):
    """Both went on behind `at`, the last records they share. There is one, unless each has merged the other before."""

    at: tuple[Point, ...]
    common: tuple[tuple[AcceptedRecord, AcceptedRecord], ...]
    """Records behind the fork that are the same transaction: the first history's and the second's, in the first one's
    order."""


Relation = Unrelated | Same | Behind | Fork


def compare(one: History, other: History) -> Relation:
    """Return how two histories are related (F4). DivergedError if they contradict each other or themselves: one epoch
    with two beginnings, one record with two hashes, a lineage with a hole."""
    if one.log_id != other.log_id:
        return Unrelated()
    _agree(one, other)
    ours, theirs = _reach(one), _reach(other)
    shared = {epoch: min(ours[epoch], theirs[epoch]) for epoch in ours.keys() & theirs.keys()}
    known = _hashes(one, other, shared)
    if one.head == other.head:
        return Same()
    for first, head, reach in ((True, one.head, theirs), (False, other.head, ours)):
        if _holds(reach, head):
            return Behind(first, Point(*head, known.get(head)))
    last = _maximal(shared, {o.epoch: o for o in (*one.lineage, *other.lineage)})
    return Fork(tuple(Point(*p, known.get(p)) for p in last), _common(one, other, shared))


def _agree(one: History, other: History) -> None:
    begun = {o.epoch: o for o in one.lineage}
    for o in other.lineage:
        if begun.get(o.epoch, o) != o:
            raise DivergedError(f"epoch {o.epoch.number} began in two ways: {begun[o.epoch]} and {o}", epoch=o.epoch)


def _reach(history: History) -> dict[EpochId, int]:
    """Return the last lsn of every epoch in a history."""
    return _ancestors([history.head], {o.epoch: o for o in history.lineage})


def _ancestors(heads: Iterable[Place], lineage: Mapping[EpochId, OpenedEpoch]) -> dict[EpochId, int]:
    """Return the last lsn of every epoch that these records, or what they stand on, belong to."""
    reach: dict[EpochId, int] = {}
    todo = list(heads)
    while todo:
        epoch, lsn = todo.pop()
        new = epoch not in reach
        reach[epoch] = max(lsn, reach.get(epoch, lsn))
        if epoch == NO_EPOCH:
            continue
        begun = lineage.get(epoch)
        if begun is None or lsn < begun.lsn:
            raise DivergedError(f"the lineage has a hole: lsn {lsn} of epoch {epoch.number} stands on nothing known")
        if new:
            todo.extend(begun.parents)
    return reach


def part_of(history: History) -> Callable[[Place], bool]:
    """Return a function that says whether a record is part of the history."""
    reach = _reach(history)
    return lambda place: 0 < place[1] <= reach.get(place[0], 0)


def _holds(reach: Mapping[EpochId, int], place: Place) -> bool:
    return place[1] <= reach.get(place[0], -1)


def _hashes(one: History, other: History, shared: Mapping[EpochId, int]) -> dict[Place, bytes]:
    """Return the hashes of shared records, as far as given."""
    known: dict[Place, bytes] = {}
    for record in (*one.accepted, *other.accepted):
        if _holds(shared, record.place) and known.setdefault(record.place, record.hash) != record.hash:
            raise DivergedError(
                f"lsn {record.lsn} of epoch {record.epoch.number} has two hashes: one of the logs is not what it was",
                epoch=record.epoch,
                lsn=record.lsn,
            )
    return known


def _maximal(shared: Mapping[EpochId, int], lineage: Mapping[EpochId, OpenedEpoch]) -> list[Place]:
    """Return the shared records that no other shared record stands on."""
    ends = list(shared.items())
    below = [(end, _ancestors([end], lineage)) for end in ends]
    return sorted(p for p in ends if not any(end != p and _holds(reach, p) for end, reach in below))


def _common(
    one: History, other: History, shared: Mapping[EpochId, int]
) -> tuple[tuple[AcceptedRecord, AcceptedRecord], ...]:
    theirs = {r.first_written: r for r in other.accepted if r.tx != NO_TX and not _holds(shared, r.place)}
    ours = (r for r in one.accepted if r.tx != NO_TX and not _holds(shared, r.place))
    return tuple((r, theirs[r.first_written]) for r in ours if r.first_written in theirs)


# --- from what the log holds ---


def opened(record: EpochOpened) -> OpenedEpoch:
    """Return an epoch's place in the lineage, as its own record states it. It continues the record before it, which
    belongs to the last epoch opened before (none: the beginning)."""
    parent = record.lineage[-1][0] if record.lineage else NO_EPOCH
    return OpenedEpoch(record.header.epoch, record.header.lsn, ((parent, record.header.lsn - 1),))


def lineage_of(state: ChainState) -> tuple[OpenedEpoch, ...]:
    """Return the lineage of a copy: each epoch continues the one opened before it, or the branches that it made one."""
    merged = {j.epoch: tuple((b.epoch, b.lsn) for b in j.branches) for j in state.joined}
    lines = [state.lineage, *(b.lineage for j in state.joined for b in j.branches)]
    found: dict[EpochId, OpenedEpoch] = {}
    for line in lines:
        before = (NO_EPOCH, *(epoch for epoch, _ in line))
        for parent, (epoch, lsn) in zip(before, line, strict=False):  # a branch's first one is of the lineage before it
            found.setdefault(epoch, OpenedEpoch(epoch, lsn, merged.get(epoch, ((parent, lsn - 1),))))
    return tuple(found.values())


def accepted(record: Record, digest: bytes) -> AcceptedRecord:
    """Return an accepted record, with the hash of its bytes. ValueError for `EpochStarted`, which stands outside the
    chain."""
    if isinstance(record, EpochStarted):
        raise ValueError("EpochStarted is no part of the accepted history")
    origin = record.origin if isinstance(record, Commit) else None
    where = None if origin is None else (origin.epoch, origin.lsn)
    return AcceptedRecord(record.header.epoch, record.header.lsn, digest, record.header.tx, where)


def history_of(state: ChainState, records: Sequence[AcceptedRecord] = ()) -> History:
    """Return the branch a copy holds."""
    last = state.lineage[-1][0] if state.lineage else NO_EPOCH
    return History(state.log_id, (last, state.lsn), lineage_of(state), records)
