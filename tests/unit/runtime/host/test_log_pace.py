"""How long whoever reads for a copy waits: for as long as the bytes take, and no longer than there is a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halog.core.table.table import SYNC, Replica, Target
from halog.runtime.host.throttle import LOOK_S, NotWantedError, ReadPace, wait_for_bytes
from tests.unit.core.kit import A, table

pytestmark = pytest.mark.feature("P12")


class Clock:
    """Waits in no time, and says stop after so many seconds."""

    def __init__(self, until: float = 1e9) -> None:
        self.naps: list[float] = []
        self.until = until

    def pause(self, seconds: float) -> bool:
        self.naps.append(seconds)
        return sum(self.naps) > self.until


@pytest.mark.parametrize(("size", "rate", "seconds"), [(1_000, 1_000, 1.0), (1, 1_000_000, 1e-6), (500, 0, 0.0)])
def test_bytes_take_their_time(size: int, rate: int, seconds: float) -> None:
    clock = Clock()
    assert wait_for_bytes(size, lambda: rate, clock.pause)
    assert sum(clock.naps) == pytest.approx(seconds)
    assert all(nap <= LOOK_S for nap in clock.naps), "it looks again soon"


def test_another_rate_counts_at_once_and_none_ends_it() -> None:
    clock = Clock()
    rates = iter([10, 10, 1_000, 0])
    assert wait_for_bytes(10_000, lambda: next(rates), clock.pause)
    assert len(clock.naps) == 3


def test_a_node_that_closes_waits_no_longer() -> None:
    clock = Clock(until=1.0)
    assert not wait_for_bytes(1_000_000, lambda: 1, clock.pause)
    assert sum(clock.naps) < 1.5


def pacing(clock: Clock, **t: Any) -> ReadPace:
    now = table(configured=("A", "B"), active=A, copy_rate=1_000, target=Target(("C", "B"), 1), **t)
    host: Any = SimpleNamespace(
        router=SimpleNamespace(tables={"p": (1, now)}), me=SimpleNamespace(node="C"), pause=clock.pause
    )
    return ReadPace(host)


def test_a_member_that_is_missing_ends_the_limit() -> None:
    assert pacing(Clock()).rate("p") == 0, "B is not in the node list"
    assert pacing(Clock()).rate("q") == 0, "nothing is known of it"


def test_rows_are_all_there_and_counted() -> None:
    clock = Clock()
    rows = [(b"k" * 10, b"v" * 990)] * 50 + [(b"gone" * 25, None)]
    there = pacing(clock, replicas=(Replica("B", 2, SYNC),))
    assert list(there.rows("p", iter(rows))) == rows
    assert sum(clock.naps) == pytest.approx(50.1)
    there._host.router.tables["p"] = (2, table(configured=("A", "B")))
    with pytest.raises(NotWantedError):
        list(there.rows("p", iter(rows)))
