"""This module says what becomes of an object that both branches of a fork may have touched: the three-way comparison
(M3, X3).

A branch is given as what it committed behind the fork, without the transactions that both branches have (F4). `touched`
folds it: for every key what stood there at the fork, what stands there now, and which transactions came between.
`differences` compares the two branches key by key with that base, and `two_way` as the manual does, without it. Keys
that neither branch touched are equal on both, and are never looked at.

An *instance* is what one create made: its reference. A key that was deleted and created again holds another one.

| source since the fork | initiating since the fork | is |
|---|---|---|
| nothing new | nothing new | `SAME` |
| changed, created or deleted | the same | `ALIKE`: no conflict, but what counts steps has two of them |
| nothing is there | a new instance | `INSTANCE_ADDED`: default add |
| nothing new | changed, deleted or replaced | `TAKEN`: changed on one side only |
| changed, created or replaced | nothing new, or its end alone | `KEPT` |
| an instance | another one, both new | `KEY_CONFLICT`: default keep source |
| changed | changed otherwise | `STATE_CONFLICT`: default keep source |
| deleted | changed | `DELETE_UPDATE`: default keep source |
| changed | deleted | `UPDATE_DELETE`: default keep source |

An instance that both had at the fork and one of them replaced, while the other changed it, is a key conflict, too.

Where several definitions of its type have written a key's states, they are compared as the newest of these has them. A
state that differs in the version alone was not changed. What stands is always a state as it was written.

It is pure: it reads nothing, and decides nothing but the defaults.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.errors import DivergedError


class Instance(NamedTuple):
    """An `Instance` is an object as it stood at some point. `value` is None where it is not known: at the fork, by a
    policy that keeps no before-images."""

    ref: bytes
    value: bytes | None


State = Instance | None
"""The state of a key; None: nothing is there."""


class BranchCommit(NamedTuple):
    """A `BranchCommit` is one transaction of a branch, behind the fork."""

    tx: bytes
    lsn: int
    time_ms: int
    """The log's time, since the epoch of Unix."""
    changes: Sequence[Change]


class KeyTouches(NamedTuple):
    """A `KeyTouches` is what a branch did to a key."""

    base: State
    now: State
    by: tuple[BranchCommit, ...]
    """Its transactions in order; never empty."""


class Kind(enum.Enum):
    """A `Kind` is what the comparison of a key finds."""

    TAKEN = "taken"
    KEPT = "kept"
    SAME = "same"
    ALIKE = "alike"
    INSTANCE_ADDED = "instance added"
    KEY_CONFLICT = "key conflict"
    STATE_CONFLICT = "state conflict"
    DELETE_UPDATE = "delete update"
    UPDATE_DELETE = "update delete"
    CREATED = "created"
    """No comparison finds this: a verdict about another key has created the object (`restore.creating`)."""


AGREED: Final = frozenset((Kind.TAKEN, Kind.KEPT, Kind.SAME, Kind.ALIKE, Kind.CREATED))
"""The kinds that are no conflicts. Triggers are asked about `ALIKE` all the same."""
EQUAL: Final = frozenset((Kind.SAME, Kind.ALIKE))
"""Both branches have the same there, though perhaps written by two versions of its type."""
FROM_INITIATING: Final = frozenset((Kind.TAKEN, Kind.INSTANCE_ADDED))
"""By default the initiating branch's state stands afterwards; for all other kinds the source's does."""


Even = Callable[[Sequence[bytes]], Sequence[bytes] | None]
"""Returns states' values as the newest of the definitions that wrote them has them. None: there is only one definition,
or the values cannot be converted."""


class Difference(NamedTuple):
    """A `Difference` is one key, compared. Where a branch did not touch it, its state is the base, and `by` is
    empty."""

    key: bytes
    kind: Kind
    base: State
    source: State
    initiating: State
    source_by: tuple[BranchCommit, ...]
    initiating_by: tuple[BranchCommit, ...]

    @property
    def by_default(self) -> State:
        """Return what stands afterwards if nobody decides otherwise."""
        return self.initiating if self.kind in FROM_INITIATING else self.source

    @property
    def is_conflict(self) -> bool:
        """Say whether the branches contradict each other."""
        return self.kind not in AGREED

    @property
    def is_told(self) -> bool:
        """Say whether it is shown even when not everything is asked for."""
        return self.kind is Kind.CREATED or self.is_conflict


def touched(branch: Iterable[BranchCommit], begun: Mapping[bytes, KeyTouches] | None = None) -> dict[bytes, KeyTouches]:
    """Return, by key, what a branch did behind the fork, or behind what it had `begun` with.

    `branch` is in log order, without what both branches have. DivergedError if a change does not follow the one before
    it: then something of the branch is missing.
    """
    begun = begun or {}
    bases: dict[bytes, State] = {key: t.base for key, t in begun.items()}
    stands: dict[bytes, State] = {key: t.now for key, t in begun.items()}
    by: dict[bytes, list[BranchCommit]] = {key: [*t.by] for key, t in begun.items()}
    for commit in branch:
        for change in commit.changes:
            key = change.key
            if key not in bases:
                bases[key] = stands[key] = _before(change)
            _follows(commit, change, stands[key])
            stands[key] = after(change)
            writers = by.setdefault(key, [])
            if writers[-1:] != [commit]:
                writers.append(commit)
    return {key: KeyTouches(base, stands[key], tuple(by[key])) for key, base in bases.items()}


