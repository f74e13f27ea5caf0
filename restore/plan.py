"""What a merge would do, before anything is done: each difference with its verdict, and every write's fate (M2).

The same plan is what a preview shows, what the source carries out, and what the report of conflicts is made of. It
holds no clock and asks nobody itself: `decide` is the application's trigger or a policy, run where the application is,
and may defer to an operator.

A write is *merged* if what it left stands, alone or as a part of what a verdict made; *superseded* if a later one of
its own branch, or the other branch's by the rule of `restore.merge`, stands instead; else it was *overruled* by a
verdict, and is in the report with both states. Nothing else can become of it: that every acknowledged write is one of
these is checked, not assumed (`Totals`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from halog.core.log.records import Change
from restore.compensation import Defer, Delete, Fields, KeepInitiating, KeepSource, Replace, Verdict
from restore.merge import AGREED, EQUAL, Committed, Difference, Instance, Kind, State, changes_to

Decide = Callable[[Difference], Verdict]
Encode = Callable[[Difference, Fields], bytes]
"""The value of an object with these fields, as the newest definition writes it."""


class Fate(enum.Enum):
    """What becomes of a write."""

    MERGED = "merged"
    SUPERSEDED = "superseded"
    OVERRULED = "overruled"


class Choice(NamedTuple):
    """One key: what was found, what was said, and what is to stand. `verdict` is None where nobody was asked."""

    found: Difference
    verdict: Verdict | None
    then: State

    @property
    def deferred(self) -> str:
        """Why an operator is to decide; empty: he need not."""
        return self.verdict.why if isinstance(self.verdict, Defer) else ""

    def changes(self, version: int) -> tuple[Change, ...]:
        """What the source has to write; its state of the key has this version, or ABSENT."""
        return changes_to(self.found.source, self.then, key=self.found.key, version=version)


class Written(NamedTuple):
    """One branch's write to one key, and what became of it."""

    source: bool
    """Of the source's branch, or of the initiating one's?"""
    commit: Committed
    key: bytes
    fate: Fate


def chosen(differences: Iterable[Difference], decide: Decide, encode: Encode) -> Iterator[Choice]:
    """The plan, key by key. `decide` is asked of conflicts, and where both branches came to the same (`Kind.ALIKE`);
    what it raises ends the plan: who calls triggers makes of that a `Defer`."""
    for found in differences:
        if found.kind in AGREED and found.kind is not Kind.ALIKE:
            yield Choice(found, None, found.by_default)
        else:
            verdict = decide(found)
            yield Choice(found, verdict, _then(found, verdict, encode))


def _then(found: Difference, verdict: Verdict, encode: Encode) -> State:
    match verdict:
        case KeepSource() | Defer():
            return found.source
        case KeepInitiating():
            return found.initiating
        case Delete():
            return None
        case Replace(fields=fields):
            there = found.source or found.initiating
            if there is None:  # both have deleted it: no instance is there to be kept
                return None
            return Instance(there.ref, encode(found, fields))


def fates(choice: Choice) -> Iterator[Written]:
    """What becomes of every write that either branch made to this key."""
    found = choice.found
    for source, state, by in ((True, found.source, found.source_by), (False, found.initiating, found.initiating_by)):
        for commit in by[:-1]:
            yield Written(source, commit, found.key, Fate.SUPERSEDED)
        if by:
            yield Written(source, by[-1], found.key, _last(choice, state))


def _last(choice: Choice, state: State) -> Fate:
    """Of a branch's last write, which left this state."""
    if choice.then == state or isinstance(choice.verdict, Replace):
        return Fate.MERGED
    if choice.found.kind in EQUAL and choice.then in (choice.found.source, choice.found.initiating):
        return Fate.MERGED  # what it left stands in another version
    return Fate.OVERRULED if choice.found.is_conflict or choice.verdict is not None else Fate.SUPERSEDED


class Totals(NamedTuple):
    """A plan in numbers."""

    keys: int
    conflicts: dict[Kind, int]
    deferred: int
    writes: dict[Fate, int]
    changed: int
    """Keys that the source has to write."""

    @property
    def accounted(self) -> int:
        """Writes whose fate is known; to be held against what the branches' logs have."""
        return sum(self.writes.values())


def totals(choices: Iterable[Choice]) -> Totals:
    """Counted once through."""
    keys = changed = deferred = 0
    conflicts: Counter[Kind] = Counter()
    writes: Counter[Fate] = Counter()
    for choice in choices:
        keys += 1
        changed += choice.then != choice.found.source
        deferred += bool(choice.deferred)
        conflicts.update([choice.found.kind] if choice.found.is_conflict else [])
        writes.update(written.fate for written in fates(choice))
    return Totals(keys, dict(conflicts), deferred, dict(writes), changed)
