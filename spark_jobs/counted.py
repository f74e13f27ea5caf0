"""This module counts the keys that a comparison has classified, for people: one key is asked for each group of equal
ones (M2, S1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from restore.branches import BranchComparison, outcomes
from restore.divergence import Same
from restore.merge import Difference, Instance, Kind
from restore.plan import Fate, Totals, totals
from spark_jobs.classifying import BOTH, SOME


class Group(NamedTuple):
    """A `Group` is keys that are alike in kind, in what stands, and in who touched them: how many, and by how many
    transactions."""

    kind: str
    stands: str
    source: bool
    initiating: bool
    keys: int
    txs: int


def totals_of(groups: Iterable[Group]) -> Totals:
    """Count as `restore.plan.totals` does if nobody decides otherwise; it is asked once for each group."""
    keys = deferred = changed = 0
    conflicts: Counter[Kind] = Counter()
    writes: Counter[Fate] = Counter()
    for group in groups:
        one = totals(outcomes(BranchComparison(Same(), (_some(group),))))
        keys += group.keys
        deferred += group.keys * one.deferred
        changed += group.keys * one.changed
        conflicts.update({kind: group.keys * n for kind, n in one.conflicts.items()})
        writes.update({fate: group.keys * n for fate, n in one.writes.items()})
        writes.update({Fate.SUPERSEDED: group.txs - group.keys * one.accounted})  # all but each branch's last write
    return Totals(keys, dict(conflicts), deferred, {fate: n for fate, n in writes.items() if n}, changed)


def _some(group: Group) -> Difference:
    """Return a key of the group."""
    source = Instance(b"s", b"")
    initiating = source if group.stands == BOTH else Instance(b"i", b"")
    by = [(SOME,) if touched else () for touched in (group.source, group.initiating)]
    return Difference(b"", Kind(group.kind), None, source, initiating, *by)
