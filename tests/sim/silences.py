"""Replicas that fall silent, behind a log that is slow with its answers, or with everything, or away for a while (R4).

A replica's copy stops, though its node lives and answers; or its reader gets nothing. What is watched: it leaves the
node list once the log has answered so and so often, however long each answer takes; and nobody else does.
Nothing else goes wrong in these histories, but that the log goes away in some of them.

They are histories of their own, from 13 * 2^20 on, drawn from chances of their own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.sim.node import TICK_MS
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(13 << 20, 27 << 19)
BEGUN_MS: Final = 650.0
APPEND_MS: Final = ((20.0, 80.0), (20.0, 60.0))
"""Where appends are slow, too: to the log, and back. Longer than the log is given before it is taken to stand still."""
WORDS: Final = 2
"""More answers than are counted: one that comes while an append is under way says nothing, and one may be short."""


def given(seed: int) -> bool:
    """Does a replica fall silent in this history?"""
    return seed in SEEDS


class Silences:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.silent: Process | None = None
        """Who says nothing, by itself."""
        self._since = 0.0
        """Since when it could have been found out."""
        self._epoch = 0
        self.found = False

    @property
    def limit(self) -> float:
        """How long it may be unnoticed while the log is there."""
        settings, log = self.world.settings, self.world.log
        words = -(-settings.silent_ms // settings.ack_every_ms) + WORDS
        append = sum(high for _, high in APPEND_MS)
        each = max(log.answers.longest, append, float(settings.ack_every_ms)) + 2 * TICK_MS
        return 3 * settings.ack_every_ms + words * each

    def prepare(self, length: float) -> float:
        """Draw who falls silent, and when; how much longer such a history takes."""
        world = self.world
        if not given(world.seed):
            return 0.0
        rng = random.Random(f"{world.seed}/silences")
        world.cover.hit(f"log answers: {world.log.answers.draw(world.seed)}")
        if rng.random() < 0.5:
            world.nature.land, world.nature.ack = APPEND_MS
        at = BEGUN_MS + rng.uniform(0.0, length)
        stops, lasts = rng.random() < 0.6, self.limit + 200.0
        if stops and rng.random() < 0.5:  # one that cannot read may claim when the log is back, and not open
            away = rng.uniform(400.0, 2_000.0)
            world.outages.one(at + rng.uniform(-200.0, lasts / 2), away, readable=rng.random() < 0.25)
            lasts += away + self.limit
        world.engine.at(at, self._falls_silent, rng, stops)
        return max(0.0, at + lasts - length)

    def _falls_silent(self, rng: random.Random, stops: bool) -> None:
        world, active = self.world, self.world.active()
        listed = {r.member for r in world.coordinator.table.replicas}
        others = [p for p in world.processes() if p is not active and p.me in listed]
        if active is None or not others or world.healed:
            return
        self.silent = rng.choice(others)
        world.cover.hit("copy stopped" if stops else "copy reads nothing")
        world.engine.say(f"--- {self.silent.name} {'stops' if stops else 'reads nothing'}, and lives ---")
        if stops:
            self.silent.pause()
        else:
            self.silent.reader.stuck = True
        self._since = world.engine.now
        self._watch()

    def _watch(self) -> None:
        """Until it is found out."""
        world, p, active = self.world, self.silent, self.world.active()
        assert p is not None
        if world.healed or p is active:
            return
        if p.me not in {r.member for r in world.coordinator.table.replicas}:
            self.found = True
            world.cover.hit("silent replica found")
            if world.log.answers.longest > world.settings.ack_every_ms:
                world.cover.hit("silent replica found behind a slow log")
            return
        if active is None or world.outages.are_on or world.log.dry or not self._lacks(p, active):
            self._since = world.engine.now
        elif active.partition.state.table.epoch.number != self._epoch:
            self._epoch = active.partition.state.table.epoch.number
            self._since = world.engine.now
        lasts = world.engine.now - self._since
        demand(lasts <= self.limit, f"R4: {p.name} acknowledges nothing for {lasts:.0f} ms, and is waited for")
        world.engine.at(TICK_MS, self._watch)

    def _lacks(self, p: Process, active: Process) -> bool:
        """Is there anything to be heard of it?"""
        return p.paused or p.partition.state.chain.state.lsn < active.partition.state.chain.state.lsn

    @property
    def slack(self) -> float:
        """How much later somebody serves than elsewhere, once the log is back: who stopped is waited for in elections,
        and appends may be slow."""
        settings, nature = self.world.settings, self.world.nature
        if not given(self.world.seed):
            return 0.0
        return 2.0 * settings.election_ms + 2.0 * (nature.land[1] + nature.ack[1])

    def may_leave(self, node: str) -> bool:
        """Did it fall silent by itself?"""
        return self.silent is not None and self.silent.name == node
