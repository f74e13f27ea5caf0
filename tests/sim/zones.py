"""Nodes that have no quorum in a zone, in the simulated world (Q1): for a while one takes itself for offline, whatever
it is about to do, and so do the others, each when it hears of it; then it restores from the log as it is by then.

Only in some histories, drawn from chances of their own: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from halog.core import events as ev
from halog.core.roles import OUT, Role

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(7, 1 << 20, 19)
LOOK_MS: Final = 0.3
"""Some roles last no longer."""
PATIENCE: Final = 1_500
"""Looks for one of the role drawn."""
CAUGHT: Final = [role for role in Role if role not in OUT]


def given(seed: int) -> bool:
    """Are there zones with a quorum in this history?"""
    return seed in SEEDS


def prepare(world: World, length: float) -> None:
    """Who goes offline, doing what, and when."""
    rng = random.Random(f"{world.seed}/zones")
    world.engine.at(0.0, _watch, world)
    for _ in range(rng.randint(2, 6)):
        world.engine.at(rng.random() * length, _wait_for, world, rng, rng.choice(CAUGHT), PATIENCE)


def _wait_for(world: World, rng: random.Random, role: Role, patience: int) -> None:
    able = [p for p in world.processes() if p.partition.role is role and p.me not in world.members.offline]
    if able and not world.healed:
        _leave(world, rng, rng.choice(able))
    elif patience and not world.healed:
        if patience % 500 == 0:
            _provoke(world, rng, role)
        world.engine.at(LOOK_MS, _wait_for, world, rng, role, patience - 1)


def _provoke(world: World, rng: random.Random, role: Role) -> None:
    """What seldom happens by itself."""
    from tests.sim import faults

    p = world.active()
    if p is None:
        return
    if role is Role.VERIFYING:
        faults.dead_append(world)
    elif role in (Role.DRAINING, Role.HANDING):
        to = rng.choice([n for n in world.nodes if n != p.name])
        p.deliver(ev.HandOverAsked(world.hand_over_token(), to))


def _watch(world: World) -> None:
    """The promise: who is offline takes part in nothing, and who comes back has the log as it was then (P11)."""
    for p in world.processes():
        role, view = p.partition.role, world.members.views.get(p.me, frozenset({p.me}))
        if p.me not in view and not p.paused and role not in OUT:
            raise AssertionError(f"Q1: {p.name} is offline, and {role.value}")
        owes = world.members.owes.get(p.me, 0)
        if role not in OUT and role is not Role.LOADING and p.partition.next_offset < owes:
            raise AssertionError(f"P11: {p.name} is {role.value} at {p.partition.next_offset}, back behind {owes}")
    if not world.healed:
        world.engine.at(LOOK_MS, _watch, world)


def _leave(world: World, rng: random.Random, p: Process) -> None:
    world.cover.hit("offline")
    world.engine.say(f"{p.name} has no quorum")
    world.members.offline.add(p.me)
    world.members.look(p)
    world.members.changed(p.name)
    world.engine.at(rng.choice((5.0, 60.0, 400.0)) * rng.random(), back, world, p)


def back(world: World, p: Process) -> None:
    """Its quorum is there again."""
    if p.me in world.members.offline:
        world.engine.say(f"{p.name} has a quorum again")
        world.members.offline.discard(p.me)
        world.members.look(p)
        world.members.changed(p.name)
        _restore(world, p)


def all_back(world: World) -> None:
    """As the world is healed."""
    for p in world.processes():
        back(world, p)


def _restore(world: World, p: Process) -> None:
    if p.paused:
        p.backlog.append((_restore, (world, p)))
    elif p.alive:
        if world.coordinator.table.active not in (None, p.me):
            world.cover.hit("restored behind another active")
        world.members.owes[p.me] = len(world.log.entries)
        p.end_at_start, p.loaded = len(world.log.entries), False
        p.deliver(ev.Restored())
        if p.reader.position >= p.end_at_start:
            p._end_reached()
