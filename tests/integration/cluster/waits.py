"""How long callers waited, judged by what the machine did meanwhile.

A pause is promised for a machine that has time for it; here two cores may carry a dozen processes that start. So a
control does transactions of the same shape all the while, from the same process, over the same servers, with the one
node of another cluster, which nothing moves and nobody kills. What holds it up is the machine; what holds up a caller
beyond that is halog. A caller may wait for `FACTOR` times the promised pause, each as much longer as the control was
slower then than it usually is, and for the longest of the control's transactions beside it. Who waited for a timeout
instead, or for a retry that came too late, is found out: the control did its work meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, quantiles
from typing import NamedTuple

from halog.config import TimingConfig

FACTOR = 3.0
"""A transaction may meet two pauses, and is repeated behind each."""


class Wait(NamedTuple):
    """One transaction, its repetitions included, by CLOCK_MONOTONIC."""

    began: float
    ended: float
    what: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Pause(NamedTuple):
    """`stated_s`: as docs/performance.md has it. `at_most_s`: whatever the machine does. `doubt_s`: for so long nobody
    doubts what a dead initiator has prepared."""

    stated_s: float
    at_most_s: float
    doubt_s: float = 0.0


MOVED = Pause(0.1, 20.0)
"""Partitions and objects only move: a hand-over. A call is given up after twice that time."""
DIED = Pause(0.3, 20.0)
"""Nodes are killed, too: a failover, which may meet the next death."""
DOUBTED = Pause(0.3, 20.0, TimingConfig().doubt_timeout_ms / 1000)
"""A node is killed that moves objects in transactions of its own: what it was just moving is held until it is doubted.
"""


def beyond(waits: Sequence[Wait], control: Sequence[Wait], pause: Pause) -> Iterator[str]:
    """Those who waited for longer than the pause and the machine explain. The control's quickest tenth tells how it is
    where the machine has time: beside others it may have none all the while."""
    usual = quantiles((c.seconds for c in control), n=10)[0]
    for wait in waits:
        if wait.seconds <= FACTOR * pause.stated_s:
            continue
        beside = [c.seconds for c in control if c.began < wait.ended and c.ended > wait.began]
        assert beside, f"nothing tells how the machine was while a caller waited with {wait.what}"
        slower = max(1.0, fmean(beside) / usual)
        allowed = min(pause.at_most_s, FACTOR * pause.stated_s * slower + pause.doubt_s + max(beside))
        if wait.seconds > allowed:
            yield (
                f"a caller waited {wait.seconds:.2f} s with {wait.what}: {allowed:.2f} s are explained; {len(beside)} "
                f"transactions of the control beside it took {max(beside):.2f} s at most, {slower:.1f} times the usual"
            )
