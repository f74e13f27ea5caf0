"""This module says what is to stand where both branches changed an object: verdicts, and the policies that come with
halog (M3).

A compensation trigger is a function of the application, per type. It is shown a conflict with all three states and
gives its verdict. The policies here are such functions, for applications that need none of their own; `merged_fields`
looks at each field by itself. A trigger sees fields by name, decoded by the type's newest definition; the key's are
among them.

A verdict that settles the conflict may also create objects of its type (`also`): each with all its fields, under a key
of its own. `restore.creating` says what that takes.

It is pure. A verdict takes effect once, since it is a part of its merge, which is one epoch.
`halog.runtime.merge.compensation` asks triggers, as often as the merge is begun, and lets them change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from restore.merge import Kind

Fields = Mapping[str, Any]


class Conflict(NamedTuple):
    """A `Conflict` is one object, as both branches left it and as it was when they parted; None: it was not there."""

    type_name: str
    """The type of what is there: the source's object; where the source has none, the initiating branch's, or the
    base."""
    key: Fields
    kind: Kind
    base: Fields | None
    source: Fields | None
    initiating: Fields | None
    source_ms: int
    initiating_ms: int
    """When each branch last wrote to it, by its log's clock, since the epoch of Unix; 0: it did not."""
    source_type: str = ""
    initiating_type: str = ""
    """The types of the two states. Under one key they may be of two types of a family, each with the fields of its own.
    "": nothing is there."""
    base_known: bool = True
    """False: an object was there when they parted, and its policy keeps no before-images, so that `base` is None."""


class KeepSource(NamedTuple):
    """The source's state stands, its deletion too."""

    also: tuple[Fields, ...] = ()


class KeepInitiating(NamedTuple):
    """The initiating branch's state stands, its deletion too."""

    also: tuple[Fields, ...] = ()


class Replace(NamedTuple):
    """The object gets these fields, in the instance that is there: the source's, or where the source has none, the
    initiating branch's. The key's fields stay as they are."""

    fields: Fields
    also: tuple[Fields, ...] = ()


class Delete(NamedTuple):
    """Nothing stands."""

    also: tuple[Fields, ...] = ()


class Defer(NamedTuple):
    """An operator is to decide; until then the source's state stands. `why` is for the operator."""

    why: str


Verdict = KeepSource | KeepInitiating | Replace | Delete | Defer
Trigger = Callable[[Conflict], Verdict]


def by_default(conflict: Conflict) -> Verdict:
    """Decide by the manual's defaults: an added instance is added, in all other cases the source is kept."""
    return KeepInitiating() if conflict.kind is Kind.INSTANCE_ADDED else KeepSource()


def keep_source(conflict: Conflict) -> Verdict:
    """Keep the source's state, even where the initiating branch has added an instance: it is dropped."""
    return KeepSource()


def keep_initiating(conflict: Conflict) -> Verdict:
    """Keep the initiating branch's state, whatever the source has."""
    return KeepInitiating()


def latest(conflict: Conflict) -> Verdict:
    """Keep the state that was written last, by the clocks of the two logs, which may be apart; the source's if both
    were written at once."""
    return KeepInitiating() if conflict.initiating_ms > conflict.source_ms else KeepSource()


UNKNOWN: Final = "what it was when the sites parted is in no log (before_images = false), and it is merged by that"

MISSING: Final = object()
"""A field that a state lacks, because its definition came later."""


def merged_fields(
    *, counters: Collection[str] = (), sets: Collection[str] = (), otherwise: Trigger = by_default
) -> Trigger:
    """Return a trigger that merges field by field: what one branch changed stands.

    The steps of both branches are added up for `counters`, even where both come to the same value. `sets` are lists
    without order or duplicates: what either branch added is there, and what either removed is not. `otherwise` decides
    where both changed another field to different values, and wherever there are not three states of one instance. Where
    the common state is not known, an operator decides.
    """

    def trigger(conflict: Conflict) -> Verdict:
        base, source, initiating = conflict.base, conflict.source, conflict.initiating
        both = conflict.kind in {Kind.STATE_CONFLICT, Kind.ALIKE}
        if both and not conflict.base_known:
            return Defer(UNKNOWN) if counters or source != initiating else KeepSource()
        if not both or base is None or source is None or initiating is None:
            return otherwise(conflict)
        made: dict[str, Any] = {}
        for name in source:
            states = base.get(name, MISSING), source[name], initiating.get(name, MISSING)
            field = _merged(*states, counts=name in counters, collects=name in sets)
            if field is MISSING:
                return otherwise(conflict)
            made[name] = field
        return Replace(made)

    return trigger


def _merged(base: Any, source: Any, initiating: Any, *, counts: bool, collects: bool) -> Any:
    """Merge one field. MISSING: both changed it, each in its way."""
    if counts and MISSING not in (base, initiating):
        return base + (source - base) + (initiating - base)
    if initiating is MISSING or initiating in (base, source):
        return source
    if source == base:
        return initiating
    if collects and base is not MISSING:
        return _united(base, source, initiating)
    return MISSING


def _united(base: Collection[Any], source: Collection[Any], initiating: Collection[Any]) -> list[Any]:
    """Return the items in the source's order, and behind them what only the initiating branch added."""
    was, ours, theirs = _looked_up(base, source, initiating)
    kept = [item for item in source if item in theirs or item not in was]
    return [*kept, *(item for item in initiating if item not in was and item not in ours)]


def _looked_up(*states: Collection[Any]) -> tuple[Collection[Any], ...]:
    """Return collections in which single items are found at once, if the items have a hash."""
    try:
        return tuple(frozenset(state) for state in states)
    except TypeError:
        return states
