"""A node that is not heard and lives: what its answers are worth (R4)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.election.challenges import Challenges
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.table.table import SYNC, Replica
from tests.unit.core.kit import SETTINGS, A, B, C, Core, epoch, replica

PATIENCE = 600


@pytest.mark.feature("R4", "N4")
def test_it_is_asked_before_its_silence_counts_and_not_as_long_as_it_is_heard() -> None:
    asked = Challenges(PATIENCE)
    assert asked.due(1_000, 150) is None
    assert asked.due(1_050, 200) == 1
    assert asked.due(1_100, 250) is None
    assert asked.due(1_250, 400) == 2


@pytest.mark.feature("R4", "N4")
def test_an_answer_counts_from_when_it_was_asked_for_and_for_a_while_only() -> None:
    asked = Challenges(PATIENCE)
    number = asked.due(1_000, 200)
    assert number is not None
    assert not asked.lives(1_010, 800)
    asked.answered(number)
    assert asked.lives(1_000 + 2 * PATIENCE, 800)
    assert not asked.lives(1_001 + 2 * PATIENCE, 800)


@pytest.mark.feature("R4", "N4")
def test_what_was_answered_in_an_earlier_silence_or_never_asked_is_worth_nothing() -> None:
    asked = Challenges(PATIENCE)
    asked.answered(7)
    assert not asked.lives(1_000, 0)
    number = asked.due(1_000, 200)
    assert number is not None
    asked.answered(number)
    assert not asked.lives(1_200, 1_100)
    asked.over()
    assert not asked.lives(1_200, 800)


@pytest.mark.feature("R4", "N4")
def test_one_whose_address_refuses_is_asked_at_once_and_what_it_answered_before_is_worth_nothing() -> None:
    asked = Challenges(PATIENCE)
    before = asked.due(1_000, 200)
    assert before is not None
    asked.answered(before)
    assert asked.lives(1_010, 800)
    asked.refused(1_020)
    assert not asked.lives(1_020, 800)
    since = asked.due(1_021, 0)
    assert since is not None
    asked.answered(since)
    asked.refused(1_100)  # again: nothing new
    assert asked.lives(1_110, 800)
    assert asked.lives(1_110, 1_109), "frames that are still on their way from it say nothing"
    assert asked.due(1_022, 0) is None
    assert not asked.lives(1_022 + 2 * PATIENCE, 800)
    asked.heard()
    assert not asked.is_refused
    assert asked.due(2_000, 0) is None


@pytest.mark.feature("R4", "P10")
def test_an_active_that_is_not_heard_and_answers_is_not_replaced() -> None:
    core, _ = replica()
    core.step(ev.AliveChanged(frozenset({B, C}), "A: silent", frozenset({A})))
    for _ in range(100):
        core.step(ev.Ticked(), after_ms=100)
        assert core.role is Role.FOLLOWING
    core.step(ev.AliveChanged(frozenset({B, C}), "A: it answers no challenge"))
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4", "P10")
def test_without_an_answer_its_silence_is_enough() -> None:
    core, _ = replica()
    core.step(ev.AliveChanged(frozenset({B}), "A: silent"))
    assert core.one(fx.SetTable).table.active == B


def with_quorum(*listed: Member) -> Core:
    """B of three, with a quorum of two; A is active, and has these in its node list."""
    core = Core(B, quorum=2)
    core.loaded()
    core.alive(A, C)
    replicas = tuple(Replica(m.node, m.incarnation, SYNC) for m in listed)
    core.step(ev.TableSeen(1, msgspec.structs.replace(core.p.state.table, epoch=epoch(1), active=A, replicas=replicas)))
    return core


@pytest.mark.feature("R4", "R7")
def test_an_active_that_answers_stays_as_long_as_it_has_its_quorum_through_others() -> None:
    core = with_quorum(B, C)
    core.step(ev.AliveChanged(frozenset({B, C}), "A: silent", frozenset({A})))
    for _ in range(100):
        core.step(ev.Ticked(), after_ms=100)
        assert core.role is Role.FOLLOWING
    core.step(
        ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, replicas=()))
    )  # C is not heard there any more
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4", "R7")
def test_with_a_quorum_too_an_active_that_does_not_answer_is_replaced_at_once() -> None:
    core = with_quorum(B, C)
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    core.step(ev.AliveChanged(frozenset({B, C}), "A: silent"))
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4", "R7")
@pytest.mark.parametrize("listed", [(), (B,)])
def test_an_active_that_answers_and_has_no_quorum_without_this_node_is_replaced(listed: tuple[Member, ...]) -> None:
    """Those who do not hear it have one."""
    core = with_quorum(*listed)
    core.step(ev.AliveChanged(frozenset({B, C}), "A: silent", frozenset({A})))
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    assert core.is_now(Role.ELECTING)
