"""The three-way comparison of two branches (M3, X3): every row of its table, and what must hold for all histories."""

from __future__ import annotations

import pytest
from hypothesis import given

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.errors import DivergedError
from restore.merge import (
    AGREED,
    BranchCommit,
    Difference,
    Instance,
    KeyTouches,
    Kind,
    State,
    changes_to,
    differences,
    touched,
    two_way,
)
from tests.unit.restore.branches import World, worlds

pytestmark = pytest.mark.feature("M3", "X3")

KEY = b"k"
A, A2, A3 = Instance(b"a", b"1"), Instance(b"a", b"2"), Instance(b"a", b"3")
N, N2, M = Instance(b"n", b"1"), Instance(b"n", b"2"), Instance(b"m", b"1")
"""One instance in three states, another in two, and a third one."""

TABLE: list[tuple[State, State, State, Kind, Kind]] = [
    # at the fork, source, initiating: with the base, and without
    (A, A, A2, Kind.TAKEN, Kind.STATE_CONFLICT),
    (A, A, None, Kind.TAKEN, Kind.KEPT),
    (A, A, N, Kind.TAKEN, Kind.KEY_CONFLICT),
    (A, A2, A, Kind.KEPT, Kind.STATE_CONFLICT),
    (A, None, A, Kind.KEPT, Kind.INSTANCE_ADDED),
    (A, N, A, Kind.KEPT, Kind.KEY_CONFLICT),
    (None, N, None, Kind.KEPT, Kind.KEPT),
    (A, N, None, Kind.KEPT, Kind.KEPT),
    (A, A2, A2, Kind.ALIKE, Kind.ALIKE),
    (A, None, None, Kind.ALIKE, Kind.ALIKE),
    (None, None, None, Kind.SAME, Kind.SAME),
    (None, None, N, Kind.INSTANCE_ADDED, Kind.INSTANCE_ADDED),
    (A, None, N, Kind.INSTANCE_ADDED, Kind.INSTANCE_ADDED),
    (None, N, M, Kind.KEY_CONFLICT, Kind.KEY_CONFLICT),
    (A, N, M, Kind.KEY_CONFLICT, Kind.KEY_CONFLICT),
    (A, A2, N, Kind.KEY_CONFLICT, Kind.KEY_CONFLICT),
    (A, N, A2, Kind.KEY_CONFLICT, Kind.KEY_CONFLICT),
    (A, A2, A3, Kind.STATE_CONFLICT, Kind.STATE_CONFLICT),
    (A, None, A2, Kind.DELETE_UPDATE, Kind.INSTANCE_ADDED),
    (A, A2, None, Kind.UPDATE_DELETE, Kind.KEPT),
]


def did(base: State, now: State, lsn: int = 1) -> dict[bytes, KeyTouches]:
    return {} if now == base else {KEY: KeyTouches(base, now, (BranchCommit(b"t", lsn, 0, ()),))}


@pytest.mark.parametrize(("base", "source", "initiating", "kind", "without_base"), TABLE)
def test_every_row(base: State, source: State, initiating: State, kind: Kind, without_base: Kind) -> None:
    ours, theirs = did(base, source), did(base, initiating)
    found = list(differences(ours, theirs))
    assert [(d.kind, d.base, d.source, d.initiating) for d in found] == (
        [(kind, base, source, initiating)] if ours or theirs else []
    )
    assert [d.kind for d in two_way(ours, theirs)] == ([without_base] if ours or theirs else [])
    if found:
        kept = kind in {Kind.TAKEN, Kind.INSTANCE_ADDED}
        assert found[0].by_default == (initiating if kept else source)


def test_what_was_changed_back_was_not_changed() -> None:
    """But where the policy keeps no before-images nobody knows: then it was."""
    back = [
        BranchCommit(b"t1", 1, 0, [Change(UPDATE, b"a", KEY, b"2", 5, b"1")]),
        BranchCommit(b"t2", 2, 0, [Change(UPDATE, b"a", KEY, b"1", 6, b"2")]),
    ]
    (found,) = differences(touched(back), did(A, A3))
    assert found.kind is Kind.TAKEN
    blind = [
        BranchCommit(c.tx, c.lsn, 0, [Change(x.op, x.ref, x.key, x.value, x.replaced) for x in c.changes]) for c in back
    ]
    assert touched(blind)[KEY].base == Instance(b"a", None)
    (found,) = differences(touched(blind), did(A, A3))
    assert (found.kind, found.base) == (Kind.TAKEN, A), "the other branch says what it was"
    (found,) = differences(touched(blind), did(Instance(b"a", None), A3))
    assert found.kind is Kind.STATE_CONFLICT


# --- any two branches ---


def found_in(world: World) -> list[Difference]:
    return list(differences(touched(world.source), touched(world.initiating)))


