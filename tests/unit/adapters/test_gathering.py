"""Which appends travel together."""

from __future__ import annotations

import pytest

from halog.adapters.kafka.group_commit import GATHER_S, HELD_S, PATIENT_MOST, GroupCommit

pytestmark = pytest.mark.feature("R1")


def filled(*items: int) -> GroupCommit[int]:
    g = GroupCommit[int]()
    for i in items:
        g.add(i)
    return g


def test_a_lone_append_leaves_at_once() -> None:
    g = filled(1)
    assert g.waits(5.0) == 0
    assert g.take(5.0) == [1]
    assert not g
    assert g.waits(5.0) is None


def test_while_a_request_is_under_way_the_next_ones_gather() -> None:
    g = filled(1)
    g.take(5.0)
    g.add(2)
    g.add(3)
    assert g.waits(5.0) == pytest.approx(HELD_S)
    g.back(1, 5.001)
    assert g.waits(5.001) == 0
    assert g.take(5.001) == [2, 3]


def test_a_request_that_is_not_answered_holds_up_the_others_for_a_moment_only() -> None:
    """Its partition's leader may be gone; those of the others are not."""
    g = filled(1)
    g.take(5.0)
    g.add(2)
    assert g.waits(5.0 + HELD_S) == 0
    assert g.take(5.0 + HELD_S) == [2]
    g.add(3)
    g.back(1, 5.03)
    assert (g.waits(5.03) or 0) > 0  # one of the two is still under way
    g.back(1, 5.03)
    assert g.waits(5.03) == pytest.approx(0.0, abs=GATHER_S)


def under_way(count: int, now: float) -> GroupCommit[int]:
    """`count` committers have been under way at once, and half of them are back at `now`."""
    g = filled(0)
    g.take(5.0)
    for i in range(1, count):
        g.add(i)
    g.back(1, now)
    for _ in g.take(now):
        g.back(1, now)
    return g


def test_half_of_those_that_were_under_way_make_the_next_request() -> None:
    g = under_way(16, 5.0)
    for i in range(7):
        g.add(i)
        assert g.waits(5.0) == pytest.approx(GATHER_S)
    g.add(7)
    assert g.waits(5.0) == 0


def test_nobody_waits_for_company_longer_than_a_moment() -> None:
    g = under_way(16, 5.0)
    g.add(0)
    assert g.waits(5.0 + GATHER_S / 2) == pytest.approx(GATHER_S / 2)
    for n in (1, 2):
        assert g.waits(n * 5.0 + GATHER_S) == 0
        g.take(n * 5.0)
        g.back(1, n * 5.0 + 5.0)
        g.add(n)
    assert g.waits(15.0) == 0  # it has learnt that the others are gone


def test_after_a_pause_nobody_waits() -> None:
    g = under_way(16, 5.0)
    g.add(0)
    assert g.waits(60.0) == 0


# --- appends nobody waits for ---


@pytest.mark.feature("R6")
def test_what_nobody_waits_for_waits_for_company() -> None:
    g = GroupCommit[int]()
    g.add(1, leaves_at=5.01)
    g.add(2, leaves_at=5.016)
    assert g.waits(5.006) == pytest.approx(0.004)
    assert g.waits(5.01) == 0
    assert g.take(5.01) == [1, 2]
    g.back(2, 5.012)
    g.add(3, leaves_at=6.01)
    assert g.waits(6.0) == pytest.approx(0.01)


@pytest.mark.feature("R6")
def test_one_that_is_waited_for_takes_the_patient_ones_along() -> None:
    g = GroupCommit[int]()
    g.add(1, leaves_at=5.01)
    g.add(2)
    g.add(3, leaves_at=5.011)
    assert g.waits(5.001) == 0
    assert g.take(5.001) == [1, 2, 3]


@pytest.mark.feature("R6")
def test_many_patient_ones_leave_at_once_but_not_beside_a_request_under_way() -> None:
    g = filled(0)
    g.take(5.0)
    for i in range(PATIENT_MOST):
        g.add(i, leaves_at=5.01)
    assert g.waits(5.0) == pytest.approx(HELD_S)
    g.back(1, 5.0)
    assert g.waits(5.0) == 0
