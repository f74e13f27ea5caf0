"""This module is what executors do with two sites' logs: records go in, and what each branch did to which objects
behind the fork comes out.

There are two passes, as in `restore.branches`. `Trace` follows each log and tells where it stands, and which commits in
it were recovered from an earlier epoch; the driver finds the fork from that. `FoldBranch` follows each again, from a
place in front of the fork, and folds what it committed behind it with `restore.merge.touched`. It folds `PIECE` commits
at a time, so an object that every transaction changes costs no more than others. `spark_jobs.classifying` puts the
pieces of a key together. Some transactions may be on the other branch as well, though no record says so. They are
folded apart: it is known when both branches were read (`comparison.on_both`). A task has the rows of one topic
partition, in order. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from halog.core.log.chain import ChainState
from halog.core.log.outcomes import KEEP
from halog.core.log.record_types import Branch as MergedBranch
from halog.core.log.records import Commit, EpochMerged, Record
from halog.errors import DivergedError, LogError
from halog.ports import Entry, TopicPartition
from restore.branch import written_by
from restore.branches import BranchComparison
from restore.divergence import BEGINNING, AcceptedRecord, Fork, Place as RecordPlace, accepted, compare, history_of
from restore.merge import BranchCommit, State, touched
from restore.replay import latest
from restore.report import changes_of
from restore.results import BY
from spark_jobs.history import CountedRecord, History, HistoryState
from spark_jobs.snapshot import Place

SOURCE, INITIATING = 0, 1
"""The sides, which say which branch it is."""
SIDES: Final = (SOURCE, INITIATING)
PIECE: Final = 1_000
"""How many commits are folded together."""
ROWS: Final = 10_000
"""How many rows are sent back at once."""

LOG_COLUMNS: Final = ("partition", "offset", "unix_millis(timestamp) AS time_ms", "value")
"""Kafka's columns, behind the side."""

