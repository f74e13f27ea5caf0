"""This module reads two sites' logs of one partition as two branches and compares them: where they parted, and every
key that either touched since (F4, M3).

The lineages tell where they parted; they are known from where each history ends. A transaction that both have, because
one branch recovered what the other had accepted, is on neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from halog.errors import DivergedError
from restore.branch import Branch, Decide, Side, aborted, branch
from restore.compensation import KeepInitiating, KeepSource, Verdict as Decision
from restore.divergence import Behind, Fork, Relation, Same, Unrelated, compare, history_of
from restore.merge import BranchCommit, Difference, Even, Instance, Kind, differences, touched, two_way
from restore.plan import Choice, chosen


class BranchComparison(NamedTuple):
    """A `BranchComparison` has two branches, and every key that either touched behind the fork. `keys` is empty unless
    they have forked."""

    relation: Relation
    keys: tuple[Difference, ...]
    source: Branch | None = None
    initiating: Branch | None = None

    @property
    def forked(self) -> bool:
        """Say whether each has what the other lacks."""
        return isinstance(self.relation, Fork)

    @property
    def fork_lsn(self) -> int:
        """Return the last lsn of both; where nothing has forked, where the shorter one ends."""
        match self.relation:
            case Fork(at=at):
                return max(point.lsn for point in at)
            case Behind(at=at):
                return at.lsn
            case Same() | Unrelated():
                return 0

    def said(self, source: str, initiating: str) -> str:
        """Return the relation for people, by the names of the sites."""
        match self.relation:
            case Fork():
                return "parted"
            case Same():
                return "the same"
            case Behind(first=first):
                return f"site {source if first else initiating} is behind"
            case Unrelated():
                return "unrelated"


class SourceObject(Protocol):
    """A `SourceObject` is an object as the source's node has it."""

    @property
    def ref(self) -> bytes: ...

    @property
    def value(self) -> bytes: ...


def compared(
    source: Side, initiating: Side, *, three_way: bool = True, decide: Decide = aborted, even: Even | None = None
) -> BranchComparison:
    """Return how two sites' histories of a partition are related, and what a merge would find; `even`: see
    `restore.merge`. DivergedError if one of them is no history, or they contradict each other; DeadlineError if a log
    is silent."""
    relation = compare(history_of(source.state), history_of(initiating.state))
    if not isinstance(relation, Fork):
        return BranchComparison(relation, ())
    ours, theirs = branch(source, relation, aborted), branch(initiating, relation, decide)
    return merged_at(relation, source, initiating, ours, theirs, three_way=three_way, even=even)


def merged_at(
    fork: Fork,
    source: Side,
    initiating: Side,
    ours: Branch,
    theirs: Branch,
    *,
    three_way: bool = True,
    even: Even | None = None,
) -> BranchComparison:
    """Compare as `compared` does, after both branches have been read: the source's, and the initiating one."""
    lines = [[a for a, _ in b.committed] for b in (ours, theirs)]
    relation = compare(history_of(source.state, lines[0]), history_of(initiating.state, lines[1]))
    assert isinstance(relation, Fork)
    if ours.parted_at != theirs.parted_at:
        raise DivergedError(
            f"the sites {source.site} and {initiating.site} have other records where their histories are to have "
            "parted, or a merge lies between: they cannot be compared",
            lsn=relation.at[0].lsn,
        )
    both = {a.first_written for a, _ in relation.common}
    mine, yours = _alone(ours, theirs, both), _alone(theirs, ours, both)
    found = {d.key: d for d in (differences if three_way else two_way)(touched(mine), touched(yours), even)}
    for key, state in {**theirs.written, **ours.written}.items():  # the same on both, and of two versions
        found.setdefault(key, Difference(key, Kind.SAME, state, state, state, (), ()))
    return BranchComparison(relation, tuple(found[key] for key in sorted(found)), ours, theirs)


def _alone(one: Branch, other: Branch, both: Collection[object]) -> list[BranchCommit]:
    """Return what one of them has and the other has not."""
    there = frozenset(other.brought)
    return [c for a, c in one.committed if c.changes and a.first_written not in both and a.tx not in there]


def completed(found: BranchComparison, find: Callable[[bytes], SourceObject | None]) -> BranchComparison:
    """Return the comparison with the source's objects filled in, where a policy without before-images does not tell
    what stood there at the fork. `find` knows the source's objects, as the branch left them."""
    return found._replace(keys=tuple(_completed(d, find) for d in found.keys))


def _completed(d: Difference, find: Callable[[bytes], SourceObject | None]) -> Difference:
    if d.source is None or d.source.value is not None:
        return d
    there = find(d.key)
    if there is None or there.ref != d.source.ref:
        raise DivergedError(f"{d.key.hex()[:80]}: the source has another object there than its branch", key=d.key)
    source = Instance(there.ref, there.value)
    return d._replace(base=source if d.base == d.source else d.base, source=source)


def outcomes(found: BranchComparison) -> tuple[Choice, ...]:
    """Return what would stand afterwards if nobody decides otherwise: the manual's defaults."""
    return tuple(chosen(found.keys, _by_default, _never))


def _by_default(difference: Difference) -> Decision:
    return KeepInitiating() if difference.kind is Kind.INSTANCE_ADDED else KeepSource()


def _never(difference: Difference, fields: object) -> bytes:
    raise AssertionError("the defaults make no new state")
