"""The states of a remote node: each edge of the table, and what cannot happen."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from halog.core.membership.node_states import (
    REFUSALS,
    TELLING,
    TRANSITIONS,
    NodeSight,
    NodeState,
    NodeStateTracker,
    next_state,
)

S = NodeState

NOWHERE = NodeSight()
KNOWN = NodeSight(1, registered=True)
UP = NodeSight(1, registered=True, up=True)
LOST = NodeSight(1, registered=True, why="silent for 1000 ms")
LEFT = NodeSight(1, why="it left")
OFFLINE = NodeSight(1, registered=True, offline=True)
AGAIN = NodeSight(2, registered=True)
AGAIN_UP = NodeSight(2, registered=True, up=True)


def refused(state: NodeState) -> NodeSight:
    return NodeSight(1, registered=True, refused=state)


RETURNED, ADDED = "returned", "added"

WAYS = {
    S.UNDISCOVERED: (),
    S.DISCOVERED: (KNOWN,),
    S.IN_UP_NOTIFIER: (KNOWN, UP),
    S.UP: (KNOWN, UP, RETURNED),
    S.IN_DOWN_NOTIFIER: (KNOWN, UP, RETURNED, LOST),
    S.DOWN: (KNOWN, UP, RETURNED, LOST, RETURNED),
    **{state: (KNOWN, refused(state)) for state in REFUSALS},
}
"""How a tracker gets into each state."""

EDGES = [
    (S.UNDISCOVERED, KNOWN, "address known", S.DISCOVERED),
    (S.DISCOVERED, UP, "heard", S.IN_UP_NOTIFIER),
    (S.DISCOVERED, OFFLINE, "offline", S.DOWN),
    (S.DISCOVERED, NOWHERE, "address gone", S.UNDISCOVERED),
    *((S.DISCOVERED, refused(state), happening, state) for state, happening in REFUSALS.items()),
    (S.IN_UP_NOTIFIER, RETURNED, "notifiers returned", S.UP),
    (S.UP, LOST, "lost", S.IN_DOWN_NOTIFIER),
    (S.UP, LEFT, "lost", S.IN_DOWN_NOTIFIER),
    (S.UP, OFFLINE, "lost", S.IN_DOWN_NOTIFIER),
    (S.UP, AGAIN, "lost", S.IN_DOWN_NOTIFIER),
    (S.UP, AGAIN_UP, "lost", S.IN_DOWN_NOTIFIER),
    *((S.UP, refused(state), "lost", S.IN_DOWN_NOTIFIER) for state in REFUSALS),
    (S.UP, ADDED, "notifier added", S.IN_UP_NOTIFIER),
    (S.IN_DOWN_NOTIFIER, RETURNED, "notifiers returned", S.DOWN),
    (S.DOWN, UP, "heard", S.IN_UP_NOTIFIER),
    (S.DOWN, AGAIN_UP, "heard", S.IN_UP_NOTIFIER),
    (S.DOWN, AGAIN, "started again", S.DISCOVERED),
    *((S.DOWN, refused(state), happening, state) for state, happening in REFUSALS.items()),
    *((state, KNOWN, "corrected", S.DISCOVERED) for state in REFUSALS),
    *((state, UP, "corrected", S.DISCOVERED) for state in REFUSALS),
    *((state, NOWHERE, "address gone", S.UNDISCOVERED) for state in REFUSALS),
    *((state, NodeSight(1, refused=state), "address gone", S.UNDISCOVERED) for state in REFUSALS),
]


def fed(tracker: NodeStateTracker, *inputs: NodeSight | str) -> list[tuple[NodeState, str, NodeState]]:
    """What the inputs led to."""
    taken: list[tuple[NodeState, str, NodeState]] = []
    for each in inputs:
        if isinstance(each, NodeSight):
            taken += tracker.look(each)
        else:
            taken += tracker.returned() if each == RETURNED else tracker.added()
    return taken


def in_state(state: NodeState) -> NodeStateTracker:
    tracker = NodeStateTracker()
    fed(tracker, *WAYS[state])
    assert tracker.state is state
    return tracker


@pytest.mark.feature("N3")
@pytest.mark.parametrize(("before", "given_", "happening", "after"), EDGES)
def test_an_edge_is_taken(before: NodeState, given_: NodeSight | str, happening: str, after: NodeState) -> None:
    assert fed(in_state(before), given_)[0] == (before, happening, after)


@pytest.mark.feature("N3")
def test_each_edge_of_the_table_has_a_test() -> None:
    drawn = {(s, h, to) for s, ways in TRANSITIONS.items() if s is not None for h, to in ways.items()}
    assert {(before, happening, after) for before, _, happening, after in EDGES} == drawn
    assert TRANSITIONS[None] == {"named": S.UNDISCOVERED}
    assert NodeStateTracker().state is S.UNDISCOVERED


@pytest.mark.feature("N3")
def test_what_cannot_happen_is_named() -> None:
    every = {h for ways in TRANSITIONS.values() for h in ways}
    for state, ways in TRANSITIONS.items():
        for happening in every - ways.keys():
            was = "nothing" if state is None else state.value
            with pytest.raises(AssertionError, match=f"no transition from '{was}' on '{happening}'"):
                next_state(state, happening)


@pytest.mark.feature("N3")
@pytest.mark.parametrize("state", [s for s in NodeState if s not in TELLING])
def test_notifiers_return_only_while_they_are_called(state: NodeState) -> None:
    with pytest.raises(AssertionError, match="on 'notifiers returned'"):
        in_state(state).returned()


@pytest.mark.feature("N3")
@pytest.mark.parametrize("state", [s for s in NodeState if s is not S.UP])
def test_a_notifier_more_is_told_of_nodes_that_are_up_only(state: NodeState) -> None:
    assert in_state(state).added() == []


@pytest.mark.feature("N3")
def test_what_is_seen_while_notifiers_run_waits_for_them() -> None:
    tracker = in_state(S.IN_UP_NOTIFIER)
    assert fed(tracker, LOST) == []
    assert fed(tracker, RETURNED) == [
        (S.IN_UP_NOTIFIER, "notifiers returned", S.UP),
        (S.UP, "lost", S.IN_DOWN_NOTIFIER),
    ]
    assert fed(tracker, UP) == []
    assert fed(tracker, RETURNED) == [
        (S.IN_DOWN_NOTIFIER, "notifiers returned", S.DOWN),
        (S.DOWN, "heard", S.IN_UP_NOTIFIER),
    ]


@pytest.mark.feature("N3")
def test_a_break_while_notifiers_run_is_told_once() -> None:
    tracker = in_state(S.IN_UP_NOTIFIER)
    assert fed(tracker, LOST, UP, LOST, AGAIN, AGAIN_UP, LOST, UP) == []
    now = [step[2] for step in fed(tracker, RETURNED, RETURNED, RETURNED)]
    assert now == [S.UP, S.IN_DOWN_NOTIFIER, S.DOWN, S.IN_UP_NOTIFIER, S.UP]


@pytest.mark.feature("N3")
def test_a_coming_that_is_over_before_the_loss_was_told_is_not_told() -> None:
    tracker = in_state(S.IN_DOWN_NOTIFIER)
    assert fed(tracker, UP, LOST, RETURNED) == [(S.IN_DOWN_NOTIFIER, "notifiers returned", S.DOWN)]


@pytest.mark.feature("N3")
def test_a_first_look_may_take_several_steps() -> None:
    assert [step[1] for step in NodeStateTracker().look(UP)] == ["address known", "heard"]
    taken = NodeStateTracker().look(refused(S.UNSUPPORTED_PROTOCOL))
    assert [step[1] for step in taken] == ["address known", "no common protocol"]


@pytest.mark.feature("N3")
def test_one_cause_of_refusal_takes_the_place_of_another() -> None:
    taken = fed(in_state(S.DUPLICATE_LOCATION), refused(S.UNSUPPORTED_PROTOCOL))
    assert [step[1] for step in taken] == ["corrected", "no common protocol"]


@pytest.mark.feature("N3")
@pytest.mark.parametrize("state", list(REFUSALS))
def test_a_node_that_is_heard_is_not_refused(state: NodeState) -> None:
    heard = NodeSight(1, registered=True, up=True, refused=state)
    assert [step[2] for step in fed(in_state(state), heard)] == [S.DISCOVERED, S.IN_UP_NOTIFIER]


@pytest.mark.feature("N3")
def test_a_node_that_left_stays_down_until_another_run_registers() -> None:
    tracker = in_state(S.DOWN)
    assert fed(tracker, LEFT) == []
    assert [step[2] for step in fed(tracker, AGAIN, AGAIN_UP)] == [S.DISCOVERED, S.IN_UP_NOTIFIER]


@pytest.mark.feature("N3")
def test_a_node_that_starts_again_before_its_loss_is_seen_is_discovered() -> None:
    assert [step[2] for step in fed(in_state(S.UP), AGAIN, RETURNED)] == [S.IN_DOWN_NOTIFIER, S.DOWN, S.DISCOVERED]


sights = st.builds(
    NodeSight,
    run=st.integers(1, 2),
    registered=st.booleans(),
    up=st.booleans(),
    offline=st.booleans(),
    refused=st.sampled_from([None, *REFUSALS]),
)


@pytest.mark.feature("N3")
@given(st.lists(st.one_of(sights, st.just(RETURNED), st.just(ADDED)), max_size=30))
def test_any_sights_follow_the_table_and_come_to_rest(inputs: list[NodeSight | str]) -> None:
    tracker = NodeStateTracker()
    taken = []
    for each in inputs:
        if each != RETURNED or tracker.state in TELLING:
            taken += fed(tracker, each)
    for _ in range(4):
        taken += tracker.returned() if tracker.state in TELLING else []
    assert tracker.state not in TELLING
    assert tracker.look(tracker.sight) == []
    assert (tracker.state is S.UP) is tracker.sight.up
    told = [step[2] for step in taken if step[2] in TELLING and step[1] != "notifier added"]
    assert all(a is not b for a, b in pairwise(told))
    assert told[:1] in ([], [S.IN_UP_NOTIFIER])
