"""Quorum, priorities and overrides (R7, Q2, Q3): what one core does of them, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.roles import Role
from halog.core.settings import Settings
from halog.core.table.group import (
    counts,
    majority,
    needed,
    rank,
    why_not_designated,
    why_not_priority,
    why_not_required,
)
from halog.core.table.table import SYNC, Group, PartitionTable, Replica, Target
from halog.core.table.tell import Tell
from tests.unit.core.kit import A, B, C, Core, create, table

STAY_MS = 30_000


def told(core: Core) -> list[tuple[str, str]]:
    return [(e.kind.name, e.node) for e in core.of(Tell)]


def regroup(core: Core, **changes: Any) -> None:
    """An operator changes the group."""
    import msgspec

    t = msgspec.structs.replace(core.p.state.table, group=Group(**changes))
    core.step(ev.TableSeen(core.p.state.version + 1, t))


def quorate(**t: Any) -> Core:
    """A is active for A, B, C with a quorum of two; B is its sync replica and has everything."""
    return Core(quorum=2, **t).with_sync_replica()


# --- arithmetic ---


@pytest.mark.parametrize(("nodes", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
@pytest.mark.feature("R7")
def test_a_quorum_is_more_than_half(nodes: int, quorum: int) -> None:
    assert majority(nodes) == quorum


@pytest.mark.feature("R7", "Q3")
def test_what_is_needed_is_the_quorum_unless_overridden() -> None:
    assert needed(table(), "A") == 1
    assert needed(table(quorum=2), "A") == 2
    assert needed(table(quorum=2, group=Group(required=3)), "A") == 3
    alone = table(quorum=2, configured=("A", "B"), group=Group(designated="B"))
    assert (needed(alone, "A"), needed(alone, "B")) == (2, 1)


@pytest.mark.feature("Q2")
def test_preference_is_priority_then_place() -> None:
    t = table(group=Group(priorities={"C": 2}))
    assert sorted("ABC", key=lambda n: rank(t, n)) == ["C", "A", "B"]


@pytest.mark.feature("Q2")
def test_a_node_that_is_never_active_counts_only_if_asked_for() -> None:
    never = Group(priorities={"B": 0})
    assert not counts(table(group=never), "B")
    assert counts(table(group=never, count_never=True), "B")
    assert not counts(table(), "Z"), "not of the group"


@pytest.mark.feature("Q3")
@pytest.mark.parametrize(
    ("nodes", "may_fork", "refused"),
    [(2, False, False), (3, False, False), (0, False, False), (1, False, True), (1, True, False), (4, True, True)],
)
def test_so_few_that_both_halves_could_go_on_is_refused_unless_confirmed(
    nodes: int, may_fork: bool, refused: bool
) -> None:
    assert (why_not_required(table(quorum=2), nodes, may_fork=may_fork) is not None) == refused


@pytest.mark.feature("Q3")
@pytest.mark.parametrize(
    ("t", "node", "why"),
    [
        (table(), "A", "only in a group of two"),
        (table(configured=("A", "B")), "C", "not in the group"),
        (table(configured=("A", "B"), group=Group(designated="B")), "A", "may be going on alone"),
        (table(configured=("A", "B"), group=Group(priorities={"A": 0})), "A", "never"),
    ],
)
def test_who_may_not_be_designated(t: PartitionTable, node: str, why: str) -> None:
    assert why in (why_not_designated(t, node) or "")


@pytest.mark.feature("Q3")
def test_who_may_be_designated() -> None:
    t = table(configured=("A", "B"), group=Group(designated="B"))
    assert why_not_designated(t, "B") is None
    assert why_not_designated(t, "") is None


# --- commits ---


@pytest.mark.feature("R7")
def test_a_new_commit_below_quorum_is_refused_by_name_and_nothing_is_appended() -> None:
    core = quorate()
    core.alive()
    assert ("no quorum", "") in told(core)
    core.submit(1)
    assert core.replies() == [res.Shortage(1, 2)]
    assert not core.of(fx.Append)


@pytest.mark.feature("R7")
def test_a_commit_in_flight_is_not_answered_when_the_quorum_goes_and_is_when_it_returns() -> None:
    """The wait set may shrink to nobody; the quorum does not."""
    core = quorate()
    core.submit(1)
    core.alive()
    core.cas_ok()
    core.acknowledge()
    assert core.p.leading is not None
    assert not core.p.leading.writer.wait_set
    assert core.replies() == []
    core.alive(B)
    core.acked_by(B, 2)
    assert core.replies() == [res.Success(2)]


@pytest.mark.feature("R7", "R6")
def test_a_repeated_commit_is_recognised_also_below_quorum() -> None:
    """It is no new work: what is in flight is joined."""
    core = quorate()
    core.submit(1)
    core.alive()
    core.submit(1)
    assert core.replies() == []


@pytest.mark.feature("Q2", "R7")
def test_the_acknowledgement_of_a_never_node_is_not_enough() -> None:
    core = quorate(group=Group(priorities={"B": 0}))
    live_on(core, core.p.state.settings.silent_ms + 100)
    core.submit(1)
    assert core.replies() == [res.Shortage(1, 2)], "C is up, but in no node list"
    counted = quorate(group=Group(priorities={"B": 0}), count_never=True)
    counted.submit(1)
    counted.acknowledge()
    counted.acked_by(B, 2)
    assert counted.replies() == [res.Success(2)]


@pytest.mark.feature("Q3")
def test_an_override_is_effective_at_once_in_both_directions() -> None:
    core = quorate()
    core.submit(1)
    core.acknowledge()
    core.alive()
    core.cas_ok()
    assert core.replies() == []
    regroup(core, required=1, required_reason="the others burnt down")
    assert core.replies() == [res.Success(2)]
    (event,) = (e for e in core.of(Tell) if e.kind.name == "minimum size")
    assert (event.cause, event.logged) == ("the others burnt down", True), "the history has it from the command"
    core.submit(2)
    assert core.of(fx.Append)
    regroup(core)
    core.submit(3)
    assert core.replies() == [res.Shortage(1, 2)]


# --- elections ---


@pytest.mark.feature("Q2")
def test_fewer_than_quorum_no_election_said_once() -> None:
    core = Core(quorum=2).loaded()
    core.step(ev.Ticked(), after_ms=core.p.state.settings.start_grace_ms)
    assert core.is_now(Role.FOLLOWING)
    assert told(core) == [("no quorum", "")]
    core.step(ev.Ticked(), after_ms=1_000)
    assert core.effects == []
    core.alive(B)
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("Q2")
def test_a_candidate_to_whom_too_few_answer_stands_back() -> None:
    core = Core(quorum=2).electing(B)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.is_now(Role.FOLLOWING)
    assert not core.of(fx.SetTable)


@pytest.mark.feature("Q2")
def test_a_never_node_takes_part_and_never_stands() -> None:
    core = Core(group=Group(priorities={"A": 0})).loaded()
    core.alive(B, C)
    core.step(ev.Ticked(), after_ms=10_000)
    assert core.is_now(Role.FOLLOWING)
    core.step(ev.PositionAsked("B", 7))
    assert core.one(fx.TellPosition).eligible is False


# --- the role returns ---


def serving(me_first: bool, **t: Any) -> Core:
    """A is active; B, before it in the configuration or behind it, is a replica that has everything."""
    order = ("A", "B", "C") if me_first else ("B", "A", "C")
    return Core(configured=order, settings=Settings(min_stay_ms=STAY_MS), **t).with_sync_replica()


def live_on(core: Core, ms: int) -> None:
    """Time passes, and B goes on acknowledging."""
    assert core.p.leading is not None
    for _ in range(ms // 100):
        core.step(ev.Ticked(), after_ms=100)
        if core.role is not Role.ACTIVE:
            return
        core.acked_by(B, core.p.state.chain.state.lsn)


@pytest.mark.feature("Q2", "Q5")
def test_a_preferred_node_that_has_been_back_for_long_enough_gets_the_role() -> None:
    core = serving(me_first=False)
    live_on(core, STAY_MS - 1_000)
    assert core.is_now(Role.ACTIVE)
    live_on(core, 2_000)
    assert core.role is not Role.ACTIVE
    assert core.p.leading is None or core.p.leading.hand_over.now is not None


@pytest.mark.feature("Q2")
def test_a_node_that_is_not_preferred_does_not() -> None:
    core = serving(me_first=True)
    live_on(core, 3 * STAY_MS)
    assert core.is_now(Role.ACTIVE)


@pytest.mark.feature("Q2", "Q5")
def test_an_active_that_may_be_so_no_more_hands_over_soon() -> None:
    core = serving(me_first=True)
    regroup(core, priorities={"A": 0})
    live_on(core, core.p.state.settings.drain_ms + 200)
    assert core.role is not Role.ACTIVE


@pytest.mark.feature("Q2", "Q5")
def test_a_hand_over_to_a_never_node_is_refused() -> None:
    core = serving(me_first=True, group=Group(priorities={"B": 0}))
    core.step(ev.HandOverAsked(5, "B"))
    (reply,) = core.replies()
    assert isinstance(reply, res.Refusal)
    assert "never" in reply.why


@pytest.mark.feature("Q2")
def test_the_role_is_not_taken_from_a_designated_node() -> None:
    """The other one could not go on alone."""
    core = Core(
        configured=("B", "A"), settings=Settings(min_stay_ms=STAY_MS), group=Group(designated="A")
    ).with_sync_replica()
    live_on(core, 3 * STAY_MS)
    assert core.is_now(Role.ACTIVE)


@pytest.mark.feature("Q2")
def test_nothing_is_given_to_one_that_never_said_what_it_has() -> None:
    core = Core(configured=("B", "A", "C"), settings=Settings(min_stay_ms=1_000, silent_ms=60_000)).with_sync_replica()
    assert core.p.leading is not None
    core.p.leading.applied.clear()
    for _ in range(50):
        core.step(ev.Ticked(), after_ms=100)
    assert core.is_now(Role.ACTIVE)


@pytest.mark.feature("Q2", "Q5")
def test_a_return_that_is_called_off_is_tried_later_and_later_and_its_cause_is_told() -> None:
    core = serving(me_first=False)
    began = []
    for i in range(4_000):
        before = core.role
        core.step(ev.Ticked(), after_ms=100)
        if before is Role.ACTIVE and core.role is Role.DRAINING:
            began.append(core.now)
            (told_,) = (e for e in core.of(Tell) if e.kind.name == "transfer requested")
            assert told_.cause == "B is preferred, and is back"
        if core.is_now(Role.ACTIVE):
            core.acked_by(B, core.p.state.chain.state.lsn)
            core.submit(1_000 + i, create(str(core.now).encode()))
            core.acknowledge()
            core.acked_by(B, core.p.state.chain.state.lsn - 1)
    pauses = [b - a for a, b in itertools.pairwise(began)]
    assert len(pauses) >= 2
    assert all(later > 1.5 * sooner for sooner, later in itertools.pairwise(pauses))


@pytest.mark.feature("Q5")
def test_a_hand_over_to_a_node_that_dies_is_called_off_at_once() -> None:
    core = Core().draining()
    core.alive(C)
    assert core.is_now(Role.ACTIVE)
    assert isinstance(core.replies()[0], res.Refusal)


@pytest.mark.feature("R7")
def test_a_young_epoch_whose_replicas_are_up_refuses_nobody() -> None:
    """Its node list is still being filled."""
    core = Core(quorum=2).active()
    assert not told(core)
    core.submit(1)
    assert core.of(fx.Append)


@pytest.mark.feature("R7")
def test_a_replica_heard_again_counts_again_also_while_the_coordinator_is_away() -> None:
    core = quorate()
    core.submit(1)
    core.acknowledge()
    for _ in range(40):
        core.step(ev.Ticked(), after_ms=100)
    assert core.p.leading is not None
    assert core.p.leading.writer.short is not None
    core.acked_by(B, 2)
    assert core.p.leading.writer.short is None


@pytest.mark.feature("Q2")
def test_a_voice_that_died_after_answering_does_not_count() -> None:
    core = Core(quorum=2).electing(B, C)
    core.step(ev.PositionTold("B", core.p.campaign.round, core.p.state.chain.state.position, False))
    core.alive(C)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.is_now(Role.FOLLOWING)


@pytest.mark.feature("Q2", "R7")
@pytest.mark.parametrize(
    ("t", "node", "why"),
    [
        (table(), "Z", "not in the group"),
        (table(group=Group(priorities={"A": 0, "B": 0})), "C", "last node"),
        (table(configured=("A", "B"), quorum=2), "B", "only A of p would count, 2 are needed"),
        (table(configured=("A", "B"), group=Group(designated="B")), "B", "designated"),
        (table(target=Target(("C",), 0)), "C", "last node"),
        (table(configured=("A", "B"), quorum=2, target=Target(("A", "C"), 1)), "C", "only A of A, C would count"),
    ],
)
def test_a_priority_that_would_stop_everything_is_refused(t: PartitionTable, node: str, why: str) -> None:
    assert why in (why_not_priority(t, node, 0) or "")
    assert node == "Z" or why_not_priority(t, node, 2) is None


def test_nobody_is_no_designated_node() -> None:
    assert needed(table(quorum=2), "") == 2


def test_the_sync_replica_is_one() -> None:
    """Of the kit: the tests above stand on it."""
    assert quorate().p.state.table.replicas == (Replica("B", 2, SYNC),)
    assert C not in quorate().p.state.table.sync_set
    assert quorate().p.state.me == A
