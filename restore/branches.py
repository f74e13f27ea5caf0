"""Two sites' logs of one partition, read as two branches: where they parted, and what each did since (F4, M3).

Read twice, and only what lies behind the fork is kept: once for the lineages, which tell where that is, and once for
what was committed behind it. Both branches count as read up to where their logs ended at the first look. A transaction
that both have, because one branch recovered what the other had accepted, is on neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from halog.core import records
from halog.core.chain import Chain, ChainState, Verdict
from halog.core.ids import digest
from halog.core.ledger import Decided, Ledger
from halog.core.records import Change
from halog.errors import LogError
from halog.ports import Entry, Log, TopicPartition
from restore.compensation import KeepInitiating, KeepSource, Verdict as Decision
from restore.divergence import Accepted, Behind, Fork, Relation, Same, Unrelated, accepted, compare, history_of
from restore.merge import Committed, Difference, Kind, differences, touched, two_way
from restore.plan import Choice, chosen

READ_S = 30.0
"""For a batch of entries to come: brokers of another data centre may be busy, too."""


class Side(NamedTuple):
    """One site's log of a partition, up to where it ended."""

    site: str
    log: Log
    tp: TopicPartition
    begin: ChainState
    """Where its history begins."""
    end: int


class Compared(NamedTuple):
    """Two branches, and every key that either touched behind the fork. `keys` is empty unless they have forked."""

    relation: Relation
    keys: tuple[Difference, ...]

    @property
    def forked(self) -> bool:
        """Has each what the other lacks?"""
        return isinstance(self.relation, Fork)

    @property
    def fork_lsn(self) -> int:
        """The last lsn of both; where nothing has forked, where the shorter one ends."""
        match self.relation:
            case Fork(at=at):
                return max(point.lsn for point in at)
            case Behind(at=at):
                return at.lsn
            case Same() | Unrelated():
                return 0


def side(site: str, log: Log, tp: TopicPartition, begin: ChainState) -> Side:
    """LogError if what the log began with is gone: a fork further back could not be seen."""
    start, end = log.bounds(tp)
    if start > 0:
        raise LogError(
            f"the log of {tp.topic}/{tp.partition} at site {site} is trimmed up to offset {start}, and cannot be "
            "compared",
            site=site,
            start=start,
        )
    return Side(site, log, tp, begin, end)


def compared(source: Side, initiating: Side, *, three_way: bool = True) -> Compared:
    """How two sites' histories of a partition are related, and what a merge would find. DivergedError if one of them is
    no history, or they contradict each other; DeadlineError if a log does not answer."""
    ours, theirs = _state(source), _state(initiating)
    relation = compare(history_of(ours), history_of(theirs))
    if not isinstance(relation, Fork):
        return Compared(relation, ())
    lsn = max(point.lsn for point in relation.at)
    mine, yours = [*_behind(source, lsn)], [*_behind(initiating, lsn)]
    relation = compare(history_of(ours, [a for a, _ in mine]), history_of(theirs, [a for a, _ in yours]))
    assert isinstance(relation, Fork)
    both = {a.place for pair in relation.common for a in pair}
    kept = [[c for a, c in branch if a.place not in both and c.changes] for branch in (mine, yours)]
    found = (differences if three_way else two_way)(touched(kept[0]), touched(kept[1]))
    return Compared(relation, tuple(found))


def outcomes(found: Compared) -> tuple[Choice, ...]:
    """What would stand afterwards if nobody decides otherwise: the manual's defaults."""
    return tuple(chosen(found.keys, _by_default, _never))


def _by_default(difference: Difference) -> Decision:
    return KeepInitiating() if difference.kind is Kind.INSTANCE_ADDED else KeepSource()


def _never(difference: Difference, fields: object) -> bytes:
    raise AssertionError("the defaults make no new state")


def _state(of: Side) -> ChainState:
    chain = Chain(of.begin)
    for entry in _entries(of):
        chain.read(records.decode(entry.value), digest(entry.value))
    return chain.state


def _behind(of: Side, lsn: int) -> Iterator[tuple[Accepted, Committed]]:
    """What it accepted behind this lsn. A transaction over several partitions counts where it was decided."""
    chain, ledger = Chain(of.begin), Ledger()
    for entry in _entries(of):
        record, hash_ = records.decode(entry.value), digest(entry.value)
        if chain.read(record, hash_) not in (Verdict.ACCEPTED, Verdict.OPENED):
            continue
        changes: tuple[Change, ...] = ()
        if type(record) is records.Commit:
            changes = record.changes
        elif type(meant := ledger.accepted(record, entry.offset)) is Decided and meant.commit is not None:
            changes = meant.commit.changes
        h = record.header
        if h.lsn > lsn:
            yield accepted(record, hash_), Committed(h.tx, h.lsn, entry.timestamp_ms, changes)


def _entries(of: Side) -> Iterator[Entry]:
    return of.log.read(of.tp, 0, of.end, READ_S)
