"""The control beside a load: what it did is known before anybody is judged by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halog.errors import UnreachableError
from tests.integration.cluster import pauses
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import FACTOR, Pause, Wait

pytestmark = pytest.mark.feature("P12", "P10")
SHORT = Pause(0.05, 60.0)
"""What is judged here must wait for longer than some of these."""


class Held:
    """A control whose transactions end while they are let."""

    def __init__(self, ends_s: float = pauses.ENDS_S) -> None:
        self.let = threading.Event()
        self.error = False
        self.let.set()
        nobody: Any = None
        self.control = Control(nobody, land=self, ends_s=ends_s)

    def __call__(self) -> None:
        if self.error:
            raise UnreachableError("nobody answers")
        self.let.wait(60)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.let.set()


@contextmanager
def stalled(held: Held) -> Iterator[list[Wait]]:
    """Somebody has waited for longer than the pause, from behind the control's last transaction on, and it hangs."""
    wait(lambda: len(held.control.waits) > 2, "the control works")
    held.let.clear()
    seen = -1
    while seen != (seen := len(held.control.waits)):
        time.sleep(5 * pauses.PAUSE_S)
    began = time.monotonic()
    time.sleep(1.5 * FACTOR * SHORT.stated_s)
    yield [Wait(began, time.monotonic(), "x")]


def test_a_stall_that_is_not_over_when_it_is_asked_is_waited_for(held: Held) -> None:
    """It covers the control's transaction and the caller's: that excuses him, and is not known before it ends."""
    with held.control, stalled(held) as waits:
        threading.Timer(0.3, held.let.set).start()
        held.control.check(waits, SHORT)
        assert held.control.waits[-1].began >= waits[-1].ended


def test_who_waited_while_the_control_did_not_is_found(held: Held) -> None:
    with held.control:
        wait(lambda: len(held.control.waits) > 2, "the control works")
        began = time.monotonic()
        time.sleep(4 * FACTOR * SHORT.stated_s)
        with pytest.raises(AssertionError, match=r"1 of 1:\na caller waited"):
            held.control.check([Wait(began - 60.0, time.monotonic(), "x")], SHORT)


def test_a_control_that_fails_is_not_waited_for(held: Held) -> None:
    with held.control:
        wait(lambda: len(held.control.waits) > 2, "the control works")
        held.error = True
        wait(lambda: held.control.errors, "it fails")
        with pytest.raises(AssertionError, match="nobody answers"):
            held.control.check([Wait(0.0, time.monotonic())], SHORT)


def test_a_control_that_hangs_fails_the_test() -> None:
    held = Held(ends_s=0.1)
    with pytest.raises(AssertionError, match="the control never got an answer"), held.control, stalled(held):
        pass
    held.let.set()
