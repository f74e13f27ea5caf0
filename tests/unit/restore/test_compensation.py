"""The policies that decide conflicts (M3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from restore.compensation import (
    Conflict,
    Defer,
    Fields,
    KeepInitiating,
    KeepSource,
    Replace,
    Trigger,
    by_default,
    keep_initiating,
    keep_source,
    latest,
    merged_fields,
)
from restore.merge import AGREED, Kind

pytestmark = pytest.mark.feature("M3")


def conflict(
    base: Fields | None, source: Fields | None, initiating: Fields | None, kind: Kind = Kind.STATE_CONFLICT, **more: int
) -> Conflict:
    times: dict[str, Any] = {"source_ms": 1, "initiating_ms": 2} | more
    return Conflict("Order", {"id": 1}, kind, base, source, initiating, **times)


STATES = conflict({"n": 1}, {"n": 2}, {"n": 3})


@pytest.mark.parametrize("kind", [k for k in Kind if k not in AGREED])
def test_the_manuals_defaults(kind: Kind) -> None:
    expected = KeepInitiating() if kind is Kind.INSTANCE_ADDED else KeepSource()
    assert by_default(STATES._replace(kind=kind)) == expected


def test_one_side_always() -> None:
    added = conflict(None, None, {"n": 1}, Kind.INSTANCE_ADDED)
    assert [keep_source(c) for c in (STATES, added)] == [KeepSource()] * 2
    assert [keep_initiating(c) for c in (STATES, added)] == [KeepInitiating()] * 2


@pytest.mark.parametrize(
    ("source_ms", "initiating_ms", "wins"), [(1, 2, True), (2, 1, False), (2, 2, False), (0, 1, True)]
)
def test_the_latest(source_ms: int, initiating_ms: int, wins: bool) -> None:
    found = latest(STATES._replace(source_ms=source_ms, initiating_ms=initiating_ms))
    assert found == (KeepInitiating() if wins else KeepSource())


def defer(found: Conflict) -> Defer:
    return Defer(found.kind.value)


def merged(base: Fields, source: Fields, initiating: Fields, **more: Any) -> Fields | None:
    """None: it was not for the policy to decide."""
    verdict = merged_fields(otherwise=defer, **more)(conflict(base, source, initiating))
    return verdict.fields if isinstance(verdict, Replace) else None


def test_fields_that_one_branch_changed_each() -> None:
    base = {"id": 1, "name": "a", "price": 5, "note": "x"}
    found = merged(base, {**base, "name": "b"}, {**base, "price": 6})
    assert found == {"id": 1, "name": "b", "price": 6, "note": "x"}
    assert merged(base, {**base, "name": "b"}, {**base, "name": "b", "price": 6}) == {**base, "name": "b", "price": 6}
    assert merged(base, {**base, "name": "b"}, {**base, "name": "c"}) is None


def test_a_field_that_a_definition_lacks_is_as_the_other_branch_has_it() -> None:
    """The source's value is of the newest definition; an older one has no such field."""
    assert merged({"n": 1}, {"n": 1, "new": 7}, {"n": 2}) == {"n": 2, "new": 7}
    assert merged({"n": 1}, {"n": 1, "new": 7}, {"n": 2, "new": 8}) is None
    assert merged({"n": 1}, {"n": 1, "new": 7}, {"n": 2, "new": 8}, counters=["new"]) is None, "nothing to count from"


@pytest.mark.parametrize("kind", [k for k in Kind if k not in AGREED and k is not Kind.STATE_CONFLICT])
def test_other_conflicts_are_for_others(kind: Kind) -> None:
    trigger: Trigger = merged_fields(counters=["n"], otherwise=defer)
    assert trigger(STATES._replace(kind=kind)) == Defer(kind.value)
    assert merged_fields(counters=["n"])(STATES._replace(kind=kind)) == by_default(STATES._replace(kind=kind))


INTS = st.integers(-100, 100)


@given(INTS, st.lists(INTS), st.lists(INTS))
def test_counters_have_every_step_of_both(base: int, ours: list[int], theirs: list[int]) -> None:
    source, initiating = base + sum(ours), base + sum(theirs)
    found = merged({"n": base}, {"n": source}, {"n": initiating}, counters=["n"])
    assert found == {"n": base + sum(ours) + sum(theirs)}


def test_a_step_that_both_made_was_made_twice() -> None:
    """What both branches have of the same transaction is no part of either."""
    alike = conflict({"n": 1, "s": []}, {"n": 2, "s": ["a"]}, {"n": 2, "s": ["a"]}, Kind.ALIKE)
    assert merged_fields(counters=["n"], sets=["s"])(alike) == Replace({"n": 3, "s": ["a"]})
    assert by_default(alike) == KeepSource()


def test_what_is_merged_by_a_base_that_nobody_knows_is_left_to_an_operator() -> None:
    """Steps would be lost, or what one branch removed would come back; `otherwise` is not about that."""
    unknown = conflict(None, {"n": 105, "s": ["a"]}, {"n": 103, "s": []})._replace(base_known=False)
    for trigger in (merged_fields(counters=["n"]), merged_fields(sets=["s"], otherwise=latest), merged_fields()):
        verdict = trigger(unknown)
        assert isinstance(verdict, Defer)
        assert "before_images" in verdict.why
    alike = unknown._replace(kind=Kind.ALIKE, initiating=unknown.source)
    assert isinstance(merged_fields(counters=["n"])(alike), Defer), "one step or two"
    assert merged_fields(sets=["s"])(alike) == KeepSource()
    gone = unknown._replace(kind=Kind.DELETE_UPDATE, source=None)
    assert merged_fields(counters=["n"], otherwise=latest)(gone) == latest(gone)


ITEMS = st.lists(st.sampled_from("abcdef"), unique=True)


@given(ITEMS, ITEMS, ITEMS)
def test_sets_have_what_either_added_and_lack_what_either_removed(base: Any, source: Any, initiating: Any) -> None:
    found = merged({"s": base}, {"s": source}, {"s": initiating}, sets=["s"])
    assert found is not None
    b, s, i = set(base), set(source), set(initiating)
    assert set(found["s"]) == (b & s & i) | (s - b) | (i - b)
    assert len(found["s"]) == len(set(found["s"]))


class Item(str):
    """Counts how often one is held against another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return str.__eq__(self, other)


def test_items_of_sets_are_looked_up_not_searched() -> None:
    """Each was held against half of the others, on average."""
    ours, theirs, base = ([Item(f"item-{n}") for n in range(1_000)] for _ in range(3))
    found = merged({"s": base}, {"s": [*ours, "ours"]}, {"s": [*theirs[1:], "theirs"]}, sets=["s"])
    assert found == {"s": [*ours[1:], "ours", "theirs"]}
    assert Item.compared < 20_000


def test_items_that_have_no_hash_are_united_too() -> None:
    a, b, c = {"at": 1}, {"at": 2}, {"at": 3}
    assert merged({"s": [a, b]}, {"s": [a, b, c]}, {"s": [b]}, sets=["s"]) == {"s": [b, c]}
