"""Which of a node's tails tells a copy of new entries."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.core.roles import Role
from halog.core.table.table import Target
from halog.ports import TopicPartition
from halog.runtime.host.log_tails import Tails
from tests.unit.core.kit import A, B, table

pytestmark = pytest.mark.feature("R1", "P2")

TP = TopicPartition("t", 0)


class Tail:
    def __init__(self) -> None:
        self.follows: dict[TopicPartition, int] = {}
        self.closed = False

    def follow(self, tp: TopicPartition, offset: int) -> None:
        self.follows[tp] = offset

    def unfollow(self, tp: TopicPartition) -> None:
        self.follows.pop(tp, None)

    def close(self) -> None:
        self.closed = True


class Rig:
    def __init__(self) -> None:
        self.prompt = Tail()
        self.patient = Tail()
        self.tails = Tails(self.prompt, self.patient)  # type: ignore[arg-type]
        state = SimpleNamespace(role=Role.FOLLOWING, next_offset=5)
        self.core = SimpleNamespace(state=state, following=SimpleNamespace(is_patient=False))
        self.copy: Any = SimpleNamespace(core=self.core, lock=threading.RLock(), tp=TP, ended=False)
        self.tails.follow(TP, 5)

    @property
    def at(self) -> tuple[int | None, int | None]:
        """(offset followed promptly, patiently)"""
        return self.prompt.follows.get(TP), self.patient.follows.get(TP)


def test_a_copy_somebody_may_wait_for_is_told_promptly() -> None:
    rig = Rig()
    rig.tails.place(rig.copy)
    assert rig.at == (5, None)


def test_a_copy_nobody_waits_for_moves_to_the_patient_tail_where_it_stands_and_back() -> None:
    rig = Rig()
    rig.core.following.is_patient, rig.core.state.next_offset = True, 8
    rig.tails.place(rig.copy)
    assert rig.at == (None, 8)
    rig.core.state.next_offset = 9
    rig.tails.place(rig.copy)
    assert rig.at == (None, 8)
    rig.core.following.is_patient = False
    rig.tails.place(rig.copy)
    assert rig.at == (9, None)


@pytest.mark.parametrize("role", [r for r in Role if r is not Role.FOLLOWING])
def test_only_a_follower_is_moved(role: Role) -> None:
    rig = Rig()
    rig.core.state.role, rig.core.following.is_patient = role, True
    rig.tails.place(rig.copy)
    assert rig.at == (5, None)


def test_a_new_read_is_prompt_whatever_it_was_before() -> None:
    rig = Rig()
    rig.core.following.is_patient = True
    rig.tails.place(rig.copy)
    rig.tails.follow(TP, 3)
    assert rig.at == (3, None)


def test_a_copy_that_stands_for_election_is_told_promptly_from_where_it_is() -> None:
    rig = Rig()
    rig.tails.hurry(rig.copy)
    assert rig.at == (5, None), "it was told promptly before"
    rig.core.following.is_patient = True
    rig.tails.place(rig.copy)
    rig.core.state.role, rig.core.state.next_offset = Role.ELECTING, 9
    rig.tails.hurry(rig.copy)
    rig.tails.place(rig.copy)
    assert rig.at == (9, None)


def test_unfollowed_it_is_followed_by_neither() -> None:
    rig = Rig()
    rig.core.following.is_patient = True
    rig.tails.place(rig.copy)
    rig.tails.unfollow(TP)
    assert rig.at == (None, None)
    rig.tails.close()
    assert rig.prompt.closed
    assert rig.patient.closed


@pytest.mark.feature("P12")
@pytest.mark.parametrize("how", ["it is loaded", "it is a member", "it stands for election"])
def test_a_copy_that_may_take_its_time_leaves_the_slow_tail_when(how: str) -> None:
    rig, slow = Rig(), Tail()
    moving = table(configured=("B",), active=B, target=Target(("A", "B"), 1), copy_rate=1_000)
    rig.core.state.role, rig.core.state.table, rig.core.state.me = Role.LOADING, moving, A  # type: ignore[attr-defined]
    rig.tails.unfollow(TP)
    rig.tails.slow = slow  # type: ignore[assignment]
    rig.tails.slow_down(TP)
    rig.tails.follow(TP, 0)
    rig.core.state.next_offset = 7
    rig.tails.place(rig.copy)
    assert (rig.at, slow.follows, rig.tails.is_slow(TP)) == ((None, None), {TP: 0}, True)
    if how == "it is loaded":
        rig.core.state.role = Role.FOLLOWING
    elif how == "it is a member":
        rig.core.state.table = msgspec.structs.replace(moving, configured=("A", "B"))  # type: ignore[attr-defined]
    else:
        rig.tails.hurry(rig.copy)
    rig.tails.place(rig.copy)
    assert (rig.at, slow.follows, rig.tails.is_slow(TP)) == ((7, None), {}, False)
    rig.tails.close()
    assert slow.closed
