"""Leases in the simulated world: clocks that drift, hosts that say who died, and the one promise (R5).

Whatever anybody is told, whoever may read under a lease at that moment shows it, stopped processes included: one that
wakes up now reads. Only in some histories: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from halog.core import events as ev
from halog.core.ids import Member
from halog.core.roles import Role

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(6, 1 << 21, 17)
SETTINGS: Final[dict[str, Any]] = {"lease_ms": 400, "lease_drift_percent": 4, "commit_deadline_ms": 1_500}
"""Longer than it takes to be replaced; and, as in production, shorter than a writer's patience with the log."""
DRIFT: Final = 0.03
"""How wrong the worst clock is: two of them part by less than the settings allow."""
SAYS: Final = 0.7
"""How often a host is able to say that a process of it died: its machine may be gone."""


def given(seed: int) -> bool:
    """Are there leases in this history?"""
    return seed in SEEDS


def rate(seed: int, me: Member) -> float:
    """How fast the clock of this process runs."""
    if not given(seed):
        return 1.0
    return random.Random(f"{seed}/{me.node}/{me.incarnation}").choice((1 - DRIFT, 1.0, 1 + DRIFT))


def valid(p: Process) -> bool:
    """May this process read without asking anybody?"""
    leading = p.partition.leading
    return leading is not None and p.clock() < leading.lease.ends


def nobody_reads_less(world: World, teller: Process, lsn: int) -> None:
    """`teller` says that `lsn` happened."""
    if not world.leased:
        return
    for p in world.processes():
        if valid(p):
            world.cover.hit("told under a lease" if p is teller else "told under another's lease")
            shown = p.partition.visible
            if shown < lsn:
                raise AssertionError(f"R5: {teller.name} told lsn {lsn}, {p.name} shows {shown} under a lease")


def witness(world: World, dead: Process) -> None:
    """What is beside the process tells the others, soon; or was killed too."""
    if world.engine.rng.random() < SAYS:
        for p in world.processes():
            world.engine.at(world.engine.rng.uniform(0.5, 30.0), p.deliver, ev.Died(dead.me))


def every_session_ends(world: World) -> None:
    """A coordinator that is put back knows none of them."""
    from tests.sim.process_faults import renew_session

    for p in world.processes():
        if p.coordinator.up:
            world.coordinator.lose(p.coordinator)
            world.engine.at(world.engine.rng.uniform(1.0, 60.0), renew_session, world, p)


def prepare(world: World, length: float) -> float:
    """What happens in this history besides, and how much longer it takes: leases have to run out, and callers to go on
    meanwhile."""
    for client in world.clients:
        client.quota = 120
    for _ in range(world.operator.randint(1, 3)):
        world.engine.at(60.0 + world.operator.random() * length, fault, world)
    return 2.5 * float(SETTINGS["lease_ms"])


def fault(world: World) -> None:
    """Whoever leads is cut off, or hands over."""
    p = world.active()
    if p is not None:
        (hand_over if world.operator.random() < 0.2 else isolate)(world, p)


def isolate(world: World, p: Process) -> None:
    """The active goes on, and is taken for dead; what it asks the coordinator takes long both ways, what it would be
    told comes later, and of what the log took it hears late. Sometimes it is stopped too, or its heir dies, or is slow
    to claim."""
    rng = world.operator
    world.cover.hit("active cut off")
    world.engine.say(f"{p.name} is cut off")
    p.coordinator.lag, p.deaf = rng.choice((20.0, 150.0, 190.0, 190.0)), rng.choice((0.0, 0.0, 100.0, 500.0))
    p.coordinator.blind, p.unreached = rng.choice((50.0, 1_500.0, 1_500.0)), rng.random() < 0.8
    if rng.random() < 0.3 and p.session is not None:
        p.session.freeze()
    if rng.random() < 0.8:
        world.engine.at(rng.uniform(0.0, 60.0), world.members.everybody_doubts, p.name)
    if rng.random() < 0.4:
        world.engine.at(rng.uniform(0.0, 400.0), p.pause)
        world.engine.at(rng.uniform(700.0, 1_300.0), p.wake)
    dice = rng.random()
    if dice < 0.3:
        world.engine.at(5.0, _kill_heir, world, p.name, 80)
    elif dice < 0.6:
        for other in world.processes():
            other.coordinator.lag = other.coordinator.lag or rng.uniform(50.0, 350.0)
            world.engine.at(rng.uniform(300.0, 900.0), reach, world, other)
    world.engine.at(rng.uniform(500.0, 1_500.0), reach, world, p)


def hand_over(world: World, p: Process) -> None:
    """Asked for; the one who gives hears late that the log took its last record, and what became of the znode."""
    others = [r.node for r in p.partition.state.table.replicas]
    if others:
        world.cover.hit("handed over under a lease")
        p.coordinator.blind = 1_500.0
        p.deliver(ev.HandOverAsked(world.hand_over_token(), world.operator.choice(others)))
        _deaf_when_handing(world, p, 400)


def _deaf_when_handing(world: World, p: Process, patience: int) -> None:
    if p.partition.state.role is Role.HANDING:
        p.deaf = world.operator.uniform(50.0, 600.0)
        world.engine.at(p.deaf + 50.0, reach, world, p)
    elif patience:
        world.engine.at(0.3, _deaf_when_handing, world, p, patience - 1)
    else:
        reach(world, p)


def _kill_heir(world: World, first: str, patience: int) -> None:
    active = world.coordinator.table.active
    if active is not None and active.node != first and world.nodes[active.node].process is not None:
        from tests.sim.process_faults import restart

        world.cover.hit("heir killed under a lease")
        world.crash(active.node)
        world.engine.at(world.operator.uniform(300.0, 900.0), restart, world, active.node, False)
    elif patience:
        world.engine.at(5.0, _kill_heir, world, first, patience - 1)


def reach(world: World, p: Process) -> None:
    """It is with the others again."""
    p.coordinator.lag = p.coordinator.blind = p.deaf = 0.0
    p.unreached = False
    world.members.everybody_trusts(p.name)
    if p.session is not None and p.session.frozen:
        p.session.thaw()
