"""This module has the operator's part of a merge: it settles conflicts that the merge left to an operator, each by an
ordinary commit, if it may be (M2, M3).

A commit rests on the version that the merge gave the object. So it changes nothing if somebody else was quicker, and a
settled conflict is not settled again. What makes a conflict open or closed is read from the log: `restore.waiting`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from halog.backend import CommittedObject, Work, Write
from halog.core.ids import ABSENT
from halog.core.log.provisional import lsn_of
from halog.core.log.records import UPDATE, Change
from halog.errors import (
    ConflictError,
    DuplicateKeyError,
    FieldTypeError,
    HalogError,
    LockedError,
    RecordTooLargeError,
    RefusedError,
)
from halog.events import ITEMS, SETTLED, EventPlace, event
from halog.runtime.rpc.pages import ITEM_BYTES, pieces
from halog.schema.definition import ID_BYTES
from restore.merge import Instance, State, changes_to
from restore.report import ReportEntry, is_known
from restore.waiting import UNDONE, MergeReport, ending

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.schema import ForeignType

BATCH_OBJECTS = ITEMS
"""So many conflicts are settled in one transaction: as many as its event names."""
BATCH_BYTES = 1_000_000
"""A transaction has no more bytes than this, or a fifth of the largest record allowed, if that is less."""


class OperatorChoice(NamedTuple):
    """Says what should stand: a state, with some of its fields as the operator gives them."""

    choice: str
    type_name: str = ""
    fields: Mapping[str, Any] | None = None

    @property
    def said(self) -> str:
        """Return the choice in words."""
        return self.choice if self.fields is None else f"{self.choice} with other fields"


class Case(NamedTuple):
    """Holds a conflict that is to be settled."""

    partition: str
    report: MergeReport
    told: ReportEntry

    @property
    def key(self) -> bytes:
        """Return the key of its object."""
        return self.told.found.key


class CaseOutcome(NamedTuple):
    """Says what became of one conflict. `error` says why it is not settled."""

    case: Case
    was: State
    stands: State
    error: HalogError | None = None
    lsn: int = 0
    """The lsn of the commit; 0: there was none."""
    already: bool = False
    """True if it was closed before, and stands as is wanted."""


class _OpenConflict(NamedTuple):
    """Holds a conflict that may be settled now."""

    case: Case
    now: CommittedObject | None
    then: State

    @property
    def was(self) -> State:
        return _state(self.now)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes that settle it: at least one, if anything stands or should."""
        version = ABSENT if self.now is None else self.now.version
        made = changes_to(self.was, self.then, key=self.case.key, version=version)
        if made or self.then is None:
            return made
        return (Change(UPDATE, self.then.ref, self.case.key, self.then.value, version),)


