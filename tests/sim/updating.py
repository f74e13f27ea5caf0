"""What each process of a shop or market takes for the state of its partition while objects change partition (P8): the
rows of the state table that concern Updating, through every fault.

A process learns of a mapping when it starts, and of each change at a time of its own, late, and perhaps not of all.
Where commits need a quorum, all nodes but one of a partition may die while its objects go.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from halog.core.keys.mapping import PolicyMapping
from halog.core.table.states import State, StateChange
from tests.sim import lives, process_faults
from tests.sim.violation import Violation, demand
from tests.sim.world import World, is_grouped

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.shop import Shop

LOOK_MS = 15.0
"""How often a process may hear of a change,"""
HEARS = 0.5
"""and the chance that it does."""
STRIKES = 0.2
"""The chance that a quorum goes, whenever it is looked and objects go."""

_IDLE = (State.INITIAL, State.UNAVAILABLE)


class States:
    """Of all partitions of one shop."""

    def __init__(self, shop: Shop, policy: str) -> None:
        self.shop = shop
        self.policy = policy
        self.known: dict[Process, PolicyMapping] = {}
        """The mapping as each process knows it."""
        self.chance = random.Random(f"{shop.seed}/updating")
        self.spared = [w for w in shop.worlds.values() if is_grouped(w.seed)]
        """Partitions that are still to lose their quorum."""
        shop.engine.at(LOOK_MS, self._look)

    def knows(self, p: Process) -> PolicyMapping:
        """From its start on."""
        return self.known.setdefault(p, self.shop.mapping)

    def updating(self, p: Process) -> bool:
        """As `halog.runtime.keys.mapping_cache.MappingView.updating`."""
        return name(p) in self.knows(p).updating(self.policy)

    def _look(self) -> None:
        for world in self.shop.worlds.values():
            for p in list(world.processes()):
                if self.knows(p) is not self.shop.mapping and not p.paused and self.chance.random() < HEARS:
                    self.known[p] = self.shop.mapping
                    lives.looked(world, p)
        for world in list(self.spared) if not self.shop.healed else ():
            active = world.active()
            if active is not None and self.updating(active) and self.chance.random() < STRIKES:
                self.spared.remove(world)
                self._lose_quorum(world)
        self.shop.engine.at(LOOK_MS, self._look)

    def _lose_quorum(self, world: World) -> None:
        """All are killed but one, and started again."""
        there = list(world.processes())
        for p in self.chance.sample(there, len(there) - 1):
            world.crash(p.name)
            world.engine.at(self.chance.uniform(80.0, 300.0), process_faults.restart, world, p.name, False)

    def looked(self, p: Process, state: State, steps: Sequence[StateChange]) -> None:
        """What its state must be, whatever was before; and what is true when it says that the objects have gone."""
        if state not in _IDLE and below_quorum(p):
            raise Violation(f"P8: {name(p)} is {state.value} on {p.name}, and has no quorum")
        dirty = is_dirty(self.knows(p), name(p))
        if state is (State.ACTIVE if dirty else State.UPDATING):
            raise Violation(f"P8: {name(p)} is {state.value} on {p.name}, and objects {'' if dirty else 'do not '}go")
        if steps and steps[-1].before is State.UPDATING and state is State.ACTIVE:
            self._all_gone(p)

    def _all_gone(self, p: Process) -> None:
        """Unless it is behind, or a zombie, or knows an older mapping than its partition."""
        known, world = self.knows(p), p.world
        if p is world.active() and p.partition.state.ledger.mapping == known.version == self.shop.mapping.version:
            locks = p.partition.state.ledger.locks  # what is moved by a transaction whose outcome has not come yet
            left = [k for k in self.shop.elsewhere(name(p), p, known) if locks.writer(k) is None]
            demand(not left, f"P8: {name(p)} is Active again with {left}, which belong elsewhere")
            self.shop.cover.hit("active again, and clean")

    def unwell(self) -> str:
        """Whose partition does not become Active again, or ''."""
        wrong = {
            f"{name(p)} on {p.name}": life and life.state.value
            for world in self.shop.worlds.values()
            for p in world.processes()
            if (life := world.lives.get(p.me)) is None or life.state is not State.ACTIVE
        }
        return f"states are {wrong}" if wrong else ""


def name(p: Process) -> str:
    """Of its partition."""
    return p.world.coordinator.table.name


def below_quorum(p: Process) -> bool:
    """Does it see too few nodes for any to be active? A dumb twin of `halog.core.table.states`; here all weigh the
    same."""
    table = p.partition.state.table
    up = {m.node for m in p.partition.state.alive}
    return is_grouped(p.world.seed) and not table.group.required and len(up) <= len(p.world.nodes) // 2


def is_dirty(mapping: PolicyMapping, partition: str) -> bool:
    """May objects of a partition still go? A dumb twin of `PolicyMapping.updating`: here all have their names in the
    layouts. Who has no entries left is clean, and its objects go with the entries of others."""
    change = mapping.changing
    if change is None or not change.open or all(partition not in layout.names for layout in mapping.layouts):
        return False
    loses_entries = mapping.now.listed and not change.to.listed
    return loses_entries or partition not in change.clean
