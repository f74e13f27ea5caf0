"""Histories in which operators move the partition from node to node (P12): some nodes have no copy to begin with,
wishes come at any moment, and a node that the table names no more loses its copy, and later begins with an empty one.

They are histories of their own, from 2^20 on, and draw from the operators' chances: no other history is changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from halog.core.roles import CLAIMANT
from halog.core.table.group import majority
from halog.core.table.migration import assigned, moving, why_not, why_not_assigned
from halog.core.table.table import Group, PartitionTable, Target
from tests.sim import late, outages, parted, silences, stills, upgrading
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.checks import Checks
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(1 << 20, 1 << 21)

LIVED = 1 << 22
"""From here on the histories of `lives`, in which partitions move, too."""

LOOK_MS = 15.0
"""How often a node looks whether it still hosts the partition."""


def is_moving(seed: int) -> bool:
    own = late.given(seed) or outages.given(seed) or parted.given(seed) or silences.given(seed)
    own = own or seed in outages.TWICE or (seed % 2 > 0 and (upgrading.given(seed) or stills.given(seed)))
    return seed in SEEDS or (seed >= LIVED and not own)


def first_home(seed: int, names: Sequence[str]) -> tuple[str, ...]:
    """Where the partition is to begin with."""
    if not is_moving(seed):
        return tuple(names)
    return tuple(names[: random.Random(seed).randint(2 if seed >= LIVED else 1, len(names))])


def prepare(w: World, length: float) -> None:
    """Wishes, now and then, until the faults end; and nodes that follow the table."""
    for _ in range(w.operator.randint(1, 5)):
        w.engine.at(40.0 + w.operator.random() * (length - 40.0), migrate, w)
    w.engine.at(LOOK_MS, look, w)


def migrate(w: World) -> None:
    """An operator wishes the partition to be elsewhere; at times nodes that are dead for good are among them."""
    rng, names = w.operator, list(w.nodes)
    nodes = tuple(rng.sample(names, rng.randint(1, len(names))))
    wish(w, Target(nodes, rng.randint(0, len(nodes) - 1)))


def wish(w: World, target: Target) -> bool:
    """By compare-and-set like everybody; or refused."""
    table = w.coordinator.table
    up = any(p.name in table.configured for p in w.processes())
    if why_not(table, target, replace=True) or not (up or not why_not_assigned(table, unlogged=w.unlogged)):
        w.cover.hit("migration refused")
        return False
    w.engine.say(f"an operator moves the partition to {target} {'' if up else 'at once'}")
    w.cover.hit("migration wished" if up else "placed anew")
    w.coordinator.put(moving(table, target) if up else placed_anew(w, target))
    return True


def placed_anew(w: World, target: Target) -> PartitionTable:
    """Nobody is up, and who comes back drops his copy, with what was flushed there."""
    w.checks.flush_told.clear()
    return assigned(w.coordinator.table, target)


def last_wish(w: World) -> None:
    """When all is healed: to nodes that live, if operators can do that without breaking a promise; else they let those
    nodes be that are left (a quorum that died for good never comes back)."""
    table, living = w.coordinator.table, [n for n in w.nodes if n not in w.gone]
    left = [n for n in table.configured if n in living]
    if not left:
        nodes = tuple(living)
        w.checks.given_up()
        placed = placed_anew(w, Target(nodes, min(1, len(nodes) - 1)))
        w.coordinator.put(msgspec.structs.replace(placed, group=Group()))
    elif len(left) < table.quorum:
        w.coordinator.regroup(Group(required=len(left)))
    else:
        w.coordinator.regroup(Group())
        nodes = tuple(w.operator.sample(living, w.operator.randint(1, len(living))))
        wish(w, Target(nodes, w.operator.randint(0, len(nodes) - 1)))


def elsewhere(w: World) -> str:
    """Why it is not where it is to be, or ''."""
    table = w.coordinator.table
    if table.target is not None and not table.group.required:
        return f"it is on {table.node_list}, still to be on {table.target.nodes}"
    whole = set(table.node_list) == set(table.configured) - w.gone
    return "" if whole else f"the node list is {table.node_list}"


def copies(w: World) -> list[Process]:
    """The processes whose copy is to be level."""
    table = w.coordinator.table
    return [p for p in w.processes() if p.name in table.hosts]


# --- nodes follow the table ---


def look(w: World) -> None:
    """A node that its newest table names no more drops its copy, once."""
    for p in list(w.processes()):
        table = p.partition.state.table
        named = p.name in table.hosts or p.name in table.node_list
        empty = p.copy.position is None and p.node.disk.next_offset == 0
        busy = p.partition.leading is not None or p.partition.state.role in CLAIMANT
        if not named and not empty and not busy and not p.paused and not p.fresh:
            drop(w, p)
        p.fresh = p.fresh and not named
    w.engine.at(LOOK_MS, look, w)


def drop(w: World, p: Process) -> None:
    """The same run of the node goes on with an empty copy."""
    w.cover.hit("copy dropped")
    w.engine.say(f"{p.name} drops its copy")
    p.node.crash()
    p.node.disk.wipe()
    p.node.incarnation -= 1
    w.members.views.pop(p.me, None)
    w.checks.dropped(p.me)
    p.node.start()
    assert p.node.process is not None
    p.node.process.fresh = True


# --- what must hold ---


def judging(checks: Checks, p: Process) -> tuple[PartitionTable, ...]:
    """By which of them an acknowledgement may be enough: the table the active node knows; or, where its own step has
    landed and it does not know that yet, the next, since one that left with it may have dropped its copy."""
    now, table = checks.world.coordinator.table, p.partition.state.table
    stepped = is_moving(checks.world.seed) and (now.epoch, now.group) == (table.epoch, table.group)
    return (table, now) if stepped and set(now.configured) < set(table.configured) else (table,)


def check_step(checks: Checks, old: PartitionTable, new: PartitionTable) -> None:
    """The law of core/migrating.py, whoever set the table."""
    if old.configured == new.configured or new.epoch != old.epoch:
        demand(old.configured == new.configured, "P12: an election changed the group")
        return
    before, after = set(old.configured), set(new.configured)
    if new.config_version != old.config_version:
        demand(new.target is not None and new.target.nodes == new.configured, f"P12: {new.configured} were placed anew")
        return  # nobody was up
    demand(new.active is not None and new.active.node in after, f"P12: {new.active} is active, and not of {after}")
    demand(len(before ^ after) <= 1, f"P12: {before} became {after} at once")
    if before - after:
        wanted = old.target.nodes if old.target is not None else ()
        demand(set(wanted) <= set(new.node_list), f"P12: {before - after} left before {wanted} were there")
        checks.world.cover.hit("a node left")
    if old.quorum:
        demand(new.quorum == majority(len(after)), f"P12: a quorum of {new.quorum} among {after}")
        demand(old.quorum + new.quorum > len(before | after), f"R7: two quorums may miss each other: {before} {after}")
        assert new.active is not None
        have = {m.node for m in checks.last if m.node in after and checks.held.lsn(m) >= checks.acknowledged}
        have |= {new.active.node}  # it gave all of it out, and may not have read it back yet
        meets = len(have) + new.quorum > len(after)
        demand(meets, f"R7: lsn {checks.acknowledged} is with {have} only, a quorum of {after} may miss it")
        checks.world.cover.hit("a quorum's group changed")