def settled(
    connection: ClusterConnection,
    cases: Iterable[Case],
    wanted: OperatorChoice,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> Iterator[list[CaseOutcome]]:
    """Yield what became of each conflict, commit by commit. A conflict is refused if its object does not stand as its
    merge left it, unless `force` says that this does not matter. With `dry_run` nothing is committed."""
    for _, grouped in groupby(cases, lambda case: (case.partition, case.report.name)):
        group = [*grouped]
        for at in range(0, len(group), BATCH_OBJECTS):
            ready, others = _looked_at(connection, group[at : at + BATCH_OBJECTS], wanted, force)
            if others:
                yield others
            if dry_run:
                yield [CaseOutcome(r.case, r.was, r.then) for r in ready]
            elif ready:
                yield from _committed(connection, ready)


def _looked_at(
    connection: ClusterConnection, cases: Sequence[Case], wanted: OperatorChoice, force: bool
) -> tuple[list[_OpenConflict], list[CaseOutcome]]:
    ready, others = list[_OpenConflict](), list[CaseOutcome]()
    for case, now in zip(cases, connection.fetch(cases[0].partition, [c.key for c in cases]), strict=True):
        was, then = _state(now), None
        try:
            then = _wanted_state(connection, case, wanted)
            if _may_be_settled(case, now, then, force):
                ready.append(_OpenConflict(case, now, then))
            else:
                others.append(CaseOutcome(case, was, then, already=True))
        except RefusedError as error:
            others.append(CaseOutcome(case, was, then, error))
    return ready, others


def _may_be_settled(case: Case, now: CommittedObject | None, then: State, force: bool) -> bool:
    """Return whether it may be settled; False if it is, and stands as is wanted. RefusedError says why it may not
    be."""
    closed, merge = case.report.closing(case.key), case.report.name.hex()
    if closed is not None and closed.why == UNDONE:
        raise RefusedError(f"merge {merge} was undone: nothing that it left to an operator waits any more", merge=merge)
    if closed is not None and _state(now) == then:
        return False
    if force or (closed is None and _is_as_left(case, now)):
        return True
    why = f"{closed.why}, at lsn {closed.lsn}" if closed is not None else "changed just now"
    raise RefusedError(
        f"it does not stand any more as merge {merge} left it: {why}. Nothing was changed; change it by the "
        "application, or say --force if that is to be overruled",
        merge=merge,
    )


def _is_as_left(case: Case, now: CommittedObject | None) -> bool:
    then = case.told.then
    if now is None or then is None:
        return now is None and then is None
    return now.ref == then.ref and lsn_of(now.version) == case.report.lsn


def _state(found: CommittedObject | None) -> State:
    return None if found is None else Instance(found.ref, found.value)


# --- what is to stand ---


def _wanted_state(connection: ClusterConnection, case: Case, wanted: OperatorChoice) -> State:
    found = case.told.found
    states = {"source": found.source, "initiating": found.initiating, "base": found.base, "nothing": None}
    chosen = states[wanted.choice]
    if not is_known(chosen):
        raise RefusedError(
            f"what it was ({wanted.choice}) is not kept in the log, only that it was there: say what is to stand, all "
            "of it, by --fields"
        )
    return chosen if wanted.fields is None else _with_fields(connection, case, chosen, wanted)


def _with_fields(connection: ClusterConnection, case: Case, chosen: State, wanted: OperatorChoice) -> Instance:
    """Return the chosen state's instance with the given fields. If nothing stood there, it is the one that did at
    either site, or a new one."""
    assert wanted.fields is not None
    found = case.told.found
    foreign = _written_by(connection, case, chosen, wanted.type_name)
    before = {} if chosen is None or chosen.value is None else foreign.decode(chosen.value)
    fields = {**before, **wanted.fields}
    value = foreign.encode(fields)
    if _key_of(foreign, fields) != case.key:
        raise FieldTypeError(f"{foreign.name}: --fields cannot change the key", type=foreign.name)
    there = chosen or found.source or found.initiating
    return Instance(connection.new_reference().to_bytes() if there is None else there.ref, value)


def _written_by(connection: ClusterConnection, case: Case, chosen: State, type_name: str) -> ForeignType:
    """Return the definition that wrote it. If there is nothing, return the newest one of what was there at some
    time."""
    definitions, found = connection.definitions, case.told.found
    if chosen is not None and chosen.value is not None:
        return definitions.foreign(chosen.value[:ID_BYTES])
    some = next((s.value for s in (found.source, found.initiating, found.base) if s is not None and s.value), None)
    name = type_name if some is None else definitions.of(some).name
    return definitions.foreign(definitions.current(name).type_id)


def _key_of(foreign: ForeignType, fields: Mapping[str, Any]) -> bytes:
    from halog.cli.shared.values import key_from_plain

    return foreign.index_key(key_from_plain(foreign.parsed, [fields[name] for name in foreign.parsed.key]))


# --- commits ---


def _committed(connection: ClusterConnection, ready: Sequence[_OpenConflict]) -> Iterator[list[CaseOutcome]]:
    """Commit all at once but those that change nothing; commit one by one where that is refused for any of them."""
    changing = [r for r in ready if r.changes]
    room = min(BATCH_BYTES, connection.config.limits.max_record_bytes // 5)
    for some in pieces(changing, _size_of, room):
        yield from _at_once(connection, some)
    for one in ready:
        if not one.changes:
            yield from _at_once(connection, [one])


def _size_of(one: _OpenConflict) -> int:
    """Return the bytes of its changes in a record, and of what they replace."""
    was = 0 if one.was is None else len(one.was.value or b"")
    return was + sum(len(c.key) + len(c.value or b"") + ITEM_BYTES for c in one.changes)


def _at_once(connection: ClusterConnection, ready: Sequence[_OpenConflict]) -> Iterator[list[CaseOutcome]]:
    try:
        lsn = _commit(connection, ready)
        yield [CaseOutcome(r.case, r.was, r.then, lsn=lsn) for r in ready]
    except (ConflictError, DuplicateKeyError, RecordTooLargeError) as error:
        if len(ready) > 1:
            for one in ready:
                yield from _at_once(connection, [one])
        else:
            yield [CaseOutcome(r.case, r.was, r.then, _refusal(error)) for r in ready]


def _refusal(error: HalogError) -> HalogError:
    if isinstance(error, LockedError | RecordTooLargeError):
        return error
    return RefusedError(f"it was changed just now, and not by this: {error.message}")


def _commit(connection: ClusterConnection, ready: Sequence[_OpenConflict]) -> int:
    case, writes = ready[0].case, [w for r in ready for w in r.changes]
    if not writes:
        return connection.submit(case.partition, Work(((case.key, ABSENT),), ()), ending(case.report.name, case.key))
    made = tuple(Write(w.op, w.ref, w.key, w.value, w.replaced) for w in writes)
    return connection.submit(case.partition, Work((), made), ending(case.report.name))


def tell(
    connection: ClusterConnection, done: Sequence[CaseOutcome], stands: str, names: Sequence[str], reason: str
) -> bool:
    """Write a commit into the event history: what, who, why. Return False if it does not take it."""
    from halog.cli.shared.event_log import note
    from halog.metadata.identity import who

    case, lsn, by = done[0].case, done[0].lsn, who()
    merge = case.report.name.hex()
    more = {"merge": merge, "count": len(done), "stands": stands, "objects": [*names], "by": by, "reason": reason}
    told = event(
        SETTLED,
        EventPlace(connection.config.cluster.name, connection.name, case.partition, lsn=lsn),
        name=f"{connection.name}/{merge}/{lsn}",
        time_ms=time.time_ns() // 1_000_000,
        node=by,
        cause=f"by {by}" + (f": {reason}" if reason else ""),
        more=more,
    )
    return note(connection, told)
