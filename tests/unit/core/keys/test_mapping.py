"""The steps of a change of a mapping, and how moves are cut into transactions (T8)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from halog.core.keys.mapping import (
    Layout,
    OwnedObject,
    Place,
    PolicyMapping,
    batches,
    begun,
    cleaned,
    opened,
    turned_back,
    why_not,
)

pytestmark = pytest.mark.feature("P6", "P13")

OLD = Layout("consistent_hash", 2, 1_000)
MORE = Layout("consistent_hash", 3, 1_000)
NOW = PolicyMapping(OLD)
ALL = ("p-0", "p-1", "p-2")


def test_a_change_is_begun_opened_and_done_with_the_last_clean_partition() -> None:
    began = begun(NOW, MORE)
    assert (began.version, began.next, began.newest, began.partition_names("p")) == (0, None, OLD, ALL)
    there = opened(began)
    assert (there.version, there.now, there.next, there.newest) == (1, OLD, MORE, MORE)
    some = cleaned(there, "p", 1, ["p-2", "p-0"])
    assert some.changing is not None
    assert (some.changing.clean, some.next) == (("p-0", "p-2"), MORE)
    assert cleaned(some, "p", 1, ["p-0"]) == some
    assert cleaned(some, "p", 1, ["p-1"]) == PolicyMapping(MORE, 1)


def test_a_note_of_another_version_counts_for_nothing() -> None:
    there = opened(begun(NOW, MORE))
    assert cleaned(there, "p", 0, ALL) == there
    assert cleaned(turned_back(there), "p", 1, ALL) == turned_back(there)
    assert cleaned(NOW, "p", 0, ALL) == NOW


def test_turned_back_it_is_a_change_of_its_own_to_where_it_came_from() -> None:
    assert turned_back(begun(NOW, MORE)) == NOW, "nothing was routed by it"
    back = turned_back(opened(begun(NOW, MORE)))
    assert (back.version, back.now, back.next, back.partition_names("p")) == (2, MORE, OLD, ALL)
    assert cleaned(back, "p", 2, ALL) == PolicyMapping(OLD, 2)


@pytest.mark.feature("P8")
def test_a_partition_is_updating_until_it_is_clean() -> None:
    there = opened(begun(NOW, MORE))
    assert (NOW.updating("p"), begun(NOW, MORE).updating("p")) == ((), ())
    assert there.updating("p") == ALL
    assert cleaned(there, "p", 1, ["p-1"]).updating("p") == ("p-0", "p-2")
    assert cleaned(there, "p", 1, ALL).updating("p") == ()


@pytest.mark.feature("P8")
def test_without_entries_a_partition_is_updating_until_all_are_clean() -> None:
    """Its objects leave with the entries that others have."""
    listed = PolicyMapping(msgspec.structs.replace(OLD, mapper="round_robin"))
    going = opened(begun(listed, OLD))
    assert cleaned(going, "p", 1, ["p-1"]).updating("p") == ("p-0", "p-1")
    assert cleaned(going, "p", 1, ["p-0", "p-1"]).updating("p") == ()
    coming = cleaned(opened(begun(NOW, listed.now)), "p", 1, ["p-1"])
    assert coming.updating("p") == ("p-0",), "there no object goes"


def test_what_speaks_against_a_change() -> None:
    assert why_not(NOW, MORE) is None
    assert why_not(PolicyMapping(MORE), OLD) is None, "partitions that are left empty stay"
    assert why_not(NOW, OLD) == "nothing differs"
    assert "another change" in (why_not(begun(NOW, MORE), MORE) or "")
    named = Layout("shop:by_region", 2, 1_000, 1, ("eu", "us"))
    assert "by hand" in (why_not(PolicyMapping(named), msgspec.structs.replace(named, names=("eu", "de"))) or "")


def test_a_place_names_its_owners_in_the_order_in_which_they_are_asked() -> None:
    assert Place("p-1", 3).owners == ("p-1",)
    assert Place("p-1", 3, "p-0").owners == ("p-0", "p-1")


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60), st.sampled_from(["a", "b"])), max_size=60),
    st.integers(1, 9),
)
def test_batches_hold_everything_once_and_keep_what_shares_its_routing_key(
    given_: list[tuple[int, int, str]], objects: int
) -> None:
    """At most so many objects and bytes, unless one object alone has more; a routing key that fits is not torn."""
    owned = [(OwnedObject(b"%03d" % i, b"%d" % r, size), to) for i, (r, size, to) in enumerate(given_)]
    made = batches(owned, objects, 100)
    keys = [(to, key) for to, batch in made for key in batch]
    assert sorted(keys) == sorted((to, o.key) for o, to in owned)
    by_key = {o.key: o for o, _ in owned}
    for _, batch in made:
        assert 0 < len(batch) <= objects
        assert len(batch) == 1 or sum(by_key[k].size for k in batch) <= 100
    for to in ("a", "b"):
        for routing in {o.routing_key for o, at in owned if at == to}:
            group = [o for o, at in owned if at == to and o.routing_key == routing]
            spread = sum(any(by_key[k].routing_key == routing for k in batch) for at, batch in made if at == to)
            assert spread == 1 or len(group) > objects or sum(o.size for o in group) > 100
