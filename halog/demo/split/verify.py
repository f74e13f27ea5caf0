"""This module checks whether every acknowledged write is accounted for. Pure: it holds the clients' journals against
what is there, and the merge's report.

A write to a departure is accounted for in one of three ways. The state that it left stands. Or a later write came on
top of it: one of its own branch, as the journals say of two writes of one client, or one of the other site's client
that found its state. Or the report has the departure among the conflicts, with the state that this write left for its
own side, and the state that the other site's last write left for the other. The state that stands of a conflict must be
the one that the rule says. A chain that breaks (a write that did not find what the one before it had left) is a lost
write, whatever stands at the end.

Sums are proved as such: what is there is what all acknowledged writes of both sites added, no more and no less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from halog.demo.complaints import Complaints
from halog.demo.journal import ObjectWrite, Sums
from halog.demo.split.journal import DEPARTURE, WriteClaims
from halog.demo.split.result import Conflicts

ADDED = "instance added"
KEPT = ("key conflict", "state conflict", "delete update", "update delete")
"""Kinds of conflicts in which the source's state stands."""


class ReportedConflict(NamedTuple):
    """Holds a conflict, as the report has it: its kind, and what each branch left ("": nothing)."""

    kind: str
    source: str
    initiating: str

    @property
    def stands(self) -> str:
        """Return the state that stands by the rule, if no trigger is asked."""
        return self.initiating if self.kind == ADDED else self.source


class SiteObjects(NamedTuple):
    """Holds what is there: each departure's key with the state left under it, each sum by kind and key, as they were
    read."""

    departures: Sequence[tuple[str, str]]
    sums: Sequence[tuple[str, str, Sums]]


class WriteVerdict(Complaints):
    """A `WriteVerdict` counts writes by their fate, and what is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.merged = self.superseded = self.overruled = self.unaccounted = 0

    @property
    def ok(self) -> bool:
        """Is every write accounted for, and nothing else there?"""
        return not self.unaccounted and not self.wrong

    def complain(self, text: str, lost: int = 0) -> None:
        """Count one more thing that is not as it should be; `lost` writes are unaccounted for."""
        super().complain(text)
        self.unaccounted += lost


def judge(
    initiating: WriteClaims, source: WriteClaims, seen: SiteObjects, report: Mapping[str, ReportedConflict]
) -> WriteVerdict:
    """Judge everything. `report`: the departures that are conflicts."""
    verdict = WriteVerdict()
    for site, claims in (("initiating", initiating), ("source", source)):
        if claims.unknown:
            verdict.complain(f"the client of the {site} site never learned what became of {claims.unknown} writes")
    _departures(initiating, source, seen.departures, report, verdict)
    _sums(initiating, source, seen.sums, verdict)
    return verdict


# --- departures ---


def _departures(
    initiating: WriteClaims,
    source: WriteClaims,
    found: Iterable[tuple[str, str]],
    report: Mapping[str, ReportedConflict],
    v: WriteVerdict,
) -> None:
    there: dict[str, str] = {}
    for key, state in found:
        if key in there:
            v.complain(f"departure {key} is there twice")
        there[key] = state
    keys = {key for claims in (initiating, source) for what, key in claims.writes if what == DEPARTURE}
    for key in sorted(keys):
        by_initiating, by_source = (c.writes.get((DEPARTURE, key), []) for c in (initiating, source))
        _departure(key, by_initiating, by_source, there.get(key, ""), report.get(key), v)
    for key in sorted(there.keys() - keys):
        v.complain(f"departure {key} is there, and nobody has written it")
    for key in sorted(report.keys() - keys):
        v.complain(f"departure {key} is in the report, and nobody has written it")


def _departure(
    key: str,
    initiating: Sequence[ObjectWrite],
    source: Sequence[ObjectWrite],
    state: str,
    told: ReportedConflict | None,
    v: WriteVerdict,
) -> None:
    _chained(key, initiating, {""}, v)
    _chained(key, source, {"", *(w.left for w in initiating)}, v)
    lefts = (initiating[-1].left if initiating else None, source[-1].left if source else None)
    if state not in lefts:
        v.complain(f"departure {key} is {state or 'not there'}: no branch's last write left that ({lefts})")
    if told is not None and state != told.stands:
        v.complain(f"departure {key} is {state or 'not there'}; a {told.kind} leaves {told.stands or 'nothing'}")
    for branch, other in ((initiating, source), (source, initiating)):
        v.superseded += len(branch[:-1])
        if branch:
            _last(key, branch, other, state, told if _is_told(told, initiating, source) else None, v)


def _chained(key: str, branch: Sequence[ObjectWrite], first: set[str], v: WriteVerdict) -> None:
    """Check that each write found what the one before it has left; the first one, what was there."""
    if branch and branch[0].saw not in first:
        v.complain(f"departure {key}: {branch[0].left or 'its end'} found {branch[0].saw}, which nobody left there", 1)
    for before, write in pairwise(branch):
        if write.saw != before.left:
            v.complain(f"departure {key}: {before.left or 'its end'} is lost: {write.left or 'its end'} saw another", 1)


def _is_told(told: ReportedConflict | None, initiating: Sequence[ObjectWrite], source: Sequence[ObjectWrite]) -> bool:
    """Are both branches' last writes in the report? A branch that did not write is as both had it."""
    if told is None:
        return False
    return (not initiating or told.initiating == initiating[-1].left) and (not source or told.source == source[-1].left)


