"""Histories of a cluster that is upgraded, node by node, while all else goes wrong (U1): nodes of a halog that knows
level 1 only, and of one that knows level 2, and writes some of its records in a way of its own at that level.

Nodes are upgraded and downgraded. An operator raises the level once all nodes that are there know it, and may err: one
of the others comes up meanwhile. The coordinator is put back to older data, where the level was lower. What is watched:
a record of level 2 stands behind a record of its epoch that states it, or was appended again behind one of an earlier
epoch; nobody who does not know the level reads on; nothing lowers it; and while no log states it, every node may go
back.

They are histories of their own, from 14 * 2^20 on, drawn from chances of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from halog.core import effects as fx, events as ev
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.partition import Partition
from tests.sim.later import LATER, LEVEL, Versions, versions
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.twin import Accepted
    from tests.sim.world import World

SEEDS = range(14 << 20, 15 << 20)
DOWN_MS: Final = (1.0, 60.0)
"""How long a node is down while it gets another version."""
SET_MS: Final = (0.0, 40.0)
"""How long after the operator has looked the level is raised."""
STATED: Final = bytes((records.VERSION, records.KINDS["LevelStated"]))


def given(seed: int) -> bool:
    return seed in SEEDS


class Gradual(Versions):
    """The later version writes some commits in its own way, from when the log states the level."""

    def __init__(self) -> None:
        super().__init__(())
        self._partition: Partition | None = None
        self._met: set[bytes] = set()
        """Transactions whose first record was written, in either way."""
        self.states = False
        """Has anybody sent a record that states the level? It may land late."""

    def step(self, partition: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        self._partition = partition
        try:
            return super().step(partition, event, now)
        finally:
            self._partition = None

    def encode(self, record: records.Record) -> bytes:
        tx = record.header.tx
        self.states = self.states or type(record) is records.LevelStated
        if type(record) is records.Commit and self._partition is not None and tx not in self._met:
            self._met.add(tx)
            leading = self._partition.leading
            if leading is not None and leading.writer.level >= LEVEL and sum(tx) % 3:
                self.written.add(tx)
        return super().encode(record)


class Upgrade:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.level = 1
        """What the coordinator has."""
        self.rng = random.Random(f"{world.seed}/upgrading")
        self._of: Gradual | None = None

    @contextmanager
    def versions(self) -> Iterator[None]:
        """Within it the nodes are of two versions of halog, if this is such a history."""
        if not given(self.world.seed):
            yield
            return
        self._of = Gradual()
        self._of.earlier = frozenset(self.world.nodes)
        with versions(self._of):
            yield

    def prepare(self, length: float) -> float:
        """Draw who is upgraded when, and what operators do; how much longer such a history takes."""
        if not given(self.world.seed):
            return 0.0
        rng, world = self.rng, self.world
        more = rng.uniform(200.0, 700.0)
        at = 100.0
        for name in rng.sample(sorted(world.nodes), len(world.nodes)):
            at += rng.uniform(5.0, 200.0)
            world.engine.at(at, self._becomes, name, rng.random() < 0.9)
        for _ in range(rng.choice((0, 0, 1, 2, 4))):
            again = rng.choice(sorted(world.nodes))
            world.engine.at(rng.uniform(100.0, length + more), self._becomes, again, rng.random() < 0.5)
        for _ in range(rng.choice((0, 3, 6, 12))):
            world.engine.at(rng.uniform(at, max(at + 50.0, length + more)), self._finish)
        for _ in range(rng.choice((0, 0, 1, 2))):
            world.engine.at(rng.uniform(at, max(at + 50.0, length + more)), self._put_back)
        return more

    # --- nodes ---

    def _is_earlier(self, name: str) -> bool:
        return self._of is not None and name in self._of.earlier

    def _becomes(self, name: str, later: bool) -> None:
        """The node is stopped, and comes up with this version."""
        world, of = self.world, self._of
        assert of is not None
        if name in world.gone or (world.healed and not later):
            return
        if world.nodes[name].process is not None:
            world.crash(name)
        of.earlier = of.earlier - {name} if later else of.earlier | {name}
        world.cover.hit("upgraded" if later else "downgraded")
        world.engine.at(self.rng.uniform(*DOWN_MS), world.start, name)

    def may_start(self, name: str) -> bool:
        """Say whether a node that starts goes on. A node that does not know the level does not; one whose store was
        written at a higher level sets that aside. Where the partition is not, nothing of it is opened."""
        if given(self.world.seed) and not self._is_host(name):
            self.world.nodes[name].disk.wipe()
        if not self._is_earlier(name):
            return True
        if self.level >= LEVEL:
            self.world.cover.hit("turned away by the level")
            return False
        if self.world.nodes[name].disk.chain.level >= LEVEL:
            self.world.cover.hit("store of a later version set aside")
            self.world.nodes[name].disk.wipe()
        return True

    def _is_host(self, name: str) -> bool:
        table = self.world.coordinator.table
        return name in table.hosts or name in table.node_list

    def started(self, p: Process) -> None:
        """It has looked before everything else."""
        if given(self.world.seed):
            p.fresh = not self._is_host(p.name)
            p.deliver(ev.LevelSeen(self.level))

    def read(self, p: Process, e: fx.LevelStands) -> None:
        """A node found a higher level in its log than the coordinator has."""
        self.world.cover.hit("level of the log above the coordinator's")
        self.world.engine.at(self.world.nature.delay(self.world.nature.cas), self._raised, e.level)

    def stepped(self, p: Process) -> None:
        """Nobody goes on behind what it does not know."""
        if self._is_earlier(p.name):
            demand(p.partition.state.chain.state.level < LEVEL, f"U1: {p.name} does not know level 2, and reads on")

    @property
    def may_stop(self) -> frozenset[str]:
        """Return who may not be able to read its log."""
        stated = any(entry.data[:2] == STATED for entry in self.world.log.entries)
        return self._of.earlier if self._of is not None and stated else frozenset()

    # --- operators ---

    def _finish(self) -> None:
        """Raise the level, if all nodes are there and know it; it takes a moment."""
        world = self.world
        names = [p.name for p in world.processes()]
        if len(names) == len(world.nodes) and not any(map(self._is_earlier, names)):
            world.cover.hit("level raised")
            world.engine.at(self.rng.uniform(*SET_MS), self._raised, LEVEL)

    def _raised(self, level: int) -> None:
        if level > self.level:
            self._set(level)

    def _set(self, level: int) -> None:
        self.level = level
        for p in list(self.world.processes()):
            self.world.engine.at(self.world.nature.delay(self.world.nature.watch), self._heard, p)

    def _heard(self, p: Process) -> None:
        """A running node that does not know it takes part no more."""
        if not p.alive:
            return
        if self._is_earlier(p.name) and self.level >= LEVEL:
            self.world.cover.hit("outgrown")
            self.world.crash(p.name)
            if self.world.healed:
                self._becomes(p.name, True)
        else:
            p.deliver(ev.LevelSeen(self.level))

    def _put_back(self) -> None:
        """The coordinator has yesterday's data."""
        if self.level > 1 and not self.world.healed:
            self.world.cover.hit("level put back")
            self._set(1)

    # --- the end ---

    def heal(self) -> None:
        """Whoever could not go on gets the later version. Where no log states the level all may go back."""
        world, of = self.world, self._of
        if of is None:
            return
        if self.level < LEVEL and not of.states and self._is_unheard() and self.rng.random() < 0.5:
            world.cover.hit("all went back")
            wanted = frozenset(world.nodes)
        else:
            wanted = frozenset()
        for name in sorted(world.nodes):
            if self._is_earlier(name) != (name in wanted) and world.nodes[name].process is not None:
                world.crash(name)
        of.earlier = wanted

    def unwell(self) -> str:
        """Why it is not yet as it should be, or ''."""
        levels = {p.name: p.partition.state.level for p in self.world.processes()}
        stated = max(p.partition.state.chain.state.level for p in self.world.processes())
        if given(self.world.seed) and {*levels.values(), stated} != {self.level}:
            return f"the coordinator's level is {self.level}, copies know {levels}, the log states {stated}"
        return ""

    def _is_unheard(self) -> bool:
        """Will nobody state it?"""
        return all(p.partition.state.level < LEVEL for p in self.world.processes())

    def finish(self, accepted: list[Accepted]) -> None:
        """Every record of the higher level stands behind one that states it; what was stated stays."""
        stating: set[EpochId] = set()
        if not given(self.world.seed):
            return
        for a in accepted:
            if isinstance(a.record, records.LevelStated) and a.record.level >= LEVEL:
                stating.add(a.record.header.epoch)
            elif a.entry.data[0] == LATER:
                assert isinstance(a.record, records.Commit)
                self.world.cover.hit("records of the higher level")
                epoch = a.record.header.epoch if a.record.origin is None else a.record.origin.epoch
                said = f"U1: lsn {a.record.header.lsn} is of level 2, and epoch {epoch.number} does not say so"
                demand(epoch in stating, said)
        stated = bool(stating)
        said = f"U1: the coordinator's level is {self.level}; does the log state it? {stated}"
        demand(stated == (self.level >= LEVEL), said)
