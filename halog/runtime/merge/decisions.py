"""What is to stand under each key of a merge, said once: ahead, of keys that were compared while the partition serves,
and of the others when its epoch has ended (M3).

A trigger changes nothing, and what it says of three states holds as long as they are these. So of a key that was not
touched meanwhile it need not be asked again, and what it said need not be written down anew. Only what verdicts create
besides is looked at when all of them are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from halog.core.keys.directory import is_entry
from halog.core.log.records import Merged
from halog.errors import RefusedError
from halog.runtime.merge.compensation import Compensate
from halog.runtime.merge.epoch_reopening import Lost
from restore.creating import KeyDecision, TargetMerge, with_created
from restore.merge import Difference
from restore.plan import totals
from restore.report import is_known, merged

PIECE: Final = 1_000
"""Keys decided together, ahead."""


class Settled(NamedTuple):
    """One key: what was decided, and how the log will have it."""

    decided: KeyDecision
    merged: Merged


def check_keys(partition: str, keys: Sequence[Difference]) -> None:
    """RefusedError for a policy whose keys cannot be merged."""
    if any(is_entry(d.key) for d in keys):
        raise RefusedError(f"the policy of {partition} keeps a directory of keys: it cannot be merged")


class Deciding:
    """Of one merge."""

    def __init__(self, compensate: Compensate) -> None:
        self._compensate = compensate
        self._known: dict[bytes, Settled] = {}

    def ahead(self, keys: Sequence[Difference], is_over: Callable[[], bool]) -> None:
        """While the partition serves. Lost once `is_over`."""
        for at in range(0, len(keys), PIECE):
            if is_over():
                raise Lost
            piece = tuple(d for d in keys[at : at + PIECE] if is_known(d.source))
            self._known.update((s.merged.key, s) for s in self._settled(piece))

    def settled(self, keys: Sequence[Difference], into: TargetMerge) -> list[Settled]:
        """Each of these, and what is created besides; only what was not known ahead is decided now."""
        rest = iter(self._settled(tuple(d for d in keys if self._ahead_of(d) is None)))
        known = [self._ahead_of(d) or next(rest) for d in keys]
        if not any(s.decided.also for s in known):
            return known
        written = {id(s.decided): s for s in known}
        return [written.get(id(d)) or _written(d) for d in with_created([s.decided for s in known], into)]

    def _ahead_of(self, found: Difference) -> Settled | None:
        """What was compared anew, and is as it was, is as good as the very same."""
        known = self._known.get(found.key)
        return known if known is not None and _is_same(known.decided.choice.found, found) else None

    def _settled(self, keys: tuple[Difference, ...]) -> list[Settled]:
        return [_written(d) for d in self._compensate(keys)]


def _is_same(one: Difference, other: Difference) -> bool:
    """As far as a trigger sees it, and the log tells it: all but what its transactions changed beside, which may be
    much."""
    return one is other or _seen(one) == _seen(other)


def _seen(found: Difference) -> tuple[object, ...]:
    return *found[:5], *([c[:3] for c in by] for by in (found.source_by, found.initiating_by))


def _written(decided: KeyDecision) -> Settled:
    return Settled(decided, merged(decided.choice, decided.by))


def counted(decided: Sequence[KeyDecision]) -> dict[str, object]:
    """A merge in numbers."""
    found = totals(d.choice for d in decided)
    return {
        "objects": found.keys,
        "changed": found.changed,
        "conflicts": {kind.value: n for kind, n in found.conflicts.items()},
        "deferred": sum(bool(d.choice.deferred) for d in decided),
        "writes": {fate.value: n for fate, n in found.writes.items()},
    }
