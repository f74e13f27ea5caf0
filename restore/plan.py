"""This module plans what a merge would do, before anything is done: each difference with its verdict, and every write's
fate (M2).

A preview shows the plan, the source carries it out, and the report of conflicts is made from it. The plan holds no
clock and asks nobody itself. `decide` is the application's trigger or a policy; it runs where the application is, and
may defer to an operator.

A write is *merged* if what it left stands, alone or as a part of what a verdict made. It is *superseded* if a later
write of its own branch stands instead, or one of the other branch by the rule of `restore.merge`. Otherwise a verdict
*overruled* it, and it is in the report with both states. There is no fourth fate: that every acknowledged write has one
of these is checked, not assumed (`Totals`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from halog.core.log.records import Change
from restore.compensation import Defer, Delete, Fields, KeepInitiating, KeepSource, Replace, Verdict
from restore.merge import AGREED, EQUAL, BranchCommit, Difference, Instance, Kind, State, changes_to

Decide = Callable[[Difference], Verdict]
Encode = Callable[[Difference, Fields], bytes]
"""Returns the value of an object with these fields, as the newest definition writes it."""


class Fate(enum.Enum):
    """A `Fate` is what becomes of a write."""

    MERGED = "merged"
    SUPERSEDED = "superseded"
    OVERRULED = "overruled"


class Choice(NamedTuple):
    """A `Choice` is one key: what was found, what was decided, and what is to stand. `verdict` is None where nobody was
    asked."""

    found: Difference
    verdict: Verdict | None
    then: State

    @property
    def deferred(self) -> str:
        """Return why an operator is to decide; empty: none need."""
        return self.verdict.why if isinstance(self.verdict, Defer) else ""

    def changes(self, version: int) -> tuple[Change, ...]:
        """Return what the source has to write; its state of the key has this version, or ABSENT."""
        return changes_to(self.found.source, self.then, key=self.found.key, version=version)


class BranchWrite(NamedTuple):
    """A `BranchWrite` is one branch's write to one key, and what became of it."""

    source: bool
    """Did the source's branch write it, and not the initiating one?"""
    commit: BranchCommit
    key: bytes
    fate: Fate


def chosen(differences: Iterable[Difference], decide: Decide, encode: Encode) -> Iterator[Choice]:
    """Yield the plan, key by key.

    `decide` is asked about conflicts, and where both branches came to the same (`Kind.ALIKE`). What it raises ends the
    plan; callers of triggers turn that into a `Defer`.
    """
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
            if there is None:  # both have deleted it: there is no instance to keep
                return None
            return Instance(there.ref, encode(found, fields))


def fates(choice: Choice) -> Iterator[BranchWrite]:
    """Yield what becomes of every write that either branch made to this key."""
    found = choice.found
    for source, state, by in ((True, found.source, found.source_by), (False, found.initiating, found.initiating_by)):
        for commit in by[:-1]:
            yield BranchWrite(source, commit, found.key, Fate.SUPERSEDED)
        if by:
            yield BranchWrite(source, by[-1], found.key, _last(choice, state))


def _last(choice: Choice, state: State) -> Fate:
    """Return the fate of a branch's last write, which left this state."""
    if choice.then == state or isinstance(choice.verdict, Replace):
        return Fate.MERGED
    if choice.found.kind in EQUAL and choice.then in (choice.found.source, choice.found.initiating):
        return Fate.MERGED  # what it left stands in another version
    return Fate.OVERRULED if choice.found.is_conflict or choice.verdict is not None else Fate.SUPERSEDED


class Totals(NamedTuple):
    """A `Totals` is a plan in numbers."""

    keys: int
    conflicts: dict[Kind, int]
    deferred: int
    writes: dict[Fate, int]
    changed: int
    """Keys that the source has to write."""

    @property
    def accounted(self) -> int:
        """Return the writes whose fate is known, to be compared with what the branches' logs have."""
        return sum(self.writes.values())


def totals(choices: Iterable[Choice]) -> Totals:
    """Count the plan, in one pass."""
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
