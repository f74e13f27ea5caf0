"""Which rounds of a benchmark count when the host takes the CPUs away; never because of what they measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.calm import CALM, Calm, Ticks, parsed, ticks

LINE = "cpu  100 2 30 400 5 0 7 50 11 0\n"


def host(shares: Sequence[float]) -> Callable[[], Ticks]:
    """A clock that is read before and after each round, in which the host takes the next of these shares."""
    readings, stolen = [], 0
    for i, share in enumerate(shares):
        readings.append(Ticks(stolen, 1000 * i))
        stolen += round(1000 * share)
        readings.append(Ticks(stolen, 1000 * (i + 1)))
    return iter(readings).__next__


def test_stolen_time_is_a_share_of_all_there_was() -> None:
    assert parsed(LINE) == Ticks(50, 594)
    assert Ticks(80, 700).share(Ticks(50, 600)) == pytest.approx(0.3)
    assert Ticks(50, 600).share(Ticks(50, 600)) == 0.0


def test_the_kernel_says_it_in_this_form() -> None:
    now = ticks()
    assert 0 <= now.stolen <= now.all


def test_calm_rounds_are_measured_once() -> None:
    calm = Calm(3, host([0, CALM, 0.01]))
    assert calm.rounds(3, lambda i: i) == [0, 1, 2]
    assert (calm.worst, calm.again) == (pytest.approx(CALM), 0)


def test_a_round_that_was_taken_from_is_measured_again() -> None:
    calm = Calm(3, host([0.2, 0, 0.1, 0]))
    assert calm.rounds(2, lambda i: i) == [1, 3]
    assert (calm.worst, calm.again) == (0, 2)


def test_the_calmest_count_if_there_are_too_few() -> None:
    calm = Calm(2, host([0.5, 0.1, 0.01, 0.4]))
    assert calm.rounds(2, lambda i: i) == [1, 2]
    assert calm.worst == pytest.approx(0.1)


def test_the_first_calm_ones_count_whatever_they_measured() -> None:
    calm = Calm(3, host([0.02, 0.01]))
    assert calm.rounds(2, lambda i: ["slow", "fast"][i]) == ["slow", "fast"]


def test_a_quick_look_takes_what_comes() -> None:
    calm = Calm(1, host([0.9, 0.9]))
    assert calm.rounds(2, lambda i: i) == [0, 1]
