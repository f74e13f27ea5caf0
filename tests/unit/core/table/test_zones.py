"""The node quorum: one test per row of the table, one per pair that is none, and the count against a dumb twin (Q1)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from halog.core.table.zones import (
    TRANSITIONS,
    NodeContacts,
    QuorumCount,
    Zone,
    ZoneState,
    count,
    first_state,
    happening,
    next_state,
)

ALL = frozenset("ABCD")
HAPPENINGS = sorted({h for ways in TRANSITIONS.values() for h in ways})
WHOLE, PART = QuorumCount(3, 2, "votes", ()), QuorumCount(2, 2, "votes", ("C",))
NONE = QuorumCount(1, 2, "votes", ("B", "C"))


def sees(up: str, *, discovered: str = "BC", offline: str = "") -> NodeContacts:
    """A hears `up` and `offline`."""
    return NodeContacts(frozenset(discovered), frozenset(up + offline), frozenset(up))


def zone(**demand: int) -> Zone:
    return Zone("main", {"A": 1, "B": 1, "C": 1}, **demand)


ROWS = [
    (ZoneState.ACTIVE, PART, "a node down", ZoneState.PARTIAL),
    (ZoneState.ACTIVE, NONE, "quorum lost", ZoneState.DISABLED),
    (ZoneState.PARTIAL, NONE, "quorum lost", ZoneState.DISABLED),
    (ZoneState.PARTIAL, WHOLE, "all nodes up", ZoneState.ACTIVE),
    (ZoneState.DISABLED, PART, "quorum back, a node down", ZoneState.PARTIAL),
    (ZoneState.DISABLED, WHOLE, "quorum back, all nodes up", ZoneState.ACTIVE),
]


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(("state", "counted", "what", "after"), ROWS)
def test_a_row_of_the_table(state: ZoneState, counted: QuorumCount, what: str, after: ZoneState) -> None:
    assert happening(state, counted, off=False) == what
    assert next_state(state, what) is after


@pytest.mark.feature("Q1")
def test_the_table_has_no_other_row() -> None:
    assert {(s, what) for s, ways in TRANSITIONS.items() for what in ways} == {(s, what) for s, _, what, _ in ROWS}


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("state", "what"), [(s, h) for s in ZoneState for h in HAPPENINGS if h not in TRANSITIONS[s]], ids=str
)
def test_every_other_pair_is_an_error_naming_both(state: ZoneState, what: str) -> None:
    with pytest.raises(AssertionError, match=f"'{state.value}' on '{what}'"):
        next_state(state, what)


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("state", "counted"), [(ZoneState.ACTIVE, WHOLE), (ZoneState.PARTIAL, PART), (ZoneState.DISABLED, NONE)], ids=str
)
def test_nothing_new_is_nothing(state: ZoneState, counted: QuorumCount) -> None:
    assert happening(state, counted, off=False) is None


@pytest.mark.feature("Q1")
def test_switched_off_there_is_no_edge_into_disabled_and_one_out_of_it() -> None:
    assert happening(ZoneState.ACTIVE, NONE, off=True) == "a node down"
    assert happening(ZoneState.PARTIAL, NONE, off=True) is None
    assert happening(ZoneState.DISABLED, NONE, off=True) == "quorum back, a node down"


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("guarded", "off", "state"),
    [(True, False, ZoneState.DISABLED), (True, True, ZoneState.ACTIVE), (False, False, ZoneState.ACTIVE)],
)
def test_a_node_that_starts_has_reached_nobody(guarded: bool, off: bool, state: ZoneState) -> None:
    assert first_state(zone(minimum_votes=2 if guarded else 0), off=off) is state


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("demand", "up", "have", "needed"),
    [
        ({"minimum_votes": 2}, "B", 2, 2),
        ({"minimum_votes": 2}, "", 1, 2),
        ({"percentage": 67}, "B", 2, 3),
        ({"percentage": 66}, "B", 2, 2),
        ({"percentage": 100}, "BC", 3, 3),
        ({"minimum_remote": 1}, "C", 1, 1),
        ({"minimum_remote": 1}, "", 0, 1),
        ({}, "", 1, 0),
    ],
)
def test_what_a_zone_has_and_needs(demand: dict[str, int], up: str, have: int, needed: int) -> None:
    """Two of three votes are 66.7 %: enough for 66, not for 67."""
    counted = count(zone(**demand), "A", sees(up))
    assert (counted.have, counted.needed, counted.holds) == (have, needed, have >= needed)


@pytest.mark.feature("Q1")
def test_votes_weigh_and_a_node_without_votes_only_looks_on() -> None:
    heavy = Zone("main", {"A": 0, "B": 3, "C": 1}, minimum_votes=2)
    assert count(heavy, "A", sees("B")).have == 3
    assert not count(heavy, "A", sees("C")).holds
    assert count(heavy, "B", sees("")).holds


@pytest.mark.feature("Q1", "N3")
def test_a_node_never_discovered_is_not_down_and_has_no_vote() -> None:
    counted = count(zone(minimum_votes=2), "A", sees("B", discovered="B"))
    assert (counted.have, counted.down) == (2, ())


@pytest.mark.feature("Q1")
def test_a_node_that_is_offline_is_down_and_votes() -> None:
    """Else nodes that lost each other would each wait for the others to come back first."""
    counted = count(zone(minimum_votes=2), "A", sees("", offline="B"))
    assert counted.holds
    assert counted.down == ("B", "C")


@pytest.mark.feature("P5", "Q1")
def test_nodes_of_other_zones_count_for_nothing() -> None:
    counted = count(zone(minimum_votes=2), "A", NodeContacts(ALL, frozenset("D"), frozenset("D")))
    assert (counted.have, counted.down) == (1, ("B", "C"))


names = st.sets(st.sampled_from("BCDEF"))


@given(
    st.dictionaries(st.sampled_from("BCDEF"), st.integers(0, 3)),
    st.integers(0, 3),
    names,
    names,
    names,
    st.sampled_from(["", "minimum_votes", "percentage", "minimum_remote"]),
    st.integers(1, 100),
)
@pytest.mark.feature("Q1")
def test_the_count_is_the_rule_read_aloud(
    votes: dict[str, int], mine: int, discovered: set[str], reached: set[str], up: set[str], kind: str, value: int
) -> None:
    """In fractions, node by node, against the arithmetic."""
    up &= reached
    made = Zone("z", {"A": mine, **votes}, **({kind: value} if kind else {}))
    counted = count(made, "A", NodeContacts(frozenset(discovered), frozenset(reached), frozenset(up)))
    there = [n for n in made.votes if n == "A" or n in reached]
    total = sum(made.votes.values())
    rules = {
        "": True,
        "minimum_votes": sum(made.votes[n] for n in there) >= value,
        "percentage": total == 0 or Fraction(sum(made.votes[n] for n in there) * 100, total) >= value,
        "minimum_remote": len(there) - 1 >= value,
    }
    assert counted.holds == rules[kind]
    assert set(counted.down) == {n for n in votes if n in discovered and n not in up}


@given(st.lists(st.tuples(names, names, st.booleans()), max_size=12), st.integers(1, 6))
@pytest.mark.feature("Q1")
def test_whatever_comes_the_state_says_what_is(history: list[tuple[set[str], set[str], bool]], value: int) -> None:
    """Behind every look: disabled exactly where the quorum is on and lost, active exactly where nobody is down."""
    made = Zone("z", dict.fromkeys("ABCDEF", 1), minimum_votes=value)
    state = first_state(made, off=False)
    for discovered, reached, off in history:
        sight = NodeContacts(frozenset(discovered | reached), frozenset(reached), frozenset(reached))
        counted = count(made, "A", sight)
        what = happening(state, counted, off=off)
        state = state if what is None else next_state(state, what)
        assert (state is ZoneState.DISABLED) == (not off and 1 + len(reached) < value)
        if state is not ZoneState.DISABLED:
            assert (state is ZoneState.ACTIVE) == (discovered <= reached)