def _last(
    key: str,
    branch: Sequence[ObjectWrite],
    other: Sequence[ObjectWrite],
    state: str,
    told: ReportedConflict | None,
    v: WriteVerdict,
) -> None:
    write = branch[-1]
    if state == write.left or _came_and_went(branch, other):
        v.merged += 1
    elif write.left and any(w.saw == write.left for w in other):
        v.superseded += 1  # both sites had it, and the other site wrote on top of it
    elif told is not None:
        v.overruled += 1
    else:
        v.complain(f"departure {key}: {write.left or 'its end'} is lost; there is {state or 'nothing'}", 1)


def _came_and_went(branch: Sequence[ObjectWrite], other: Sequence[ObjectWrite]) -> bool:
    """Did this branch end what it had made itself, before the other one met it? Then nothing is left."""
    own = {write.left for write in branch} - {""}
    return not branch[0].saw and not branch[-1].left and not any(write.saw in own for write in other)


# --- sums ---


def _sums(
    initiating: WriteClaims, source: WriteClaims, found: Iterable[tuple[str, str, Sums]], v: WriteVerdict
) -> None:
    there: dict[tuple[str, str], Sums] = {}
    for what, key, sums in found:
        if (what, key) in there:
            v.complain(f"{what} {key} is there twice")
        there[what, key] = sums
    keys = {k for claims in (initiating, source) for k in claims.writes if k[0] != DEPARTURE}
    for what, key in sorted(keys | there.keys()):
        writes = [w for claims in (initiating, source) for w in claims.writes.get((what, key), [])]
        expected, sums = _added(writes), there.get((what, key), (0, 0, 0))
        if sums == expected:
            v.merged += len(writes)
            continue
        off = min(len(writes), max(1, abs(sums[0] - expected[0])))
        v.merged += len(writes) - off
        v.complain(f"{what} {key} has {sums}; what was acknowledged adds up to {expected}", max(1, off))


def _added(writes: Iterable[ObjectWrite]) -> Sums:
    writes = list(writes)
    first, second, third = (sum(w.added[i] for w in writes) for i in range(3))
    return first, second, third


# --- the report ---


def conflicts(kinds: Iterable[str]) -> Conflicts:
    """Count conflicts by the manual's classes, and the one class that has no name there."""
    of = Counter(kinds)
    return Conflicts(of[ADDED], of["key conflict"], of["state conflict"], of["delete update"] + of["update delete"])
