"""What a merge would do, and that every write is accounted for (M2, M3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import ABSENT
from halog.core.log.records import CREATE, DELETE, UPDATE
from restore.compensation import Defer, Delete, Fields, KeepInitiating, KeepSource, Replace, Verdict
from restore.merge import AGREED, BranchCommit, Difference, Instance, Kind, State, differences, touched
from restore.plan import BranchWrite, Choice, Fate, chosen, fates, totals
from tests.unit.restore.branches import World, worlds

pytestmark = pytest.mark.feature("M2", "M3")

VERDICTS: list[Verdict] = [KeepSource(), KeepInitiating(), Delete(), Defer("ask somebody"), Replace({"n": 9})]
DECIDES = st.lists(st.sampled_from(VERDICTS), min_size=3, max_size=3)
"""One for each key."""


def encode(found: Difference, fields: Fields) -> bytes:
    return b"%d" % fields["n"]


def planned(world: World, verdicts: list[Verdict]) -> list[Choice]:
    by_key = dict(zip([b"x", b"y", b"z"], verdicts, strict=True))
    found = differences(touched(world.source), touched(world.initiating))
    return list(chosen(found, lambda d: by_key[d.key], encode))


@given(worlds(), DECIDES)
def test_every_write_of_both_branches_has_one_fate(world: World, verdicts: list[Verdict]) -> None:
    plan = planned(world, verdicts)
    writes = [w for choice in plan for w in fates(choice)]
    sides: list[tuple[bool, list[BranchCommit]]] = [(True, world.source), (False, world.initiating)]
    assert Counter((w.source, w.commit.tx, w.key) for w in writes) == Counter(
        (source, commit.tx, commit.changes[0].key) for source, log in sides for commit in log
    )
    counted = totals(plan)
    assert counted.accounted == len(world.source) + len(world.initiating)
    assert counted.writes == Counter(w.fate for w in writes)
    assert counted.keys == len(plan)
    assert sum(counted.conflicts.values()) == sum(c.found.kind not in AGREED for c in plan)
    assert counted.changed == sum(bool(c.changes(1)) for c in plan)


@given(worlds(), DECIDES)
def test_what_is_merged_stands_and_what_is_overruled_is_in_the_report(world: World, verdicts: list[Verdict]) -> None:
    for choice in planned(world, verdicts):
        for written in fates(choice):
            its = choice.found.source if written.source else choice.found.initiating
            if written.fate is Fate.MERGED:
                assert choice.then == its or isinstance(choice.verdict, Replace)
            elif written.fate is Fate.OVERRULED:
                assert choice.verdict is not None
                assert choice.then != its


@given(worlds())
def test_with_everything_kept_nothing_of_the_source_is_overruled(world: World) -> None:
    for choice in planned(world, [KeepSource()] * 3):
        assert not any(w.source and w.fate is Fate.OVERRULED for w in fates(choice))
        if choice.verdict is not None:
            assert choice.changes(1) == ()


T1, T2, T3 = (BranchCommit(b"t%d" % i, i, i, ()) for i in (1, 2, 3))
A, A2, A3 = (Instance(b"a", b"%d" % i) for i in (1, 2, 3))


def conflict(kind: Kind, source: State, initiating: State, base: State = A) -> Difference:
    return Difference(b"k", kind, base, source, initiating, (T1,), (T2, T3))


def only(found: Difference, decide: Callable[[Difference], Verdict]) -> Choice:
    (choice,) = chosen([found], decide, encode)
    return choice


@pytest.mark.parametrize(
    ("verdict", "then", "of_source", "of_initiating"),
    [
        (KeepSource(), A2, Fate.MERGED, Fate.OVERRULED),
        (KeepInitiating(), A3, Fate.OVERRULED, Fate.MERGED),
        (Delete(), None, Fate.OVERRULED, Fate.OVERRULED),
        (Defer("why"), A2, Fate.MERGED, Fate.OVERRULED),
        (Replace({"n": 7}), Instance(b"a", b"7"), Fate.MERGED, Fate.MERGED),
    ],
)
def test_a_state_conflict(verdict: Verdict, then: State, of_source: Fate, of_initiating: Fate) -> None:
    choice = only(conflict(Kind.STATE_CONFLICT, A2, A3), lambda d: verdict)
    assert choice.then == then
    assert list(fates(choice)) == [
        BranchWrite(True, T1, b"k", of_source),
        BranchWrite(False, T2, b"k", Fate.SUPERSEDED),
        BranchWrite(False, T3, b"k", of_initiating),
    ]
    assert choice.deferred == ("why" if isinstance(verdict, Defer) else "")


def test_what_both_came_to_is_asked_and_is_no_conflict() -> None:
    choice = only(conflict(Kind.ALIKE, A2, A2), lambda d: Replace({"n": 3}))
    assert not choice.found.is_conflict
    assert choice.then == A3
    assert totals([choice]).conflicts == {}
    gone = only(conflict(Kind.ALIKE, None, None), lambda d: Replace({"n": 3}))
    assert gone.then is None


def test_an_agreed_difference_asks_nobody() -> None:
    def nobody(found: Difference) -> Verdict:
        raise AssertionError("asked")

    choice = only(conflict(Kind.TAKEN, A, A2), nobody)
    assert choice.then == A2
    assert [c.op for c in choice.changes(5)] == [UPDATE]


def test_another_instance_comes_behind_the_end_of_the_first() -> None:
    other = Instance(b"n", b"1")
    choice = only(conflict(Kind.KEY_CONFLICT, A2, other), lambda d: KeepInitiating())
    delete, create = choice.changes(5)
    assert (delete.op, delete.ref, delete.replaced, delete.before) == (DELETE, b"a", 5, b"2")
    assert (create.op, create.ref, create.replaced, create.value) == (CREATE, b"n", ABSENT, b"1")
