"""How callers' waits are judged: who waited for a timeout is found out, who waited for the machine is not."""

from __future__ import annotations

import pytest

from tests.integration.cluster.waits import DIED, DOUBTED, FACTOR, MOVED, Pause, Wait, beyond

pytestmark = pytest.mark.feature("P12", "P10")


def steady(seconds: float = 0.005, until: float = 60.0, pause: float = 0.02) -> list[Wait]:
    """A control that always takes as long."""
    made, at = list[Wait](), 0.0
    while at < until:
        made.append(Wait(at, at + seconds))
        at += seconds + pause
    return made


def stalled(control: list[Wait], at: float, seconds: float) -> list[Wait]:
    """The machine stands still once."""
    before = [w for w in control if w.ended <= at]
    return [*before, Wait(at, at + seconds), *(w for w in control if w.began >= at + seconds)]


def slowed(control: list[Wait], frm: float, to: float, times: float) -> list[Wait]:
    """It is so much slower for a while."""
    between = steady(0.005 * times, to - frm, 0.02)
    moved = [Wait(w.began + frm, w.ended + frm) for w in between]
    return [*(w for w in control if w.ended <= frm), *moved, *(w for w in control if w.began >= to)]


@pytest.mark.parametrize("pause", [MOVED, DIED])
def test_who_waits_for_a_few_pauses_is_no_news(pause: Pause) -> None:
    waits = [Wait(3.0, 3.0 + FACTOR * pause.stated_s), Wait(9.0, 9.001)]
    assert not [*beyond(waits, steady(), pause)]


@pytest.mark.parametrize(("pause", "seconds"), [(MOVED, 0.5), (MOVED, 1.0), (DIED, 1.5), (DIED, 2.0), (DIED, 5.0)])
def test_who_waits_for_a_timeout_is_found_while_the_control_goes_on(pause: Pause, seconds: float) -> None:
    (found,) = beyond([Wait(3.0, 3.01, "x1"), Wait(5.0, 5.0 + seconds, "x2")], steady(), pause)
    assert f"waited {seconds:.2f} s with x2" in found


def test_what_a_dead_initiator_holds_is_waited_for_until_it_is_doubted_and_no_longer() -> None:
    waits = [Wait(3.0, 3.0 + DOUBTED.doubt_s + DOUBTED.stated_s)]
    assert not [*beyond(waits, steady(), DOUBTED)]
    assert [*beyond(waits, steady(), DIED)]
    assert [*beyond([Wait(3.0, 8.0)], steady(), DOUBTED)]


def test_one_stall_of_the_machine_excuses_whoever_met_it_and_for_its_length_only() -> None:
    control = stalled(steady(), 10.0, 2.0)
    assert not [*beyond([Wait(9.9, 12.1)], control, MOVED)]
    assert [*beyond([Wait(9.9, 17.0)], control, MOVED)]
    assert [*beyond([Wait(20.0, 22.1)], control, MOVED)], "and nobody at another time"


def test_a_slow_machine_stretches_the_pause_and_nothing_else() -> None:
    """Ten times slower for ten seconds: a pause takes a second then, and a timeout of five is still one."""
    control = slowed(steady(), 10.0, 20.0, 10.0)
    assert not [*beyond([Wait(12.0, 13.0)], control, MOVED)]
    assert [*beyond([Wait(12.0, 17.0)], control, MOVED)]
    assert [*beyond([Wait(30.0, 31.0)], control, MOVED)]


def test_a_machine_that_is_slow_all_the_time_is_the_usual_one() -> None:
    assert [*beyond([Wait(3.0, 4.0)], steady(0.05), MOVED)]


def test_no_machine_excuses_more_than_the_limit() -> None:
    control = stalled(steady(), 10.0, 30.0)
    assert [*beyond([Wait(10.0, 10.0 + MOVED.at_most_s + 1)], control, MOVED)]


def test_without_a_control_beside_it_nothing_is_judged() -> None:
    with pytest.raises(AssertionError, match="how the machine was while a caller waited with x"):
        [*beyond([Wait(100.0, 105.0, "x")], steady(), MOVED)]
