"""What verdicts create beside the objects they were asked about (M3)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from restore.compensation import Defer, Delete, KeepInitiating, KeepSource, Verdict
from restore.creating import CreatedObject, KeyDecision, TargetMerge, reference, with_created
from restore.merge import Difference, Instance, Kind, State
from restore.plan import Choice
from restore.report import entry, merged
from restore.undoing import undone
from tests.unit.core.sites.copy_model import Held

pytestmark = pytest.mark.feature("M3")

OURS, THEIRS = Instance(b"s" * 24, b"source"), Instance(b"i" * 24, b"initiating")
INTO = TargetMerge("p", b"merge", lambda key: OURS if key == b"held" else None)


def new(key: bytes, partition: str = "p") -> CreatedObject:
    return CreatedObject(key, b"new " + key, partition, key.decode())


def decided(
    key: bytes,
    *also: CreatedObject,
    source: State = OURS,
    then: State = OURS,
    kind: Kind = Kind.STATE_CONFLICT,
    by: str = "by",
) -> KeyDecision:
    verdict: Verdict = Delete() if then is None else KeepSource() if then == source else KeepInitiating()
    return KeyDecision(Choice(Difference(key, kind, None, source, THEIRS, (), ()), verdict, then), by, also)


def whys(found: list[KeyDecision]) -> dict[bytes, str]:
    return {d.key: d.choice.deferred for d in found if d.choice.deferred}


def test_what_is_created_stands_and_is_told_under_its_own_key() -> None:
    one = decided(b"a", new(b"x"), new(b"y"), by="trigger")
    found = with_created([one], INTO)
    assert found[0] == one
    assert [(d.key, d.by, d.choice.then) for d in found[1:]] == [
        (key, "trigger", Instance(reference(b"merge", key), b"new " + key)) for key in (b"x", b"y")
    ]
    for d in found[1:]:
        told = entry(merged(d.choice, d.by))
        assert (told.found.kind, told.found.source, told.then, told.verdict) == (
            Kind.CREATED,
            None,
            d.choice.then,
            "trigger",
        )
        assert (told.found.is_conflict, told.found.is_told) == (False, True)


def test_it_has_a_reference_of_its_own_the_same_each_time() -> None:
    names = itertools.product((b"merge", b"other"), (b"x", b"y"))
    made = [reference(*name) for name in names]
    assert {len(ref) for ref in made} == {24}
    assert len(set(made)) == 4
    assert with_created([decided(b"a", new(b"x"))], INTO) == with_created([decided(b"a", new(b"x"))], INTO)


@pytest.mark.parametrize(
    ("also", "why"),
    [
        ([new(b"x", "q")], "x belongs to q, and is to be created in p"),
        ([new(b"held")], "held is to be created, and is there"),
        ([new(b"y"), new(b"x"), new(b"x")], "x is to be created twice"),
        ([new(b"b")], "b is to be created, and is there"),
        ([new(b"c")], "c is to be created, and is there"),
        ([new(b"d")], "d is to be created, and is there"),
    ],
)
def test_one_that_cannot_have_all_has_nothing_and_nothing_else_is_changed(also: list[CreatedObject], why: str) -> None:
    """`b` stands at the source, `c` goes there, `d` comes from the initiating branch."""
    others = [
        decided(b"b"),
        decided(b"c", then=None),
        decided(b"d", source=None, then=THEIRS, kind=Kind.INSTANCE_ADDED),
    ]
    found = with_created([decided(b"a", *also, then=THEIRS), *others], INTO)
    assert found[1:] == others
    assert (found[0].choice.then, found[0].choice.verdict, found[0].by) == (OURS, Defer(f"by: {why}"), "by")


def test_the_first_in_the_order_of_keys_has_it() -> None:
    wants = [decided(key, new(b"x"), by=key.decode()) for key in (b"b", b"a", b"c")]
    found = with_created(wants, INTO)
    why = "x is to be created, and a has created it beside another object"
    assert whys(found) == {b"b": f"b: {why}", b"c": f"c: {why}"}
    assert [(d.key, d.by) for d in found] == [(b"b", "b"), (b"a", "a"), (b"c", "c"), (b"x", "a")]


def test_where_nothing_stands_after_the_merge_something_can_be_created() -> None:
    """What was found about that key stays in the report, a conflict as one."""
    gone = [
        decided(b"b", source=None, then=None, kind=Kind.DELETE_UPDATE),
        decided(b"c", source=None, then=None, kind=Kind.ALIKE),
    ]
    found = with_created([decided(b"a", new(b"b"), new(b"c")), *gone], INTO)
    assert not whys(found)
    assert [(d.key, d.choice.found.kind) for d in found[1:]] == [(b"b", Kind.DELETE_UPDATE), (b"c", Kind.CREATED)]
    assert all(d.choice.then is not None and d.choice.found.initiating == THEIRS for d in found[1:])


def test_a_conflict_that_is_deferred_stays_so_though_something_is_created_there() -> None:
    empty = decided(b"b", new(b"held"), source=None, then=None, kind=Kind.INSTANCE_ADDED)
    found = {d.key: d for d in with_created([decided(b"a", new(b"b")), empty], INTO)}
    assert found[b"b"].choice.then == Instance(reference(b"merge", b"b"), b"new b")
    assert found[b"b"].choice.deferred == "by: held is to be created, and is there"


KEYS = [b"a", b"b", b"c", b"x", b"y"]
STATES = st.sampled_from([(OURS, OURS), (OURS, THEIRS), (OURS, None), (None, THEIRS), (None, None)])
ALSO = st.lists(st.builds(new, st.sampled_from([*KEYS, b"held"]), st.sampled_from(["p", "p", "p", "q"])), max_size=2)


@given(st.dictionaries(st.sampled_from(KEYS), st.tuples(STATES, ALSO), min_size=1))
def test_each_has_all_it_wants_or_is_deferred_and_undoing_leaves_nothing(
    wanted: dict[bytes, tuple[tuple[State, State], list[CreatedObject]]],
) -> None:
    some = [
        decided(key, *(n for n in also if n.key != key), source=source, then=then)
        for key, ((source, then), also) in wanted.items()
    ]
    found = {d.key: d for d in with_created(some, INTO)}
    assert found == {d.key: d for d in with_created(some[::-1], INTO)}, "the order they come in decides nothing"
    chosen = {key: d.choice.then for key, d in found.items()}
    made = {key: then for key, then in chosen.items() if then and then.value and then.value[:3] == b"new"}
    expected: list[bytes] = []
    for one in some:
        now = found[one.key].choice
        if now.deferred:
            assert one.also
            assert now.then in (now.found.source, made.get(one.key))
        else:
            expected += [n.key for n in one.also]
            assert now.then in (one.choice.then, made.get(one.key))
    assert sorted(expected) == sorted(made), "created, and by one only"
    assert b"held" not in made
    stands = {key: d.choice.then for key, d in found.items()}
    held = {key: Held(then.ref, then.value or b"", 1) for key, then in stands.items() if then is not None}
    back = undone([entry(merged(d.choice, d.by)) for d in found.values()], lambda key: 1, held.get).merged
    assert {m.key for m in back if m.value is None} >= set(made)
