"""Virtual time: a queue of callbacks. Nothing in the simulation knows another clock or another source of chance."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class Engine:
    """Runs callbacks in order of time, then of scheduling."""

    __slots__ = ("_heap", "_seq", "events", "lines", "now", "rng", "verbose")

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.events = 0
        self.verbose = verbose
        self.lines: list[str] = []
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0

    def at(self, delay_ms: float, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn(*args)` in `delay_ms`."""
        self._seq += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._seq, fn, args))

    def run(self, until_ms: float) -> None:
        """Run everything due up to and including `until_ms`."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now, _, fn, args = heapq.heappop(heap)
            self.events += 1
            fn(*args)
        self.now = until_ms

    def say(self, text: str) -> None:
        """A line of the story, for `-v`; callers check `verbose` where building the text costs."""
        if self.verbose:
            self.lines.append(f"{self.now:9.2f} {text}")