def _before(change: Change) -> State:
    return None if change.op == CREATE else Instance(change.ref, change.before)


def after(change: Change) -> State:
    """Return what stands there behind the change."""
    return None if change.op == DELETE else Instance(change.ref, change.value)


def _follows(commit: BranchCommit, change: Change, now: State) -> None:
    stands = change.op != CREATE if now is None else change.op == CREATE or now.ref != change.ref
    other = now is not None and None not in (now.value, change.before) and now.value != change.before
    if stands or other:
        raise DivergedError(
            f"lsn {commit.lsn} changes {change.key.hex()[:80]}, and what it changes is not there: a part of the branch "
            "is missing",
            lsn=commit.lsn,
            key=change.key,
        )


def differences(
    source: Mapping[bytes, KeyTouches], initiating: Mapping[bytes, KeyTouches], even: Even | None = None
) -> Iterator[Difference]:
    """Yield every key that either branch touched, by key. DivergedError if the two had different states at the fork:
    then it is no fork of theirs. `even`: for types that have several definitions."""
    for key in sorted({*source, *initiating}):
        ours, theirs = source.get(key), initiating.get(key)
        base = _base(key, ours, theirs)
        s, i = base if ours is None else ours.now, base if theirs is None else theirs.now
        ours_by, theirs_by = (() if side is None else side.by for side in (ours, theirs))
        yield Difference(key, _kind(*_evened((base, s, i), even), ours_by, theirs_by), base, s, i, ours_by, theirs_by)


def two_way(
    source: Mapping[bytes, KeyTouches], initiating: Mapping[bytes, KeyTouches], even: Even | None = None
) -> Iterator[Difference]:
    """Yield the same by the manual's rule, which knows no base. What only the initiating branch has is an instance
    added, even where the source has deleted it, and any difference of one instance is a state conflict."""
    return map(without_base, differences(source, initiating, even))


def without_base(found: Difference) -> Difference:
    """Return what that rule says of a key."""
    s, i = found.source, found.initiating
    if found.kind in EQUAL:
        kind = found.kind
    elif i is None:
        kind = Kind.KEPT
    elif s is None:
        kind = Kind.INSTANCE_ADDED
    else:
        kind = Kind.STATE_CONFLICT if s.ref == i.ref else Kind.KEY_CONFLICT
    return found._replace(kind=kind)


def _base(key: bytes, ours: KeyTouches | None, theirs: KeyTouches | None) -> State:
    """Return what stood there at the fork: both say the same, or one says more."""
    if ours is None or theirs is None:
        only = ours or theirs
        assert only is not None
        return only.base
    a, b = ours.base, theirs.base
    if a is None or b is None:
        agree = a is b
    else:
        agree = a.ref == b.ref and (None in (a.value, b.value) or a.value == b.value)
    if not agree:
        raise DivergedError(
            f"{key.hex()[:80]}: the branches had different objects there at the fork, so that it is no fork of theirs",
            key=key,
        )
    return b if a is not None and a.value is None else a


def _evened(states: tuple[State, State, State], even: Even | None) -> tuple[State, State, State]:
    """Return the states as they are to be compared."""
    values = [s.value for s in states if s is not None and s.value is not None]
    made = None if even is None else even(values)
    if made is None:
        return states
    newest = dict(zip(values, made, strict=True))
    base, s, i = (s if s is None or s.value is None else s._replace(value=newest[s.value]) for s in states)
    return base, s, i


def _changed(by: Sequence[BranchCommit], now: State, base: State) -> bool:
    """Say whether what stands there is another state than at the fork. Where that is not known, every write counts as a
    change."""
    unknown = base is not None and base.value is None
    return bool(by) and (now != base or unknown)


def _kind(base: State, s: State, i: State, ours: Sequence[BranchCommit], theirs: Sequence[BranchCommit]) -> Kind:
    changed = _changed(ours, s, base), _changed(theirs, i, base)
    if s == i:
        return Kind.ALIKE if all(changed) else Kind.SAME
    if s is None and i is not None and _is_new(i, base):
        return Kind.INSTANCE_ADDED
    if not all(changed):
        return Kind.KEPT if changed[0] else Kind.TAKEN
    if s is None:
        return Kind.DELETE_UPDATE
    if i is None:
        return Kind.KEPT if _is_new(s, base) else Kind.UPDATE_DELETE
    return Kind.STATE_CONFLICT if s.ref == i.ref else Kind.KEY_CONFLICT


def _is_new(there: Instance, base: State) -> bool:
    return base is None or there.ref != base.ref


def changes_to(now: State, then: State, *, key: bytes, version: int) -> tuple[Change, ...]:
    """Return the changes that turn `now`, the source's state of a key, into `then`. The key has this version there
    (ABSENT: nothing is there). A new instance comes behind the end of the old one."""
    if now == then:
        return ()
    made: list[Change] = []
    if now is not None and (then is None or then.ref != now.ref):
        made.append(Change(DELETE, now.ref, key, None, version, now.value))
    if then is not None and (now is None or then.ref != now.ref):
        made.append(Change(CREATE, then.ref, key, then.value, ABSENT))
    elif then is not None and now is not None:
        made.append(Change(UPDATE, then.ref, key, then.value, version, now.value))
    return tuple(made)
