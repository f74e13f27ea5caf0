"""This module judges what verdicts create beside the objects they were asked about: whether it may be there, and what
stands then (M3).

Law: what is created belongs to the partition that is merged, and its key is free. The source holds nothing there, no
outcome of this merge stands there, and nothing else is created there. In the order of keys the first verdict gets what
it wants. A verdict that cannot have all of it gets nothing of it: its conflict is deferred, and no other verdict
changes for that.

So it does not matter in which pieces verdicts were given, nor how often. What is free is looked at once, over the whole
merge, and the instances are named after it.

It is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from halog.core.ids import REF_BYTES, digest
from restore.compensation import Defer
from restore.merge import Difference, Instance, Kind
from restore.plan import Choice


class CreatedObject(NamedTuple):
    """A `CreatedObject` is an object that a verdict creates."""

    key: bytes
    value: bytes
    partition: str
    """The partition that its key belongs to."""
    said: str
    """Its type and key, as an operator reads them."""


class KeyDecision(NamedTuple):
    """A `KeyDecision` is one key of a merge, with the name of what decided it; "": the rule did."""

    choice: Choice
    by: str
    also: tuple[CreatedObject, ...] = ()
    failed: bool = False
    """A trigger had to decide and has not: it raised, hung, or was not asked. So the choice is deferred."""

    @property
    def key(self) -> bytes:
        """Return the object's key."""
        return self.choice.found.key


class TargetMerge(NamedTuple):
    """A `TargetMerge` is the merge that objects are created in. `find` returns what the source has under a key that
    neither branch touched; None: nothing."""

    partition: str
    name: bytes
    find: Callable[[bytes], object]


def with_created(decided: Sequence[KeyDecision], into: TargetMerge) -> list[KeyDecision]:
    """Return all keys of a merge: those that were decided, in that order, then those that are created as well."""
    told = {d.key: d for d in decided}
    outcome = dict(told)
    made: dict[bytes, tuple[CreatedObject, str]] = {}
    for d in sorted((d for d in decided if d.also), key=lambda d: d.key):
        why = _hindered(d.also, told, made, into)
        if why:
            found = d.choice.found
            outcome[d.key] = KeyDecision(Choice(found, Defer(f"{d.by}: {why}"), found.source), d.by)
        else:
            made |= {new.key: (new, d.by) for new in d.also}
    created = {key: _created(new, outcome.get(key), by, into) for key, (new, by) in sorted(made.items())}
    return [*(outcome | created).values()]


def _hindered(
    also: Sequence[CreatedObject],
    told: Mapping[bytes, KeyDecision],
    made: Mapping[bytes, tuple[CreatedObject, str]],
    into: TargetMerge,
) -> str:
    """Return why these cannot be created; "": they can."""
    seen = set[bytes]()
    for new in also:
        if new.partition != into.partition:
            return f"{new.said} belongs to {new.partition}, and is to be created in {into.partition}"
        if new.key in seen:
            return f"{new.said} is to be created twice"
        if new.key in made:
            return f"{new.said} is to be created, and {made[new.key][1]} has created it beside another object"
        if _is_held(told.get(new.key), new.key, into):
            return f"{new.said} is to be created, and is there"
        seen.add(new.key)
    return ""


def _is_held(at: KeyDecision | None, key: bytes, into: TargetMerge) -> bool:
    """Say whether the source or the merge holds the key. An object of the source counts even if it is to go: it stands
    if that verdict is deferred."""
    if at is None:
        return into.find(key) is not None
    return at.choice.then is not None or at.choice.found.source is not None


def _created(new: CreatedObject, at: KeyDecision | None, by: str, into: TargetMerge) -> KeyDecision:
    """Return the created object as decided. `at`: what was decided about the key. A conflict there stays a conflict."""
    found = at.choice.found if at is not None else Difference(new.key, Kind.CREATED, None, None, None, (), ())
    if not found.is_conflict:
        found = found._replace(kind=Kind.CREATED)
    verdict = at.choice.verdict if at is not None else None
    return KeyDecision(Choice(found, verdict, Instance(reference(into.name, new.key), new.value)), by)


def reference(merge: bytes, key: bytes) -> bytes:
    """Return the reference of what a merge creates there. It is the same however often the merge is begun, and no other
    object has it."""
    return (digest(merge + key) + digest(key + merge))[:REF_BYTES]
