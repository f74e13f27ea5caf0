"""Decides once what each key of a merge becomes: ahead, for keys that were compared while the partition is served, and
for the others when its epoch has ended (M3).

A trigger changes nothing, and its answer on three states holds as long as they are the same. So it is not asked again
about a key that was not changed meanwhile, and its answer is not encoded again. Only what verdicts create besides is
checked when all of them are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from halog.core.keys.directory import is_entry
from halog.core.log.records import Merged
from halog.errors import RefusedError
from halog.runtime.merge.compensation import Compensate
from halog.runtime.merge.epoch_reopening import EpochLost
from restore.creating import KeyDecision, TargetMerge, with_created
from restore.merge import Difference
from restore.plan import totals
from restore.report import is_known, merged

PIECE: Final = 1_000
"""So many keys are decided together, ahead."""


class LoggedDecision(NamedTuple):
    """A `LoggedDecision` holds what was decided for one key, and how the log will have it."""

    decided: KeyDecision
    merged: Merged


def check_keys(partition: str, keys: Sequence[Difference]) -> None:
    """Raise RefusedError for a policy whose keys cannot be merged."""
    if any(is_entry(d.key) for d in keys):
        raise RefusedError(f"the policy of {partition} keeps a directory of keys: it cannot be merged")


class MergeDecisions:
    """A `MergeDecisions` belongs to one merge."""

    def __init__(self, compensate: Compensate, *, piece: int = PIECE) -> None:
        self._compensate = compensate
        self._piece = piece
        self._known: dict[bytes, LoggedDecision] = {}

    def ahead(self, keys: Sequence[Difference], is_over: Callable[[], bool]) -> None:
        """Decide these keys while the partition is served. EpochLost once `is_over`."""
        for at in range(0, len(keys), self._piece):
            if is_over():
                raise EpochLost
            piece = tuple(d for d in keys[at : at + self._piece] if is_known(d.source))
            self._known.update((s.merged.key, s) for s in self._settled(piece))

    def settled(self, keys: Sequence[Difference], into: TargetMerge) -> list[LoggedDecision]:
        """Return the decision for each of these keys, and for the objects that they create. Only keys that were not
        decided ahead are decided now."""
        rest = iter(self._settled(tuple(d for d in keys if self._ahead_of(d) is None)))
        known = [self._ahead_of(d) or next(rest) for d in keys]
        if not any(s.decided.also for s in known):
            return known
        written = {id(s.decided): s for s in known}
        return [written.get(id(d)) or _written(d) for d in with_created([s.decided for s in known], into)]

    def _ahead_of(self, found: Difference) -> LoggedDecision | None:
        """Return what was decided ahead for this key, if it was compared again and is still the same."""
        known = self._known.get(found.key)
        return known if known is not None and _is_same(known.decided.choice.found, found) else None

    def _settled(self, keys: tuple[Difference, ...]) -> list[LoggedDecision]:
        return [_written(d) for d in self._compensate(keys)]


def _is_same(one: Difference, other: Difference) -> bool:
    """Are both the same for a trigger and for the log? What their transactions changed besides does not count, and may
    be much."""
    return one is other or _seen(one) == _seen(other)


def _seen(found: Difference) -> tuple[object, ...]:
    return *found[:5], *([c[:3] for c in by] for by in (found.source_by, found.initiating_by))


def _written(decided: KeyDecision) -> LoggedDecision:
    return LoggedDecision(decided, merged(decided.choice, decided.by))


def counted(decided: Sequence[KeyDecision]) -> dict[str, object]:
    """Return a merge in numbers."""
    found = totals(d.choice for d in decided)
    return {
        "objects": found.keys,
        "changed": found.changed,
        "conflicts": {kind.value: n for kind, n in found.conflicts.items()},
        "deferred": sum(bool(d.choice.deferred) for d in decided),
        "writes": {fate.value: n for fate, n in found.writes.items()},
    }