TRACED: Final = "branch int, recovered binary, carried binary"
TRACED_SCHEMA: Final = pa.schema([("branch", pa.int32()), ("recovered", pa.binary()), ("carried", pa.binary())])
FOLDED: Final = (
    "place int, side int, key binary, first long, last long, time_ms long, txs long, "
    "base_ref binary, base_value binary, ref binary, value binary, carried binary, before binary, tx binary, ids binary"
)
FOLDED_SCHEMA: Final = pa.schema(
    [
        ("place", pa.int32()),
        ("side", pa.int32()),
        ("key", pa.binary()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("time_ms", pa.int64()),
        ("txs", pa.int64()),
        ("base_ref", pa.binary()),
        ("base_value", pa.binary()),
        ("ref", pa.binary()),
        ("value", pa.binary()),
        ("carried", pa.binary()),
        ("before", pa.binary()),
        ("tx", pa.binary()),
        ("ids", pa.binary()),
    ]
)
"""A piece of what a branch did to a key, with the lsns of its first and last transaction and the last one's time. `tx`
is set if it is one transaction that the other branch may have as well. Without transactions, the key only got another
version. Without a key, it says how far the log was followed, or names a transaction that a merge in the branch has
brought."""

_ACCEPTED: Final = msgspec.msgpack.Decoder(AcceptedRecord)


def branch_of(place: int, side: int) -> int:
    """Return one number for place and side."""
    return 2 * place + side


class Branch(msgspec.Struct, frozen=True):
    """A `Branch` is a log to be followed, and what of it is wanted."""

    place: Place
    side: int
    end: int
    """Where it ended at the first look: what comes later is not looked at."""
    carried: bytes
    """Where to go on."""
    begin: int = 0
    """The first lsn that is behind the fork."""
    fork: RecordPlace = BEGINNING
    """The last record of both branches."""
    both: frozenset[int] = frozenset()
    """Lsns of transactions that the other branch has, too: they are on neither branch."""
    expected: Mapping[int, bytes] = {}
    """Lsn → id of the transaction that the other branch says it has recovered from there."""


Folded = tuple[Any, ...]
"""A row of `FOLDED`."""

# --- executors ---


class Trace:
    """`Trace` takes rows of a side and `LOG_COLUMNS`, and gives `TRACED`."""

    def __init__(self, branches: Mapping[int, Branch]) -> None:
        self.branches = branches

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[tuple[int, bytes | None, bytes | None]] = []
        followed: dict[int, _Followed] = {}
        for number, counted in _counted(self.branches, followed, batches, linked=True):
            record = counted.record
            if type(record) is Commit and record.origin is not None:
                found.append((number, msgspec.msgpack.encode(accepted(record, counted.hash)), None))
        found += [(number, None, at.history.carried().pack()) for number, at in followed.items()]
        yield from as_batches(TRACED_SCHEMA, found)


class FoldBranch:
    """`FoldBranch` takes rows of a side and `LOG_COLUMNS`, and gives `FOLDED`.

    It gives the pieces, and how far each log was followed, with the hash of the last record before the branch if the
    branch's first record was met.
    """

    def __init__(self, branches: Mapping[int, Branch]) -> None:
        self.branches = branches

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        followed: dict[int, _Followed] = {}
        folding = {number: _Folding(of) for number, of in self.branches.items()}
        for number, counted in _counted(self.branches, followed, batches):
            yield from as_batches(FOLDED_SCHEMA, folding[number].take(counted))
        for number, at in followed.items():
            rest = folding[number].rest()
            told = folding[number]
            ids = b"".join(latest(told.happened))
            rest.append(_no_key(at.of, carried=at.history.carried().pack(), before=told.before, ids=ids))
            yield from as_batches(FOLDED_SCHEMA, rest)


class _Folding:
    """One branch is folded here: records go in, rows of `FOLDED` come out."""

    def __init__(self, of: Branch) -> None:
        self._of = of
        self._piece: list[BranchCommit] = []
        self.before: bytes | None = None
        """The hash of the last record before the branch, if its first one was met."""
        self.happened: list[bytes] = []
        """The latest transactions, and some more."""

    def take(self, counted: CountedRecord) -> list[Folded]:
        """Take one more record, and return what is ready."""
        of = self._of
        if counted.step.lsn == of.begin:
            self.before = before_branch(of, counted.record)
        commit = committed(of, counted)
        if commit is None:
            return []
        self.happened += counted.happened
        if len(self.happened) > 3 * KEEP:
            self.happened = latest(self.happened)
        rows = [_no_key(of, tx=tx) for tx in counted.brought]
        if commit.lsn in of.both:
            return rows + written(of, counted, commit)
        if counted.merged:
            rows += written(of, counted, commit)
        if commit.changes and may_be_there(of, counted):
            return [*rows, *self.rest(), *folded(of, [commit], commit.tx)]
        if commit.changes:
            self._piece.append(commit)
        return rows + self.rest() if len(self._piece) == PIECE else rows

    def rest(self) -> list[Folded]:
        """Return what was not folded yet."""
        piece = self._piece
        self._piece = []
        return folded(self._of, piece)


class _Followed(NamedTuple):
    history: History
    of: Branch
    tp: TopicPartition

    def read(self, offset: int, value: bytes, time_ms: int) -> CountedRecord | None:
        if offset >= self.of.end:
            return None
        if offset != self.history.next_offset:
            raise LogError(
                f"the log of {self.of.place.name} at site {self.of.place.site} is to be read on at offset "
                f"{self.history.next_offset}, and what comes is {offset}; begin with another checkpoint directory"
            )
        return self.history.accepted(Entry(self.tp, offset, value, time_ms))


def _counted(
    branches: Mapping[int, Branch],
    followed: dict[int, _Followed],
    batches: Iterable[pa.RecordBatch],
    *,
    linked: bool = False,
) -> Iterator[tuple[int, CountedRecord]]:
    """Yield the records that count, of each branch in order.

    `linked`: they are only links of the chain. What follows each branch is left in `followed`.
    """
    for raw in batches:
        for side, index, offset, time_ms, value in zip(*(column.to_pylist() for column in raw.columns)):
            number = branch_of(index, side)
            at = followed.get(number)
            if at is None:
                of = branches[number]
                tp = TopicPartition(of.place.log, of.place.index)
                at = followed[number] = _Followed(History(HistoryState.unpack(of.carried), linked=linked), of, tp)
            counted = at.read(offset, value, time_ms)
            if counted is not None:
                yield number, counted


def committed(of: Branch, counted: CountedRecord) -> BranchCommit | None:
    """Return what a record committed, if it is behind the fork."""
    lsn, time_ms, tx = counted.step.lsn, counted.step.time_ms, counted.step.tx
    if of.expected.get(lsn, tx) != tx:
        raise DivergedError(
            f"{of.place.name}: lsn {lsn} at site {of.place.site} is not the transaction that the other site has "
            "recovered from there",
            lsn=lsn,
        )
    if lsn < of.begin:
        return None
    changes, record = counted.step.changes, counted.record
    if isinstance(record, EpochMerged) and _stands_on(record.branches, of.fork):
        changes = tuple(changes_of(counted.merged, second=_stands_on(record.branches[1:], of.fork)))
    return BranchCommit(tx, lsn, time_ms, changes)


def may_be_there(of: Branch, counted: CountedRecord) -> bool:
    """Say whether the other branch may have it as well, which nobody knows before it was read.

    It may have decided the same vote, if that was in doubt at the fork. Or a merge in it has brought what was decided,
    or recovered, here once more.
    """
    record = counted.record
    return 0 < counted.voted < of.begin or (type(record) is Commit and record.origin is not None)


def before_branch(of: Branch, first: Record) -> bytes:
    """Return the hash of the last common record, as the first record of a branch has it."""
    if isinstance(first, EpochMerged):
        return next((b.hash for b in first.branches if (b.epoch, b.lsn) == of.fork), first.header.prev)
    return first.header.prev


def _stands_on(branches: Iterable[MergedBranch], place: RecordPlace) -> bool:
    return any((b.epoch, b.lsn) == place for b in branches)


def folded(of: Branch, piece: Sequence[BranchCommit], tx: bytes | None = None) -> list[Folded]:
    """Return a piece of a branch, key by key, as rows of `FOLDED`. `tx`: the piece is this transaction, which may be on
    neither branch."""
    place, side = of.place.index, of.side
    found: list[Folded] = []
    for key, t in touched(piece).items():
        first, last = t.by[0], t.by[-1]
        states = *_pair(t.base), *_pair(t.now)
        ids = b"".join(BY.pack(c.tx, c.lsn, c.time_ms) for c in t.by)
        found.append((place, side, key, first.lsn, last.lsn, last.time_ms, len(t.by), *states, None, None, tx, ids))
    return found


def written(of: Branch, counted: CountedRecord, commit: BranchCommit) -> list[Folded]:
    """Return the keys to which a record gives another version and nothing that is of this branch alone."""
    place, side, lsn = of.place.index, of.side, commit.lsn
    told = {c.key for c in commit.changes} if counted.merged else ()
    now = dict(written_by(counted.merged, commit.changes))
    return [
        (place, side, key, lsn, lsn, commit.time_ms, 0, None, None, *_pair(state), None, None, None, None)
        for key, state in now.items()
        if key not in told
    ]


def _no_key(
    of: Branch,
    *,
    carried: bytes | None = None,
    before: bytes | None = None,
    tx: bytes | None = None,
    ids: bytes | None = None,
) -> Folded:
    return (of.place.index, of.side, *[None] * 9, carried, before, tx, ids)


def _pair(state: State) -> tuple[bytes | None, bytes | None]:
    return (None, None) if state is None else (state.ref, state.value)


def as_batches(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow."""
    for at in range(0, len(rows), ROWS):
        columns = zip(*rows[at : at + ROWS])
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- the driver ---


class TracedLog(NamedTuple):
    """A `TracedLog` is a log that was followed to its end."""

    state: ChainState
    recovered: Sequence[AcceptedRecord]
    """Its commits that a later epoch has recovered."""


class BranchRelation(msgspec.Struct, frozen=True):
    """A `BranchRelation` says how two branches are related. Behind a fork it has, for each side, where it begins, the
    lsns that both have, and what is expected where."""

    forked: bool
    """Has each what the other lacks?"""
    histories: str
    """The same for people."""
    lsn: int
    """The last lsn that both have."""
    fork: RecordPlace = BEGINNING
    begin: tuple[int, ...] = (0, 0)
    both: tuple[frozenset[int], ...] = (frozenset(), frozenset())
    expected: tuple[dict[int, bytes], ...] = ({}, {})


def unpack_accepted(data: bytes) -> AcceptedRecord:
    """Read what `Trace` packed."""
    return _ACCEPTED.decode(data)


def parted(traced: Sequence[TracedLog], sites: Sequence[str]) -> BranchRelation:
    """Return how source and initiating branch are related, and what executors must know to read them behind a fork.

    Of two records of one transaction at least one was recovered. A branch therefore has what it has recovered itself,
    and what the other one has recovered from it. The latter are records at known places, which the branch has if it has
    got there.
    """
    relation = compare(*(history_of(t.state) for t in traced))
    found = BranchComparison(relation, ())
    if not isinstance(relation, Fork):
        return BranchRelation(False, found.said(*sites), found.fork_lsn)
    if len(relation.at) > 1:
        raise DivergedError(f"the sites {' and '.join(sites)} have merged each other: they cannot be compared")
    (point,) = relation.at
    fork = point.epoch, point.lsn
    begin = [_begin(t.state, fork) for t in traced]
    recovered = [[a for a in t.recovered if a.lsn >= first] for t, first in zip(traced, begin)]
    expected = [_from_there(recovered[1 - side], traced[side].state, begin[side]) for side in SIDES]
    some = [[*ours, *theirs] for ours, theirs in zip(recovered, expected)]
    relation = compare(*(history_of(t.state, candidates) for t, candidates in zip(traced, some)))
    assert isinstance(relation, Fork)
    both = tuple(frozenset(pair[side].lsn for pair in relation.common) for side in SIDES)
    there = tuple({a.lsn: a.tx for a in one} for one in expected)
    return BranchRelation(True, found.said(*sites), point.lsn, fork, tuple(begin), both, there)


def _begin(state: ChainState, fork: RecordPlace) -> int:
    """Return the first lsn behind a fork. Where a merge stands on the fork, it is the merge's, whatever the log had
    before."""
    lsns = dict(state.lineage)
    merges = (lsns[j.epoch] for j in state.joined if j.epoch in lsns and _stands_on(j.branches, fork))
    return next(merges, fork[1] + 1)


def _from_there(recovered: Iterable[AcceptedRecord], state: ChainState, begin: int) -> list[AcceptedRecord]:
    """Return what was recovered, where it was first written, if this history has got there behind the fork."""
    found = [AcceptedRecord(*a.origin, hash=b"", tx=a.tx) for a in recovered if a.origin is not None]
    return [a for a in found if a.lsn >= begin and _has(state, a.place)]


def _has(state: ChainState, place: RecordPlace) -> bool:
    """Say whether the record at this place is one of a log's own history."""
    ends = [lsn - 1 for _, lsn in state.lineage[1:]] + [state.lsn]
    return any(epoch == place[0] and first <= place[1] <= end for (epoch, first), end in zip(state.lineage, ends))