@given(worlds())
def test_it_looks_at_what_was_touched_and_at_nothing_else(world: World) -> None:
    found = {d.key: d for d in found_in(world)}
    assert set(found) == {c.changes[0].key for c in (*world.source, *world.initiating)}
    for key, d in found.items():
        assert (d.base, d.source, d.initiating) == (
            world.base.get(key),
            world.ends[0].get(key),
            world.ends[1].get(key),
        )
        assert d.source_by == tuple(c for c in world.source if c.changes[0].key == key)
        assert d.initiating_by == tuple(c for c in world.initiating if c.changes[0].key == key)


@given(worlds())
def test_what_one_side_changed_stands_and_a_conflict_takes_two(world: World) -> None:
    for d in found_in(world):
        changed = d.source != d.base, d.initiating != d.base
        if changed == (True, False):
            assert d.by_default == d.source
        elif changed == (False, True):
            assert d.by_default == d.initiating
        assert d.kind in AGREED or d.kind is Kind.INSTANCE_ADDED or all(changed)
        assert d.by_default in (d.source, d.initiating)


MIRRORED = {
    Kind.TAKEN: Kind.KEPT,
    Kind.INSTANCE_ADDED: Kind.KEPT,
    Kind.DELETE_UPDATE: Kind.UPDATE_DELETE,
    Kind.UPDATE_DELETE: Kind.DELETE_UPDATE,
}


@given(worlds())
def test_the_other_way_round_it_is_the_same_comparison(world: World) -> None:
    other = {d.key: d for d in differences(touched(world.initiating), touched(world.source))}
    for d in found_in(world):
        if d.kind is Kind.KEPT:
            assert other[d.key].kind in {Kind.TAKEN, Kind.INSTANCE_ADDED}
        else:
            assert other[d.key].kind is MIRRORED.get(d.kind, d.kind)


@given(worlds())
def test_the_changes_make_of_the_source_what_is_to_stand(world: World) -> None:
    now = dict(world.ends[0])
    for d in found_in(world):
        for c in changes_to(d.source, d.by_default, key=d.key, version=7):
            there = now.pop(d.key, None)
            assert (c.replaced, c.before) == ((ABSENT, None) if there is None else (7, there.value))
            assert (c.op == CREATE) == (there is None)
            assert there is None or there.ref == c.ref
            if c.op != DELETE:
                assert c.value is not None
                now[d.key] = Instance(c.ref, c.value)
        assert now.get(d.key) == d.by_default


@given(worlds())
def test_two_ways_are_the_manuals_rule(world: World) -> None:
    s, i = world.ends
    for d in two_way(touched(world.source), touched(world.initiating)):
        ours, theirs = s.get(d.key), i.get(d.key)
        if theirs is not None and ours is None:
            assert d.kind is Kind.INSTANCE_ADDED
        elif ours is not None and theirs is not None and ours != theirs:
            assert d.kind is (Kind.STATE_CONFLICT if ours.ref == theirs.ref else Kind.KEY_CONFLICT)
        else:
            assert d.kind in {Kind.SAME, Kind.ALIKE, Kind.KEPT}


# --- branches that are none ---


@pytest.mark.parametrize(
    "changes",
    [
        [Change(DELETE, b"a", KEY, None, 5, b"1"), Change(UPDATE, b"a", KEY, b"2", 6, b"1")],
        [Change(UPDATE, b"a", KEY, b"2", 5, b"1"), Change(CREATE, b"n", KEY, b"1", ABSENT)],
        [Change(UPDATE, b"a", KEY, b"2", 5, b"1"), Change(UPDATE, b"n", KEY, b"3", 6, b"2")],
        [Change(UPDATE, b"a", KEY, b"2", 5, b"1"), Change(UPDATE, b"a", KEY, b"3", 6, b"9")],
    ],
)
def test_a_branch_of_which_something_is_missing_is_none(changes: list[Change]) -> None:
    branch = [BranchCommit(b"t%d" % lsn, lsn, 0, [change]) for lsn, change in enumerate(changes, 1)]
    with pytest.raises(DivergedError, match=r"lsn 2 .* a part of the branch is missing"):
        touched(branch)


@pytest.mark.parametrize("other", [None, Instance(b"n", b"1"), Instance(b"a", b"2")])
def test_branches_that_began_with_other_objects_are_no_fork(other: State) -> None:
    with pytest.raises(DivergedError, match="no fork of theirs"):
        list(differences(did(A, A3), did(other, Instance(b"q", b"q"))))


def test_a_transaction_that_changes_a_key_twice_is_named_once() -> None:
    """Deleted and created anew in one go."""
    both = BranchCommit(b"t", 1, 0, [Change(DELETE, b"a", KEY, None, 5, b"1"), Change(CREATE, b"n", KEY, b"1", ABSENT)])
    assert touched([both])[KEY] == KeyTouches(A, N, (both,))
