"""Nodes that have no quorum in a zone, in the simulated world (Q1). `halog.core.table.zones` decides for each process,
from whom it hears: others die, are doubted or offline; and for a while one hears nobody, whatever it is about to do.
The others learn that it is offline each at its own time; then it restores from the log as it is by then.

Only in some histories, drawn from chances of their own: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from halog.core import events as ev
from halog.core.ids import Member
from halog.core.roles import OUT, Role
from halog.core.table.group import majority
from halog.core.table.zones import NodeContacts, Zone, ZoneState, count, first_state, happening, next_state
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(7, 1 << 20, 19)
LOOK_MS = 0.3
"""Some roles last no longer."""
PATIENCE: Final = 1_500
"""Looks for one of the role drawn."""
CAUGHT: Final = [role for role in Role if role not in OUT]


class Zoning:
    """How each process stands in the one zone of a world."""

    def __init__(self, world: World, zone: Zone) -> None:
        self.world = world
        self.zone = zone
        self.off = False
        """Has an operator switched its quorum off?"""
        self.deaf: set[Member] = set()
        """Who hears nobody."""
        self.heard: dict[Member, frozenset[str]] = {}
        """Whom each heard when it last looked."""
        self.states: dict[Member, ZoneState] = {}

    def started(self, p: Process) -> None:
        """It has reached nobody yet."""
        state = self.states[p.me] = first_state(self.zone, off=self.off)
        self.heard[p.me] = frozenset()
        if state is ZoneState.DISABLED:
            self.world.members.offline.add(p.me)

    def judge(self, p: Process, hears: frozenset[Member]) -> None:
        """It sees who is there: is it offline now, or no more?"""
        members = self.world.members
        reached = frozenset(m.node for m in hears - {p.me})
        up = frozenset(m.node for m in hears - members.offline)
        known = frozenset(n.name for n in self.world.nodes.values() if n.incarnation)
        self.heard[p.me] = reached
        state = self.states[p.me]
        what = happening(state, count(self.zone, p.name, NodeContacts(known, reached, up)), off=self.off)
        if what is None:
            return
        self.world.cover.hit(f"zone: {state.value}, {what}")
        self.world.engine.say(f"{p.name}: its zone is {state.value}: {what}")
        state = self.states[p.me] = next_state(state, what)
        (members.offline.add if state is ZoneState.DISABLED else members.offline.discard)(p.me)

    def may_serve(self, p: Process) -> bool:
        """As a dumb twin of the core counts: every node has one vote."""
        heard = len(self.heard[p.me])
        return self.off or (heard >= self.zone.minimum_remote if self.zone.minimum_remote else 1 + heard >= self.needed)

    @property
    def needed(self) -> int:
        return majority(len(self.zone.votes))


def given(seed: int) -> bool:
    """Are there zones with a quorum in this history?"""
    return seed in SEEDS


def prepare(world: World, length: float) -> None:
    """What the zone demands; who hears nobody, doing what, and when; and when operators switch the quorum."""
    rng = random.Random(f"{world.seed}/zones")
    votes = dict.fromkeys(world.nodes, 1)
    most = majority(len(votes))
    demands = ({"minimum_votes": most}, {"percentage": 100 * most // len(votes)}, {"minimum_remote": 1})
    world.members.zoning = Zoning(world, Zone("home", votes, **rng.choice(demands)))
    world.engine.at(0.0, _watch, world)
    for _ in range(rng.randint(2, 6)):
        world.engine.at(rng.random() * length, _wait_for, world, rng, rng.choice(CAUGHT), PATIENCE)
    if rng.random() < 0.2:
        world.engine.at(rng.random() * length, _switch, world, True)
        world.engine.at(rng.random() * length, _switch, world, False)


def _switch(world: World, off: bool) -> None:
    """An operator; everybody learns of it at once."""
    zoning = world.members.zoning
    assert zoning is not None
    if not world.healed and zoning.off is not off:
        world.cover.hit(f"quorum switched {'off' if off else 'on'}")
        zoning.off = off
        for p in list(world.processes()):
            world.members.look(p)


def _wait_for(world: World, rng: random.Random, role: Role, patience: int) -> None:
    able = [p for p in world.processes() if p.partition.state.role is role and p.me not in world.members.offline]
    if able and not world.healed:
        _leave(world, rng, rng.choice(able))
    elif patience and not world.healed:
        if patience % 500 == 0:
            _provoke(world, rng, role)
        world.engine.at(LOOK_MS, _wait_for, world, rng, role, patience - 1)


def _provoke(world: World, rng: random.Random, role: Role) -> None:
    """What seldom happens by itself."""
    from tests.sim import process_faults

    p = world.active()
    if p is None:
        return
    if role is Role.VERIFYING:
        process_faults.dead_append(world)
    elif role in (Role.DRAINING, Role.HANDING):
        to = rng.choice([n for n in world.nodes if n != p.name])
        p.deliver(ev.HandOverAsked(world.hand_over_token(), to))


def _watch(world: World) -> None:
    """The promise: who is offline takes part in nothing, who hears too few is offline, and who comes back has the log
    as it was then (P11)."""
    members = world.members
    assert members.zoning is not None
    for p in world.processes():
        role = p.partition.state.role
        serves = role not in OUT and not p.paused and p.me in members.views
        if serves and p.me not in members.views[p.me]:
            raise Violation(f"Q1: {p.name} is offline, and {role.value}")
        if serves and not members.zoning.may_serve(p):
            raise Violation(f"Q1: {p.name} is {role.value}, and hears too few")
        owes = members.owes.get(p.me, 0)
        if role not in OUT and role is not Role.LOADING and p.partition.state.next_offset < owes:
            raise AssertionError(
                f"P11: {p.name} is {role.value} at {p.partition.state.next_offset}, back behind {owes}"
            )
    if not world.healed:
        world.engine.at(LOOK_MS, _watch, world)


def _leave(world: World, rng: random.Random, p: Process) -> None:
    zoning = world.members.zoning
    assert zoning is not None
    world.engine.say(f"{p.name} hears nobody")
    zoning.deaf.add(p.me)
    world.members.look(p)
    world.engine.at(rng.choice((5.0, 60.0, 400.0)) * rng.random(), back, world, p)


def back(world: World, p: Process) -> None:
    """It hears the others again."""
    zoning = world.members.zoning
    if zoning is not None and p.me in zoning.deaf:
        world.engine.say(f"{p.name} hears the others again")
        zoning.deaf.discard(p.me)
        world.members.look(p)


def all_back(world: World) -> None:
    """As the world is healed; where too many died for good, operators switch the quorum off."""
    zoning = world.members.zoning
    if zoning is None:
        return
    zoning.deaf.clear()
    zoning.off = len(world.nodes) - len(world.gone) < max(zoning.needed, zoning.zone.minimum_remote + 1)
    for p in list(world.processes()):
        world.members.look(p)


def unwell(world: World) -> str:
    """Why the zone does not stand as it should, or ''."""
    zoning = world.members.zoning
    if zoning is None:
        return ""
    known = [n for n in world.nodes.values() if n.incarnation]
    right = ZoneState.ACTIVE if all(n.process is not None for n in known) else ZoneState.PARTIAL
    wrong = {p.name: s.value for p in world.processes() if (s := zoning.states[p.me]) is not right}
    return f"zones are {wrong}, not {right.value}" if wrong else ""


def judged(world: World, p: Process, was_offline: bool) -> None:
    """It went offline, or came back: the others are to hear of it, and its copy is restored."""
    is_offline = p.me in world.members.offline
    if is_offline == was_offline:
        return
    world.members.changed(p.name)
    if is_offline:
        world.cover.hit("offline")
    else:
        _restore(world, p)


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
