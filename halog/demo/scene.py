"""This module holds what there is to see of a run: plain values, written by the demo and drawn by `view`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WINDOW_S = 2.0
"""Throughput is shown over the last two seconds: a failover of 100 ms stays visible, noise does not."""


class Rate:
    """A `Rate` counts events per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, total: int, now: float) -> None:
        """Note that the count is `total` now."""
        self._seen.append((now, total))
        while now - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()

    @property
    def value(self) -> float:
        if len(self._seen) < 2:
            return 0.0
        (t0, n0), (t1, n1) = self._seen[0], self._seen[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0


@dataclass
class NodeScene:
    """Holds one node's row."""

    state: str = "starting"
    pid: int = 0
    active: int = 0
    replicas: int = 0
    lag: int = 0


@dataclass
class Scene:
    """Holds everything on the screen."""

    rows: int
    phase: str = ""
    done: int = 0
    acknowledged: int = 0
    repeated: int = 0
    unknown: int = 0
    rate: Rate = field(default_factory=Rate)
    nodes: dict[str, NodeScene] = field(default_factory=dict)
    story: list[tuple[float, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What was found wrong; it is in the story, too."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.began

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append((self.seconds, text))

    def blame(self, text: str) -> None:
        """Tell something that is wrong; the run has failed."""
        self.wrong.append(text)
        self.tell(f"WRONG: {text}")

    def blame_all(self, examples: Sequence[str], count: int, what: str) -> None:
        """Tell the examples of `count` things that are wrong, and how many more there are."""
        for text in examples:
            self.blame(text)
        if count > len(examples):
            self.blame(f"and {count - len(examples):,} more{what}")

    def progress(self, tally: Mapping[str, int], now: float) -> None:
        """Show a client's report."""
        self.done = tally["rows"]
        self.acknowledged = tally["acknowledged"]
        self.repeated = tally["repeated"]
        self.unknown = tally["unknown"]
        self.rate.note(self.acknowledged, now)
