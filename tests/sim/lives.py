"""Histories in which nodes define, enable and disable the partition, and operators have replicas copied anew (P7, P12),
among migrations and every fault; in all of them each process keeps the partition's state (P8).

They are histories of their own, from 2^22 on, and draw from the operators' chances: no other history is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from halog.core.roles import CLAIMANT, Role
from halog.core.table import resync
from halog.core.table.definitions import defined, disabled, enabled, why_not_define, why_not_disable, why_not_enable
from halog.core.table.group import counts, needed
from halog.core.table.migration import moving, why_not
from halog.core.table.states import PartitionSight, State, StateTracker
from halog.core.table.table import PartitionTable, Target
from tests.sim import moves
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.checks import Checks
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(moves.LIVED, moves.LIVED + (1 << 20))

_HANDING = (Role.DRAINING, Role.HANDING)


def given(seed: int) -> bool:
    return seed in SEEDS


def prepare(w: World, length: float) -> None:
    """What operators do to where it is."""
    if given(w.seed):
        prepare_lives(w, length)
    elif moves.is_moving(w.seed):
        moves.prepare(w, length)


def prepare_lives(w: World, length: float) -> None:
    """What nodes say, migrations, and most of all forced replication, until the faults end."""
    kinds = (replicate, replicate, replicate, say, take_out, moves.migrate)
    for _ in range(w.operator.randint(2, 7)):
        w.engine.at(40.0 + w.operator.random() * (length - 40.0), w.operator.choice(kinds), w)
    w.engine.at(moves.LOOK_MS, look, w)
    w.engine.at(moves.LOOK_MS, moves.look, w)


def replicate(w: World) -> None:
    """Some of the replicas, or all."""
    table = w.coordinator.table
    names = [r.node for r in table.replicas]
    nodes = tuple(w.operator.sample(names, w.operator.randint(1, len(names)))) if names else ()
    if resync.why_not(table, nodes):
        w.cover.hit("replication refused")
        return
    w.cover.hit("replication forced")
    w.engine.say(f"an operator has {nodes} copied anew")
    w.coordinator.put(resync.wished(table, nodes))


def say(w: World) -> None:
    """A node defines it somewhere, and enables that, at once or not at all."""
    node, names = w.operator.choice(list(w.nodes)), list(w.nodes)
    nodes = tuple(w.operator.sample(names, w.operator.randint(1, len(names))))
    target, table = Target(nodes, w.operator.randint(0, len(nodes) - 1)), w.coordinator.table
    if why_not_define(table, node, target):
        w.cover.hit("definition refused")
        return
    table = defined(table, node, target)
    w.coordinator.put(table)
    if w.operator.random() < 0.8 and not why_not_enable(table, node):
        _go(w, *enabled(table, node, names), f"{node} enables it on {nodes}")


def take_out(w: World) -> None:
    """A node disables it."""
    node, table = w.operator.choice(list(w.nodes)), w.coordinator.table
    if not why_not_disable(table, node):
        _go(w, *disabled(table, node), f"{node} disables it")


def _go(w: World, table: PartitionTable, target: Target | None, what: str) -> None:
    if target is not None:
        up = any(p.name in table.configured for p in w.processes())
        if not up or why_not(table, target, replace=True):
            w.cover.hit("definition refused")
            return
        table = moving(table, target)
    w.engine.say(what)
    w.cover.hit("disabled on its only node" if table.shut else what.split()[1])
    w.coordinator.put(table)


def last_word(w: World) -> None:
    """When all is healed: nobody keeps it disabled."""
    if not given(w.seed):
        return
    w.coordinator.put(msgspec.structs.replace(w.coordinator.table, definitions={}))


# --- replicas that are copied anew ---


def look(w: World) -> None:
    """A node whose turn it is drops its copy, and says so."""
    for p in list(w.processes()):
        turn = p.name == p.partition.state.table.away == w.coordinator.table.away
        busy = p.partition.leading is not None or p.partition.state.role in CLAIMANT
        if turn and not busy and not p.paused:
            w.cover.hit("copied anew")
            disks = len(w.coordinator.table.sync_set)  # those that are left, until it is back
            w.checks.flush_told = {lsn: min(n, disks) for lsn, n in w.checks.flush_told.items() if disks}
            moves.drop(w, p)
            w.coordinator.put(resync.emptied(w.coordinator.table, p.name))
    w.engine.at(moves.LOOK_MS, look, w)


# --- states ---


def are_kept(w: World) -> bool:
    """Does each process keep the partition's state?"""
    return given(w.seed) or (w.bank is not None and w.bank.keeps_states)


def looked(w: World, p: Process) -> None:
    """What a process knows of the partition's state, after each of its steps."""
    if not p.alive:
        return
    life = w.lives.setdefault(p.me, StateTracker())
    core = p.partition
    offline = p.me not in core.state.alive
    updating = w.bank is not None and w.bank.updating(p)
    steps = life.look(
        PartitionSight(p.name, core.state.table, core.state.alive, offline, core.state.role in _HANDING, updating)
    )
    cover = w.cover if w.bank is None else w.bank.cover
    for step in steps:
        w.engine.say(f"{p.name}: {core.state.table.name}: {step.before.value} → {step.now.value}: {step.happening}")
        cover.hit(f"life: {step.before.value}, {step.happening}")
    if w.bank is not None:
        w.bank.looked(p, life.state, steps)


def unwell(w: World) -> str:
    """Why the partition does not live as it should, or ''."""
    if not given(w.seed):
        return ""
    if w.coordinator.table.resync is not None:
        return f"{w.coordinator.table.resync} is not over"
    wrong = {p.name: s for p in w.processes() if (s := w.lives[p.me].state) is not State.ACTIVE}
    return f"states are {wrong}" if wrong else ""


# --- what must hold ---


def check_step(checks: Checks, old: PartitionTable, new: PartitionTable) -> None:
    """The law of core/resync.py: a replica goes out only while all others are in, and enough are left."""
    if not new.away or new.away == old.away or new.epoch != old.epoch:
        return
    w, active = checks.world, new.active
    demand(active is not None, "P12: a replica goes out, and nobody is active")
    assert active is not None
    leads = next((p for p in w.processes() if p.me == active), None)
    if leads is None or leads.partition.leading is None:
        return  # it landed late
    heard = {m.node for m in leads.partition.state.alive if m not in leads.partition.leading.silent}
    missing = {n for n in new.configured if n in heard and n != new.away} - set(new.node_list)
    demand(not missing, f"P12: {new.away} goes out while {missing} are not in the node list")
    left = [n for n in new.node_list if n == active.node or counts(new, n)]
    demand(len(left) >= needed(new, active.node), f"P12: {new.away} goes out, and only {left} are left")
    if old.quorum and not old.group.required:
        have = {m.node for m in checks.last if m.node in left and checks.held.lsn(m) >= checks.acknowledged}
        meets = len(have | {active.node}) + new.quorum > len(new.configured)
        demand(meets, f"R7: {new.away} takes lsn {checks.acknowledged} along, which is with {have} only")
        w.cover.hit("went out of a quorum")
