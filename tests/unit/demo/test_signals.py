"""A signal while a process of the demo is started: it is known before anybody hears of the signal."""

from __future__ import annotations

import signal

import pytest

from halog.demo.processes import undivided

pytestmark = pytest.mark.feature("O3")


def test_a_signal_is_heard_once_the_process_is_known() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), undivided():
        signal.raise_signal(signal.SIGINT)
        done.append("known")
    assert done == ["known"]


def test_handlers_are_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with undivided():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
