"""Readers that must miss nothing (R5): they ask whoever believes to be active, zombies included.

A question notes what anybody had been told before it; its answer must be of a later record. A world in which no plain
read is ever old would prove nothing: that is counted. They draw from a chance
of their own, and only in some histories: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from halog.core import events as ev, results as res

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(2, 1 << 21, 13)
EVERY_MS = (1.0, 40.0)


class Question(NamedTuple):
    """One read that must not be old."""

    target: Process
    floor: int
    """The highest lsn that anybody had been told of when it was asked."""


class Reader:
    """Asks until the world is healed; by its end everybody who lives has answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.seed * 31 + 7)
        self.waiting: dict[int, Question] = {}
        self.asking = world.seed in SEEDS
        if self.asking:
            world.engine.at(30.0, self._turn)

    def stop(self) -> None:
        self.asking = False

    def _turn(self) -> None:
        able = [p for p in self.world.processes() if p.partition.leading is not None]
        if able:
            self._ask(self.rng.choice(able))
        if self.asking:
            self.world.engine.at(self.rng.uniform(*EVERY_MS), self._turn)

    def _ask(self, target: Process) -> None:
        token = self.world.new_token()
        self.waiting[token] = Question(target, self.world.checks.answered)
        self.world.engine.at(self.rng.uniform(0.1, 5.0), target.deliver, ev.BarrierAsked(token))

    def told(self, lsn: int) -> None:
        """Somebody was told of it just now; a plain read of another may lack it."""
        for p in self.world.processes():
            if p.partition.leading is not None and p.partition.visible < lsn:
                self.world.cover.hit("a plain read would be old")

    def answered(self, p: Process, token: int, result: res.Result) -> str:
        """What is wrong with this answer, or ''. It is not one of ours if nobody waits for it."""
        asked = self.waiting.pop(token, None)
        if asked is None:
            return ""
        self.world.cover.hit(f"barrier {type(result).__name__}")
        if not isinstance(result, res.Success) or self.world.checks.lost:
            return ""
        if result.lsn <= asked.floor:
            return f"R5: {p.name} answered a barrier with lsn {result.lsn}, {asked.floor} had been told before"
        shown = p.partition.visible
        return "" if shown >= result.lsn else f"R5: {p.name} answered lsn {result.lsn} and shows {shown}"

    def unanswered(self) -> list[str]:
        """Who lives and still owes an answer."""
        return [q.target.name for q in self.waiting.values() if q.target.alive and not q.target.paused]
