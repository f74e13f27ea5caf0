"""The state machine of partitions: a test for each row of its table, taken by what a node sees, and for each pair that
is none (P8)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core.ids import Member
from halog.core.table.states import (
    TRANSIENT,
    TRANSITIONS,
    PartitionSight,
    State,
    StateChange,
    StateTracker,
    next_state,
    teller,
)
from halog.core.table.table import (
    ASYNC,
    DEFINED,
    DISABLED,
    ENABLED,
    OUT,
    SYNC,
    Group,
    PartitionDefinition,
    PartitionTable,
    Replica,
    Resync,
    Target,
)
from tests.unit.core.kit import A, B, C, epoch, table

pytestmark = pytest.mark.feature("P8")

D = Member("D", 4)
ABC = frozenset({A, B, C})
ROWS = [(state, happening) for state, ways in TRANSITIONS.items() for happening in ways]
HAPPENINGS = sorted({h for _, h in ROWS})
IN_B, IN_C = Replica("B", 2, SYNC), Replica("C", 3, ASYNC)


def whole(**changes: Any) -> PartitionTable:
    """Active on A, with B and C in the node list."""
    return table(**{"epoch": epoch(1), "active": A, "replicas": (IN_B, IN_C), **changes})


def sight(t: PartitionTable | None = None, me: str = "C", **changes: Any) -> PartitionSight:
    return PartitionSight(**{"me": me, "table": t or whole(), "up": ABC, **changes})


def life(*sights: PartitionSight) -> StateTracker:
    made = StateTracker()
    for s in sights:
        made.look(s)
    return made


def handed(t: PartitionTable, to: Member, *replicas: Replica) -> PartitionTable:
    return msgspec.structs.replace(t, epoch=epoch(t.epoch.number + 1), active=to, replicas=replicas)


TO_B = Target(("B", "A", "C"), 1)
TO_AC = Target(("A", "C"), 1)
OFF_A = {"A": PartitionDefinition(("A", "B", "C"), 1, DISABLED)}
LONELY = {"configured": ("A",), "replicas": ()}

# (state, happening) → what was seen before, what is seen now
SEEN: dict[tuple[State | None, str], tuple[list[PartitionSight], PartitionSight]] = {
    (State.INITIAL, "enable, nothing to copy"): ([], sight()),
    (State.INITIAL, "enable, active node changes"): ([], sight(whole(target=TO_B), me="B")),
    (State.INITIAL, "enable, a replica needs data"): ([], sight(whole(replicas=(IN_B,)))),
    (State.ACTIVE, "hand-over"): ([sight()], sight(me="A", handing=True)),
    (State.ACTIVE, "failover"): ([sight()], sight(up=frozenset({B, C}))),
    (State.ACTIVE, "active disabled"): ([sight()], sight(whole(target=Target(("B", "C"), 1), definitions=OFF_A))),
    (State.ACTIVE, "redefined with another active"): ([sight()], sight(whole(target=TO_B))),
    (State.ACTIVE, "replicas redefined"): ([sight()], sight(whole(target=TO_AC))),
    (State.ACTIVE, "replication forced"): ([sight()], sight(whole(resync=Resync(("B",))))),
    (State.ACTIVE, "replica restored"): (
        [sight(whole(replicas=(IN_B,)), up=frozenset({A, B}))],
        sight(whole(replicas=(IN_B,))),
    ),
    (State.ACTIVE, "objects change partition"): ([sight()], sight(updating=True)),
    (State.ACTIVE, "quorum lost"): ([sight(whole(quorum=2))], sight(whole(quorum=2), up=frozenset({A}))),
    (State.ACTIVE, "last node gone"): ([sight()], sight(me="D", up=frozenset({D}))),
    (State.ACTIVE, "disabled on its only node"): (
        [sight(whole(**LONELY))],
        sight(whole(**LONELY, definitions={"A": PartitionDefinition(("A",), 0, DISABLED)})),
    ),
    (State.MIGRATING, "done"): ([sight(), sight(up=frozenset({B, C}))], sight(handed(whole(), B, IN_C))),
    (State.MIGRATING, "no node can be active"): ([sight(), sight(whole(target=TO_B))], sight(up=frozenset({D}))),
    (State.REPLICATING, "done"): ([sight(), sight(whole(target=TO_AC))], sight()),
    (State.REPLICATING, "no node can be active"): ([sight(), sight(whole(target=TO_AC))], sight(up=frozenset())),
    (State.UPDATING, "done"): ([sight(), sight(updating=True)], sight()),
    (State.UPDATING, "no node can be active"): ([sight(), sight(updating=True)], sight(offline=True)),
    (State.UNAVAILABLE, "quorum back"): ([sight(), sight(offline=True)], sight()),
    (State.UNAVAILABLE, "node assigned"): (
        [sight(), sight(up=frozenset({D}))],
        sight(whole(configured=("D",), replicas=(), active=None), up=frozenset({D})),
    ),
}


@pytest.mark.parametrize(("state", "happening"), ROWS[1:], ids=lambda v: getattr(v, "value", v))
def test_this_row_is_taken_when_it_is_seen(state: State, happening: str) -> None:
    before, now = SEEN[state, happening]
    made = life(*before)
    assert made.state is state
    assert made.look(now)[0] == StateChange(state, happening, TRANSITIONS[state][happening])


def test_a_partition_that_becomes_known_is_initial() -> None:
    """The row of `define`."""
    assert StateTracker().state is next_state(None, "define") is State.INITIAL


@pytest.mark.parametrize("state", [None, *State], ids=lambda s: getattr(s, "value", "unknown"))
@pytest.mark.parametrize("happening", HAPPENINGS)
def test_every_other_pair_is_an_error_naming_both(state: State | None, happening: str) -> None:
    if happening not in TRANSITIONS[state]:
        name = "nothing" if state is None else state.value
        with pytest.raises(AssertionError, match=f"no transition from '{name}' on '{happening}'"):
            next_state(state, happening)


def test_every_row_has_a_sight_and_transient_states_have_the_same_ways_out() -> None:
    assert set(SEEN) == set(ROWS[1:])
    assert len({tuple(TRANSITIONS[s].items()) for s in TRANSIENT}) == 1


# --- several rows at one look ---


def steps(made: StateTracker, now: PartitionSight) -> list[tuple[str, str, str]]:
    return [(s.before.value, s.happening, s.now.value) for s in made.look(now)]


def test_a_hand_over_that_is_over_when_it_is_seen_is_two_steps() -> None:
    assert steps(life(sight()), sight(handed(whole(), B, Replica("A", 1, SYNC), IN_C))) == [
        ("Active", "hand-over", "Migrating"),
        ("Migrating", "done", "Active"),
    ]


def test_so_is_a_failover_and_a_restart_of_the_active_node_itself() -> None:
    after = [("Active", "failover", "Migrating"), ("Migrating", "done", "Active")]
    assert steps(life(sight()), sight(handed(whole(), B, IN_C), up=frozenset({B, C}))) == after
    again = Member("A", 9)
    assert steps(life(sight()), sight(handed(whole(), again, IN_B, IN_C), up=frozenset({again, B, C}))) == after


def test_a_failover_while_replicas_are_made_ends_that_first() -> None:
    made = life(sight(), sight(whole(target=TO_AC)))
    moved = handed(whole(target=TO_AC), B, Replica("C", 3, SYNC))
    assert steps(made, sight(moved, up=frozenset({B, C}))) == [
        ("Replicating", "done", "Active"),
        ("Active", "failover", "Migrating"),
    ], "and it lasts: A is to be active again"


def test_a_migration_lasts_until_those_that_leave_have_left() -> None:
    moving = whole(target=Target(("B", "C"), 1))
    made = life(sight(), sight(moving))
    assert steps(made, sight(handed(moving, B, IN_C, Replica("A", 1, ASYNC)))) == []
    there = handed(whole(configured=("B", "C")), B, IN_C)
    assert steps(made, sight(there)) == [("Migrating", "done", "Active")]


def test_the_same_sight_again_is_nothing_new() -> None:
    for before, now in SEEN.values():
        made = life(*before)
        made.look(now)
        assert made.look(now) == []


# --- Initial ---


def test_it_stays_initial_until_it_is_enabled_here_and_served() -> None:
    unplaced = table(configured=(), admitted=())
    assert steps(StateTracker(), sight(unplaced)) == []
    waits = {"C": PartitionDefinition(("A", "B", "C"), 1, DEFINED)}
    assert steps(StateTracker(), sight(whole(admitted=("A", "B"), definitions=waits))) == []
    assert steps(StateTracker(), sight(whole(active=None))) == [], "nobody serves it yet"
    assert steps(StateTracker(), sight(up=frozenset({C}))) == [], "nobody has heard of A yet"
    enabled = {"C": msgspec.structs.replace(waits["C"], said=ENABLED)}
    assert steps(StateTracker(), sight(whole(admitted=("A", "B", "C"), definitions=enabled))) == [
        ("Initial", "enable, nothing to copy", "Active")
    ]


def test_a_node_that_has_not_enabled_it_since_it_started_is_not_waited_for() -> None:
    """B was restarted: it is no replica that is being restored."""
    t = whole(configured=("A", "B"), replicas=(), admitted=("A",), definitions={})
    made = life(sight(t, me="A", up=frozenset({A, B})))
    assert made.state is State.ACTIVE


def test_a_replica_that_is_copied_anew_keeps_it_replicating() -> None:
    made = life(sight(), sight(whole(resync=Resync(("B",), OUT), replicas=(IN_C,))))
    assert made.state is State.REPLICATING


def test_nodes_with_priority_never_cannot_save_it() -> None:
    t = whole(group=Group(priorities={"B": 0, "C": 0}))
    assert steps(life(sight(t)), sight(t, up=frozenset({B, C}))) == [("Active", "last node gone", "Unavailable")]


# --- who tells ---


def test_one_node_tells_what_all_see() -> None:
    assert teller(whole(), ABC) == "A"
    assert teller(whole(), frozenset({B, C})) == "B"
    assert teller(table(configured=()), frozenset({D, C})) == "C"
    assert teller(whole(), frozenset()) is None
