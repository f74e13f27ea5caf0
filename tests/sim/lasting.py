"""Overrides that last a while (Q3), in histories with a quorum: operators require fewer nodes than that, or all, or
designate one of two; and while the time runs out replicas are dead, the active is stopped, its appends are held, or it
cannot reach the coordinator. By its own clock on the wall, which is somewhat wrong, nobody acknowledges anything by an
override that is over (`Checks`).

Only in some histories, drawn from chances of their own: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import msgspec

from halog.core.ids import Member
from halog.core.table.group import as_of, why_not_designated, without
from halog.core.table.table import Group, PartitionTable
from tests.sim import faults, leases, process_faults

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(25, 1 << 20, 33)
"""Every third of those that have a quorum; not where clocks drift, by more than between two looks at the wall."""

LASTS_MS: Final = (60.0, 300.0)
LOOK_MS = 15.0
"""How often a node looks whether one is to be taken out of the znode."""


def given(seed: int) -> bool:
    """Are there such overrides in this history?"""
    return seed in SEEDS and not leases.given(seed)


# --- clocks ---


def wall(p: Process) -> int:
    """ms on the wall, as this process has it."""
    return int(p.world.engine.now) + wrong(p.me)


def wrong(me: Member) -> int:
    """By so much its clock is."""
    return (ord(me.node[-1]) * 7 + me.incarnation * 13) % 31 - 15


def ahead(p: Process) -> int:
    """How far that one is ahead of the one that counts."""
    return wall(p) - p.clock() if given(p.world.seed) else 0


def judged(p: Process, table: PartitionTable) -> PartitionTable:
    """The table by which its acknowledgement is judged now."""
    return as_of(table, wall(p)) if given(p.world.seed) else table


# --- what happens ---


def prepare(w: World, length: float) -> float:
    """Overrides in this history; returns how much longer it takes."""
    rng = random.Random(f"{w.seed}/lasting")
    for client in w.clients:
        client.quota = 120
    for _ in range(rng.randint(1, 3)):
        w.engine.at(80.0 + rng.random() * length, override, w, rng)
    w.engine.at(LOOK_MS, look, w)
    return 600.0


def override(w: World, rng: random.Random) -> None:
    """An operator gives one."""
    if w.healed:
        return
    lasts, active = rng.uniform(*LASTS_MS), w.active()
    group = _given(w.coordinator.table, rng, "" if active is None else active.name, int(w.engine.now + lasts))
    w.cover.hit("override for a while")
    w.engine.say(f"an operator overrides the quorum for {lasts:.0f} ms: {group}")
    w.coordinator.regroup(group)
    if active is not None:
        _hinder(w, rng, active, lasts)


def _given(table: PartitionTable, rng: random.Random, active: str, until_ms: int) -> Group:
    nodes = len(table.configured)
    if nodes == 2 and rng.random() < 0.5 and why_not_designated(table, active) is None:
        return msgspec.structs.replace(table.group, designated=active, designated_until_ms=until_ms)
    return msgspec.structs.replace(table.group, required=rng.choice((1, 1, 1, nodes)), required_until_ms=until_ms)


def _hinder(w: World, rng: random.Random, active: Process, lasts: float) -> None:
    """What keeps the override's end from being seen in time, or makes it matter."""
    back = lasts + rng.uniform(50.0, 300.0)
    if rng.random() < 0.7:
        for p in list(w.processes()):
            if p is not active:
                w.engine.at(rng.uniform(0.0, 20.0), _kill, w, p, back, rng.random() < 0.2)
    if rng.random() < 0.6:
        w.engine.at(rng.uniform(0.4, 1.0) * lasts, _cut_off, w, active, rng.random() < 0.3)
        w.engine.at(back, process_faults.renew_session, w, active)
    if rng.random() < 0.4:
        w.engine.at(lasts - rng.uniform(2.0, 40.0), _stop, w, active)
        w.engine.at(lasts + rng.uniform(1.0, 60.0), faults.resume, w, active)
    if rng.random() < 0.4:
        w.engine.at(lasts - rng.uniform(0.0, 40.0), _hold, w, active, rng.uniform(30.0, 100.0))


def _kill(w: World, p: Process, back: float, wipe: bool) -> None:
    if p.alive and not w.healed:
        w.crash(p.name)
        w.engine.at(back, process_faults.restart, w, p.name, wipe)


def _cut_off(w: World, p: Process, doubted: bool) -> None:
    if p.alive and p.coordinator.up and not w.healed:
        w.engine.say(f"{p.name} does not reach the coordinator")
        w.coordinator.lose(p.coordinator)
        if doubted:
            w.members.everybody_doubts(p.name)


def _stop(w: World, p: Process) -> None:
    if p.alive and not p.paused and not w.healed:
        w.engine.say(f"{p.name} is stopped")
        p.pause()


def _hold(w: World, p: Process, length: float) -> None:
    if p.alive and p.session is not None and not w.healed:
        w.engine.say(f"appends of {p.name} are held")
        p.session.freeze()
        w.engine.at(length, p.session.thaw)


def look(w: World) -> None:
    """As `halog.runtime.host.override_expiry.OverrideExpiry`: whoever sees that one is over takes it out of the znode,
    if he can."""
    for p in list(w.processes()):
        over, group = p.partition.overrides.over, w.coordinator.table.group
        if over and not p.coordinator.up:
            w.cover.hit("an override is over where nobody can take it out")
        elif over and not p.paused and without(group, over) != group:
            w.cover.hit("override taken out")
            w.coordinator.regroup(without(group, over))
    w.engine.at(LOOK_MS, look, w)
