"""What lies between two sites: it is cut, cut one way, slow, or all of it in turns. Nodes of two sites do not talk to
each other; each asks the other site's log and coordinator over it, and waits for the answer."""

from __future__ import annotations

import enum
import random

from tests.sim.coverage import Coverage
from tests.sim.engine import Engine

SLOW_MS = 120.0
USUAL_MS = 3.0


class Way(enum.Enum):
    """What becomes of a question and its answer."""

    FINE = "fine"
    LOST = "lost"
    """It never arrives."""
    UNSAID = "unsaid"
    """It arrives, and its answer does not."""


class Wire:
    """Between all sites of a world."""

    def __init__(self, engine: Engine, cover: Coverage) -> None:
        self._engine = engine
        self._cover = cover
        self.cut: set[tuple[str, str]] = set()
        """(from, to): nothing gets through that way."""
        self.lost = ""
        """A site of which nothing is left, for good: nobody gets through to it, from there neither."""
        self.slow = False
        self.changes = 0
        """How often it was cut or healed: what was planned before the last one is off."""

    def way(self, here: str, there: str) -> Way:
        if self.lost in (here, there):
            return Way.LOST
        if here == there:
            return Way.FINE
        if (here, there) in self.cut:
            return Way.LOST
        return Way.UNSAID if (there, here) in self.cut else Way.FINE

    def delay(self, here: str, there: str) -> float:
        """In ms, there and back."""
        if here == there:
            return 0.2 + self._engine.rng.random()
        return 0.5 + (SLOW_MS if self.slow else USUAL_MS) * self._engine.rng.random()

    def cut_off(self, ways: set[tuple[str, str]], what: str) -> None:
        self.cut = ways
        self.changes = self.changes + 1
        self._cover.hit(what)
        self._engine.say(f"=== the line: {what}")

    def heal(self) -> None:
        self.cut = set()
        self.slow = False
        self.changes = self.changes + 1
        self._engine.say("=== the line is whole")

    def trouble(self, rng: random.Random, a: str, b: str) -> None:
        """Something happens to it, for a while."""
        kind = rng.choice(("cut", "cut one way", "slow", "flaps"))
        both = {(a, b), (b, a)}
        length = rng.uniform(20.0, 500.0)
        if kind == "slow":
            self.slow = True
            self._cover.hit("line slow")
            self._engine.at(length, self._fast)
        elif kind == "flaps":
            self._cover.hit("line flaps")
            for i in range(rng.randint(2, 6)):
                self._engine.at(i * 40.0 + 20.0 * rng.random(), self._for_a_moment, both, 5.0 + 30.0 * rng.random())
        else:
            ways = both if kind == "cut" else {rng.choice(((a, b), (b, a)))}
            self.cut_off(ways, f"line {kind}")
            self._engine.at(length, self._heal_if_same, self.changes)

    def _fast(self) -> None:
        self.slow = False

    def _for_a_moment(self, ways: set[tuple[str, str]], ms: float) -> None:
        if not self.cut:
            self.cut_off(ways, "line cut for a moment")
            self._engine.at(ms, self._heal_if_same, self.changes)

    def _heal_if_same(self, changes: int) -> None:
        if self.changes == changes:
            self.heal()
