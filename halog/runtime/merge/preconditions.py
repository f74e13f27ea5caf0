"""Checks whether two sites' histories of a partition can be merged (F4, M2).

They must have parted behind one record, and both logs must still go back to it. This is checked before anything is
closed for a merge; else its site would have stopped serving for nothing. Each history is known from the last snapshot,
and what came since is read; where a log is trimmed, its first records are read, too. This module changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState
from halog.core.table.table import PartitionTable
from halog.errors import LogError, RefusedError
from halog.metadata.partition_tables import table_of
from halog.ports import Entry, Log, TopicPartition
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.state_topic import SnapshotMark, last_position
from restore.branch import places_of
from restore.divergence import Behind, Fork, Place, Relation, compare, history_of, lineage_of, part_of
from restore.thread import READ_S

PIECE: Final = 2_000
"""So many entries are read in one go: some 50 ms."""

GIVE_UP: Final = (
    "`halog site demote --to {source}` has {source} serve alone, with its own history; before that `halog export` "
    "tells what {own} has, for `halog import --skip-existing` at {source}"
)

StateTopic = Callable[[str], str]
"""Returns the state topic of a policy; it has the same name at every site."""


class _SiteHistory(NamedTuple):
    """A `_SiteHistory` is one site's log, and the history in it."""

    site: SiteAccess
    state: ChainState
    """The state where the history ends."""
    begins: int
    """All before this offset is trimmed."""
    end: int


def check(
    own: SiteAccess, source: SiteAccess, table: PartitionTable, state_topic: StateTopic, begin: Mapping[str, int]
) -> None:
    """Raise RefusedError if the histories parted behind several records, or if one of the logs does not go back to
    where they parted. LogError if no snapshot has what was trimmed of a log; DeadlineError. `begin`: by site, the
    offset that its log may be trimmed up to."""
    sites, tp = (own, source), TopicPartition(table.topic, table.index)
    tables = (table, table_of(source.coordinator, table.name))
    read = [_read(site, its, tp, state_topic, begin[site.name]) for site, its in zip(sites, tables, strict=True)]
    relation = compare(*(history_of(one.state) for one in read))
    if isinstance(relation, Fork) and len(relation.at) > 1:
        raise _several(relation, own, source, table)
    place = _parted_at(relation, serves=not table.owner)
    if place is None:
        return
    for one in read:
        if not one.begins or one.state.head == place:
            continue
        first = _first(one, tp)
        if first is None or first > _first_behind(one.state, place):
            raise _refused(one, first, place, own, source, table)


def _several(fork: Fork, own: SiteAccess, source: SiteAccess, table: PartitionTable) -> RefusedError:
    return RefusedError(
        f"partition {table.name}: the histories of {own.name} and {source.name} have parted behind several records "
        f"({places_of(fork)}), as each has been merged with what the other one has: they cannot be made one. Nothing "
        f"was changed. {GIVE_UP.format(own=own.name, source=source.name)}",
        partition=table.name,
        parted_behind=[point.lsn for point in fork.at],
    )


def _refused(
    one: _SiteHistory, first: int | None, place: Place, own: SiteAccess, source: SiteAccess, table: PartitionTable
) -> RefusedError:
    goes = "has nothing of its history any more" if first is None else f"goes back to lsn {first}"
    return RefusedError(
        f"partition {table.name}: the log of site {one.site.name} {goes} (offset {one.begins}), and the histories of "
        f"{own.name} and {source.name} parted behind lsn {place[1]}: what was trimmed in between cannot be merged. "
        f"Nothing was changed. {GIVE_UP.format(own=own.name, source=source.name)}",
        partition=table.name,
        site=one.site.name,
        begins=one.begins,
        first_lsn=first,
        parted_behind=place[1],
    )


def _read(
    site: SiteAccess, table: PartitionTable, tp: TopicPartition, state_topic: StateTopic, held: int
) -> _SiteHistory:
    """Read a site's history up to where it ends now."""
    begins, end = site.log.bounds(tp)
    begins = max(begins, held)
    found = site.coordinator.get(f"snapshots/{table.name}")
    mark = SnapshotMark() if found is None else SnapshotMark.from_bytes(found.data)
    at = last_position(site.log, TopicPartition(state_topic(table.policy), table.index), mark)
    if at is not None and at.state.log_id.hex() == table.log_id and at.next_offset >= begins:
        chain, offset = Chain(at.state), at.next_offset
    elif not begins:
        chain, offset = Chain(table.beginning(site.name)), 0
    else:
        raise LogError(
            f"the log of {table.name} at site {site.name} begins at offset {begins}, and no snapshot there has what is "
            "missing: where it parted from another one cannot be found. Nothing was changed",
            partition=table.name,
            site=site.name,
        )
    for entry in _entries(site.log, tp, offset, end):
        chain.read(records.read_linked(entry), digest(entry.value))
    return _SiteHistory(site, chain.state, begins, end)


def _entries(log: Log, tp: TopicPartition, start: int, end: int) -> Iterator[Entry]:
    for at in range(start, end, PIECE):
        yield from log.read(tp, at, min(at + PIECE, end), READ_S)


def _parted_at(relation: Relation, *, serves: bool) -> Place | None:
    """Return the last record of both, if there is something to merge behind it. While this site `serves`, there will
    be: its nodes end their epoch by a record that the source does not have."""
    match relation:
        case Fork(at=(point,)) | Behind(first=False, at=point):
            return point.epoch, point.lsn
        case Behind(first=True, at=point) if serves:
            return point.epoch, point.lsn
        case _:
            return None


def _first_behind(state: ChainState, place: Place) -> int:
    """Return the lsn of the first record behind a place, in a log with that history; it may be a merge that brought the
    place in."""
    begun = {o.epoch: o.lsn for o in lineage_of(state)}
    brought = (begun[j.epoch] for j in state.joined if any((b.epoch, b.lsn) == place for b in j.branches))
    return max(brought, default=place[1] + 1)


def _first(one: _SiteHistory, tp: TopicPartition) -> int | None:
    """Return the lsn of the first record of its history that is still in the log."""
    is_part = part_of(history_of(one.state))
    for entry in _entries(one.site.log, tp, one.begins, one.end):
        header = records.read_linked(entry).header
        if is_part((header.epoch, header.lsn)):
            return header.lsn
    return None
