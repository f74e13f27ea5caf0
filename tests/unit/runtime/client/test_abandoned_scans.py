"""Moments of scans that nobody goes on with are told one by one, whatever comes of each (R5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halog.errors import PartitionUnavailableError
from halog.runtime.client.moment_release import MomentRelease
from halog.runtime.replica.named_moments import KEPT_MS
from halog.runtime.rpc import frames
from halog.testing.cluster import wait_until

pytestmark = pytest.mark.feature("R5")


class Asker:
    """`meets` says what comes of asking."""

    closed = False

    def __init__(self, meets: Callable[[bytes], object]) -> None:
        self.meets = meets
        self.told: list[bytes] = []

    def ask(self, partition: str, frame: frames.MomentEnd, until: float) -> None:
        self.told.append(frame.moment)
        self.meets(frame.moment)


@contextmanager
def letting(asker: Any, kept_ms: int = KEPT_MS) -> Iterator[MomentRelease]:
    made = MomentRelease(asker, kept_ms)
    made.begin()
    try:
        yield made
    finally:
        made.close()
        assert made._thread is not None
        made._thread.join(60)
        assert not made._thread.is_alive()


@pytest.mark.parametrize("error", [PartitionUnavailableError("nobody is active"), KeyError("a table"), OSError(24)])
def test_the_next_one_is_told_whatever_the_last_one_met(error: Exception) -> None:
    def meets(moment: bytes) -> None:
        if moment == b"1":
            raise error

    asker = Asker(meets)
    with letting(asker) as made:
        made.given_up("p", b"1")
        made.given_up("p", b"2")
        wait_until(lambda: asker.told == [b"1", b"2"], "the second one is not told")


def test_what_is_let_go_of_by_itself_by_now_is_not_told() -> None:
    """Of a partition that gives no answer only what is young enough waits."""
    go_on = threading.Event()
    asker = Asker(lambda moment: moment != b"0" or go_on.wait(60))
    with letting(asker, kept_ms=1_000) as made:
        made.given_up("p", b"0")
        wait_until(lambda: asker.told == [b"0"], "it is not told")
        for n in range(1, 50):
            made.given_up("p", b"%d" % n)
        time.sleep(1.1)
        made.given_up("p", b"young")
        go_on.set()
        wait_until(lambda: b"young" in asker.told, "it is not told")
    assert asker.told == [b"0", b"young"]
