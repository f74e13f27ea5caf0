"""This module has the report of a merge: what it found and decided, key by key, as it stands in the log beside its
result (M2, M3).

Every part of a merge carries the evidence for each of its keys: both branches' states and their common one, what was
found, what was decided and by whom. So the report is there exactly if the merge is, at every site, as long as the log
is held. Undoing a merge needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from halog.core.log.records import Change, Merged
from restore.merge import BranchCommit, Difference, Instance, Kind, State, changes_to
from restore.plan import Choice

_STATE = tuple[bytes, bytes | None] | None
FORMAT = 1

MAX_BYTES = 1_000_000
"""The limit of the states that are told beside the one that stands. That one may be as large as a commit; together they
keep a part below what the log takes. Beyond the limit only the instances are told, not what they were."""


MAX_WRITES = 2_000
"""How many of each branch's writes are told, the latest ones: an object may have been written a hundred thousand
times."""


class Evidence(msgspec.Struct, frozen=True, array_like=True):
    """An `Evidence` is the evidence for one key. Each state is told once: -1 is the one that stands, other numbers
    point into `states`."""

    format: int
    kind: str
    states: tuple[_STATE, ...]
    base: int
    source: int
    initiating: int
    verdict: str
    """The name of what decided; "": the rule did."""
    why: str
    """Why an operator is to decide, or what a trigger raised."""
    source_by: tuple[tuple[bytes, int, int], ...]
    """The latest writes of the source's branch, in order: transaction, lsn, ms since 1970."""
    initiating_by: tuple[tuple[bytes, int, int], ...]


_DECODER = msgspec.msgpack.Decoder(Evidence)


def merged(choice: Choice, verdict: str) -> Merged:
    """Return what is to stand, with its evidence."""
    found, then = choice.found, choice.then
    if not is_known(then):
        raise ValueError(f"nobody has said what {found.key.hex()[:80]} was, which is to stand: it would be deleted")
    states, at = _numbered(then, found.source, found.initiating, found.base)
    source, initiating, base = at
    evidence = Evidence(
        FORMAT,
        found.kind.value,
        states,
        base,
        source,
        initiating,
        verdict,
        choice.deferred,
        tuple((c.tx, c.lsn, c.time_ms) for c in found.source_by[-MAX_WRITES:]),
        tuple((c.tx, c.lsn, c.time_ms) for c in found.initiating_by[-MAX_WRITES:]),
    )
    ref, value = (b"", None) if then is None else (then.ref, then.value)
    return Merged(found.key, ref, value, msgspec.msgpack.encode(evidence))


def _numbered(then: State, *told: State) -> tuple[tuple[_STATE, ...], list[int]]:
    """Return the states without repetition, the first ones with their values as long as there is room, and the number
    of each."""
    states: list[State] = []
    for state in told:
        if state != then and state not in states:
            states.append(state)
    kept, room = list[_STATE](), MAX_BYTES
    for state in states:
        room -= 0 if state is None else len(state.value or b"")
        kept.append(Instance(state.ref, None) if state is not None and room < 0 else state)
    return tuple(kept), [-1 if state == then else states.index(state) for state in told]


def is_known(state: State) -> bool:
    """Say whether the state itself is known, and not only which instance it was."""
    return state is None or state.value is not None


class ReportEntry(msgspec.Struct, frozen=True):
    """A `ReportEntry` is one key of a report."""

    found: Difference
    then: State
    verdict: str
    why: str


def entry(m: Merged) -> ReportEntry:
    """Read what `merged` made."""
    e = _DECODER.decode(m.evidence)
    then = None if m.value is None else Instance(m.ref, m.value)
    base, source, initiating = (then if at < 0 else _instance(e.states[at]) for at in (e.base, e.source, e.initiating))
    found = Difference(m.key, Kind(e.kind), base, source, initiating, _by(e.source_by), _by(e.initiating_by))
    return ReportEntry(found, then, e.verdict, e.why)


def changes_of(standing: Iterable[Merged], *, second: bool = False) -> Iterator[Change]:
    """Yield what a merge did to the source's branch, or to the `second` one, as if it had been committed there."""
    for m in standing:
        told = entry(m)
        before = told.found.initiating if second else told.found.source
        yield from changes_to(before, told.then, key=m.key, version=0)


def _instance(state: _STATE) -> State:
    return None if state is None else Instance(*state)


def _by(items: tuple[tuple[bytes, int, int], ...]) -> tuple[BranchCommit, ...]:
    return tuple(BranchCommit(tx, lsn, time_ms, ()) for tx, lsn, time_ms in items)
