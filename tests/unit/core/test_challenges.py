"""A node that is not heard and lives: what its answers are worth (R4)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import events as ev
from halog.core.challenges import Challenges
from halog.core.roles import Role
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
    assert core.one(ev.SetTable).table.active == B


@pytest.mark.feature("R4", "R7")
def test_where_a_quorum_is_asked_for_an_answer_keeps_nobody_from_an_election() -> None:
    """The active that answers may be short of it, and those who do not hear it are not."""
    core = Core(B, quorum=2)
    core.loaded()
    core.alive(A, C)
    core.step(ev.TableSeen(1, msgspec.structs.replace(core.p.table, epoch=epoch(1), active=A)))
    core.step(ev.AliveChanged(frozenset({B, C}), "A: silent", frozenset({A})))
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    assert core.is_now(Role.ELECTING)
