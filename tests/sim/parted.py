"""Nodes that only lose each other: the line between two is cut for long, and both reach log and coordinator.

Each asks the other through the coordinator whether it lives (`halog.core.election.challenges`, as `halog.runtime`
does). What is watched: nobody claims what a node that answers is active for, as long as it has its quorum (if one is
asked for) through others; and one that was stopped, or died behind the cut, or lost its quorum by it, is replaced
within the time that its silence takes. Nothing else goes wrong in these histories.

In half of them the line is silent. In the others it refuses, as a firewall may, which looks as if the process had
ended: then each side claims at once, and the role may go back and forth until both have answered, but no longer.

They are histories of their own, from 11 * 2^20 + 2^19 on, drawn from chances of their own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from halog.core.election.challenges import Challenges
from halog.core.ids import Member
from tests.sim.violation import demand

if TYPE_CHECKING:
    from halog.core.table.table import PartitionTable
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(23 << 19, 12 << 20)
BEGUN_MS: Final = 650.0
PATIENCE_MS: Final = 60
"""As `members.SILENCE_MS`."""
TURN_MS: Final = 5.0
KEEP_ALIVE_MS: Final = 20.0
SETTLED_MS: Final = 2.0 * PATIENCE_MS
"""From the moment that a line refuses to one where both sides know that the other one lives."""
REPLACED_MS: Final = 3.0 * PATIENCE_MS + 120.0
"""From the death of an active node, which may have answered just before, to another one that serves."""


def given(seed: int) -> bool:
    """Is a line cut in this history?"""
    return seed in SEEDS


class Parted:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.challenges: dict[tuple[Member, Member], Challenges] = {}
        self.told: dict[Member, frozenset[Member]] = {}
        self.calm = False
        """Does everybody live just now, and has for long enough?"""
        self._active: Member | None = None
        """Whose line is cut."""
        self.settles_at = 0.0
        """Until then a line that refuses may be taken for a death."""

    def prepare(self, length: float) -> float:
        """Draw what is cut, and who dies or is stopped; how much longer such a history takes."""
        world = self.world
        if not given(world.seed):
            return 0.0
        rng = random.Random(f"{world.seed}/parted")
        at = BEGUN_MS + rng.uniform(0.0, length)
        lasts = rng.uniform(900.0, 2_500.0)
        world.engine.at(at, self._cut, rng, lasts)
        if rng.random() < 0.5:
            world.engine.at(at + rng.uniform(0.2, 0.6) * lasts, self._goes, rng)
        world.engine.at(BEGUN_MS, self._turn)
        return max(0.0, at + lasts + 300.0 - length)

    def _cut(self, rng: random.Random, lasts: float) -> None:
        from tests.sim import faults

        world, active = self.world, self.world.active()
        others = [p.name for p in world.processes() if p is not active]
        if active is None or not others or world.healed:
            return
        table = world.coordinator.table
        other = rng.choice(others)
        self._active = active.me
        alone = table.quorum > 0 and rng.random() < 0.4
        world.cover.hit("line cut")
        world.engine.say(f"--- {active.name} and {'all others' if alone else other} lose each other ---")
        reached = {r.node for r in table.replicas} - {other}
        self.calm = not alone and 1 + len(reached) >= table.quorum
        if table.quorum and self.calm:
            world.cover.hit("line cut, a third node reaches both")
        refuses = random.Random(f"{world.seed}/refuses").random() < 0.5
        if refuses:
            world.cover.hit("line refuses")
            self.settles_at = world.engine.now + SETTLED_MS
        for lost in others if alone else [other]:
            for src, dst in ((active.name, lost), (lost, active.name)):
                world.cuts.add((src, dst))
                if refuses:
                    world.engine.at(rng.uniform(0.0, 2.0), self._refused, src, dst)
                else:
                    world.engine.at(PATIENCE_MS, faults.notice_cut, world, src, dst)
                world.engine.at(lasts, faults.heal_cut, world, src, dst)
        if alone and len(others) >= table.quorum:
            world.cover.hit("active cut off from its quorum")
            world.engine.at(REPLACED_MS, self._replaced, active.me)

    def _refused(self, src: str, dst: str) -> None:
        """`dst` is refused by the address of `src`, again and again: as if that process had ended."""
        world, p, q = self.world, self.world.nodes[dst].process, self.world.nodes[src].process
        if (src, dst) not in world.cuts or world.healed:
            return
        if p is not None and q is not None and not p.paused:
            self._known(p.me, q.me).refused(int(world.engine.now))
            world.members.doubt_at_once(dst, src)
        world.engine.at(KEEP_ALIVE_MS, self._refused, src, dst)

    def _goes(self, rng: random.Random) -> None:
        """The active node is killed, or stopped: its silence is real by now."""
        from tests.sim import faults

        world, p = self.world, self.world.active()
        if p is None or world.healed or len(list(world.processes())) < 2:
            return
        self.calm = False
        if rng.random() < 0.5:
            world.cover.hit("died behind the cut")
            world.crash(p.name)
        else:
            world.cover.hit("stopped behind the cut")
            p.pause()
            world.engine.at(PATIENCE_MS, world.members.everybody_doubts, p.name)
            world.engine.at(REPLACED_MS + 200.0, faults.resume, world, p)
        if self._are_enough(p):
            world.engine.at(REPLACED_MS, self._replaced, p.me)

    def _are_enough(self, gone: Process) -> bool:
        """Can the others go on without it? With a quorum they must hear each other."""
        quorum, others = self.world.coordinator.table.quorum, [q.name for q in self.world.processes() if q is not gone]
        hear = gone.me == self._active or not any({a, b} <= set(others) for a, b in self.world.cuts)
        return not quorum or (hear and len(others) >= quorum)

    def _replaced(self, gone: Member) -> None:
        table = self.world.coordinator.table
        if not self.world.healed:
            demand(table.active != gone, f"R4: {gone.node} is gone for {REPLACED_MS:.0f} ms, and not replaced")

    # --- challenges, as the runtime asks them ---

    def _turn(self) -> None:
        world = self.world
        if world.healed:
            return
        for p in list(world.processes()):
            for q in list(world.processes()):
                if p is not q and not p.paused:
                    self._challenge(p, q)
            told = self.told.get(p.me, frozenset())
            if not p.paused and self.answering(p) != told:
                world.members.views.pop(p.me, None)  # it is told anew
                world.members.look(p)
        world.engine.at(TURN_MS, self._turn)

    def _challenge(self, p: Process, q: Process) -> None:
        lost = (q.name, p.name) in self.world.cuts or (p.name, q.name) in self.world.members.doubts
        known = self._known(p.me, q.me)
        if not lost:
            known.heard()
            return
        number = known.due(int(self.world.engine.now), PATIENCE_MS)
        if number is not None and p.coordinator.up:
            way = 2 * self.world.nature.delay(self.world.nature.cas)
            self.world.engine.at(way, self._asked, p, q, number)

    def _known(self, p: Member, q: Member) -> Challenges:
        return self.challenges.setdefault((p, q), Challenges(PATIENCE_MS))

    def _asked(self, p: Process, q: Process, number: int) -> None:
        if q.alive and not q.paused and q.coordinator.up:
            self.world.cover.hit("challenge answered")
            way = 2 * self.world.nature.delay(self.world.nature.cas)
            self.world.engine.at(way, self.challenges[p.me, q.me].answered, number)

    def answering(self, p: Process) -> frozenset[Member]:
        """Whom `p` does not hear, and knows to live."""
        if not given(self.world.seed) or self.world.healed:
            return frozenset()
        now, doubts = int(self.world.engine.now), self.world.members.doubts
        found = frozenset(
            q
            for (asker, q), known in self.challenges.items()
            if asker == p.me and (p.name, q.node) in doubts and known.lives(now, 0)
        )
        self.told[p.me] = found
        return found

    def table_set(self, old: PartitionTable, new: PartitionTable) -> None:
        """A compare-and-set went through: the role stays where it is, whoever has lost whom."""
        settled = self.world.engine.now >= self.settles_at
        if self.calm and settled and self.world.cuts and new.epoch != old.epoch:
            demand(new.active == old.active, f"R4: {new.active} takes over from {old.active}, which lives and answers")
