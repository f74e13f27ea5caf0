"""Rounds that the host left alone.

The host of a virtual machine may give its CPUs to others for a while: `steal` in /proc/stat. Such a round measures the
neighbours, and whoever takes turns among several processes suffers most. So a round in which more than `CALM` of the
CPUs' time was taken is measured again, at most `patience` times as many as wanted; are there too few calm ones then,
the calmest count. What was measured has no part in the choice, and the worst share of a round that counts is told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

CALM: Final = 0.03
"""Share of the CPUs' time. A choice, not a measured threshold: above it raw commits and halog's were seen to fall by
different factors; below it ratios still scatter, from 0.51 to 0.69 between runs of 16 tasks."""
_STEAL: Final = 7
_FIELDS: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; guests are counted among the users."""


class Ticks(NamedTuple):
    """Of all CPUs since the machine started."""

    stolen: int
    all: int

    def share(self, since: Ticks) -> float:
        """Of the time since then, how much was taken; 0 if no tick has passed."""
        passed = self.all - since.all
        return (self.stolen - since.stolen) / passed if passed > 0 else 0.0


def parsed(line: str) -> Ticks:
    """The first line of /proc/stat."""
    fields = [int(x) for x in line.split()[1 : 1 + _FIELDS]]
    return Ticks(fields[_STEAL], sum(fields))


def ticks() -> Ticks:
    """Now."""
    with Path("/proc/stat").open() as f:
        return parsed(f.readline())


class Calm:
    """Counts over a whole run. `patience`: rounds measured at most for each that is wanted."""

    def __init__(self, patience: int, clock: Callable[[], Ticks] = ticks) -> None:
        self.patience = patience
        self._clock = clock
        self.worst = 0.0
        """The largest share taken during a round that counts."""
        self.again = 0
        """Rounds measured beyond those that count."""

    def rounds(self, wanted: int, measure: Callable[[int], T]) -> list[T]:
        """What so many rounds measured, in the order they were made; `measure` is given the round's number from 0."""
        done: list[tuple[float, int, T]] = []
        while len(done) < wanted * self.patience and sum(share <= CALM for share, _, _ in done) < wanted:
            before = self._clock()
            found = measure(len(done))
            done.append((self._clock().share(before), len(done), found))
        chosen = sorted(done, key=lambda d: (d[0] > CALM, d[0] if d[0] > CALM else 0, d[1]))[:wanted]
        self.again += len(done) - len(chosen)
        self.worst = max([self.worst, *(share for share, _, _ in chosen)])
        return [found for _, _, found in sorted(chosen, key=lambda d: d[1])]
