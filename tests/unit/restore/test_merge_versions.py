"""Two sites run different versions of a type: a difference that is the version's alone is none (M3, U3)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from restore import results
from restore.branches import BranchComparison, outcomes
from restore.divergence import Same
from restore.merge import BranchCommit, Instance, KeyTouches, Kind, State, differences, touched, two_way
from restore.plan import Fate, totals
from tests.unit.restore.branches import World, worlds
from tests.unit.restore.test_results import FORK, bare, carried, later
from tests.unit.restore.versions import VALUES, even, new, newest, old

pytestmark = pytest.mark.feature("M3", "U3")

KEY = b"k"


def a(value: bytes) -> Instance:
    return Instance(b"a", value)


TABLE: list[tuple[State, State, State, Kind, Kind]] = [
    # at the fork, source, initiating: with the base, and without
    (a(old(1)), a(new(2)), a(old(2)), Kind.ALIKE, Kind.ALIKE),
    (a(old(1)), a(old(2)), a(new(2)), Kind.ALIKE, Kind.ALIKE),
    (a(old(1)), a(new(1)), a(old(2)), Kind.TAKEN, Kind.STATE_CONFLICT),
    (a(old(1)), a(old(2)), a(new(1)), Kind.KEPT, Kind.STATE_CONFLICT),
    (a(old(1)), a(new(1)), None, Kind.TAKEN, Kind.KEPT),
    (a(old(1)), None, a(new(1)), Kind.KEPT, Kind.INSTANCE_ADDED),
    (a(old(1)), a(new(1)), a(old(1)), Kind.SAME, Kind.SAME),
    (a(old(1)), a(new(1)), a(new(1)), Kind.SAME, Kind.SAME),
    (a(old(1)), a(new(1, 7)), a(old(2)), Kind.STATE_CONFLICT, Kind.STATE_CONFLICT),
    (a(old(1)), a(new(2, 7)), a(old(2)), Kind.STATE_CONFLICT, Kind.STATE_CONFLICT),
    (a(old(1)), a(new(1)), Instance(b"n", old(1)), Kind.TAKEN, Kind.KEY_CONFLICT),
    (a(b"unknown type"), a(new(2)), a(old(2)), Kind.STATE_CONFLICT, Kind.STATE_CONFLICT),
]


@pytest.mark.parametrize(("base", "source", "initiating", "kind", "without_base"), TABLE)
def test_every_row(base: State, source: State, initiating: State, kind: Kind, without_base: Kind) -> None:
    """What stands, and what is told, is as it was written."""
    ours, theirs = ({KEY: KeyTouches(base, now, (BranchCommit(b"t", 1, 0, ()),))} for now in (source, initiating))
    (found,) = differences(ours, theirs, even)
    assert (found.kind, found.base, found.source, found.initiating) == (kind, base, source, initiating)
    (found,) = two_way(ours, theirs, even)
    assert (found.kind, found.base, found.source, found.initiating) == (without_base, base, source, initiating)


def by_the_newest(branch: Sequence[BranchCommit]) -> list[BranchCommit]:
    """As if both sites had run the new version all along."""
    return [
        c._replace(changes=[replace(x, value=newest(x.value), before=newest(x.before)) for x in c.changes])
        for c in branch
    ]


@given(worlds(VALUES, old(1)), st.booleans())
def test_each_key_is_what_it_would_be_had_all_of_it_been_written_by_the_new_version(world: World, three: bool) -> None:
    rule = differences if three else two_way
    found = list(rule(touched(world.source), touched(world.initiating), even))
    one = list(rule(touched(by_the_newest(world.source)), touched(by_the_newest(world.initiating))))
    assert [(d.key, d.kind) for d in found] == [(d.key, d.kind) for d in one]
    written, plain = (totals(outcomes(BranchComparison(Same(), tuple(keys)))) for keys in (found, one))
    assert (written.conflicts, written.deferred) == (plain.conflicts, plain.deferred)
    assert sum(written.writes.values()) == sum(plain.writes.values())
    assert written.writes.get(Fate.OVERRULED) == plain.writes.get(Fate.OVERRULED)


@given(worlds(VALUES, old(1)), st.integers(0, 8), st.booleans())
def test_wherever_the_source_is_cut(world: World, at: int, three: bool) -> None:
    """What was found of two branches, and what one of them has done since, is what is found of both at once."""
    theirs = touched(world.initiating)
    seen = carried(list(differences(touched(world.source[:at]), theirs, even)))
    seen = seen if three else results.two_way_of(seen)
    found = results.compared(seen, FORK, later(world.source[at:]), three_way=three, even=even)
    expected = (differences if three else two_way)(touched(world.source), theirs, even)
    assert [bare(d) for d in found.keys] == [bare(d) for d in expected]
