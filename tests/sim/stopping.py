"""Copies that stop where commits do not wait for the log (R6, decision 13): in these histories no process merely dies.
Each one's copy stops first, leaves on its disk what its log never had, and its node is started anew with that disk. So
nothing that was acknowledged may be lost, not even where somebody said that it may be: all there was is brought along.

Only in some histories, drawn from chances of their own: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.tail import Tail
from tests.sim import faults, stowed

if TYPE_CHECKING:
    from tests.sim.node import Node, Process
    from tests.sim.world import World

SEEDS = range(40, 1 << 20, 91)
"""Every thirteenth of those that do not wait for the log."""

NEVER_HERE = (faults.die, faults.restore_coordinator)
"""Faults that lose what was acknowledged, or whom it is with."""


def given(seed: int) -> bool:
    """Do copies stop in this history?"""
    return seed in SEEDS


def played(seed: int, kinds: list[Callable[[World], None]]) -> list[Callable[[World], None]]:
    """The faults of a history, of these."""
    if not given(seed) and not stowed.is_rough(seed):
        return kinds
    return [k for k in kinds if k not in NEVER_HERE] or [faults.crash]


def stop(w: World, p: Process) -> None:
    """The copy of `p` stops, as when its log has lost its end; then the process is no more."""
    rng = random.Random(f"{w.seed}/stopping/{p.me}")
    effects = p.partition.step(ev.LogLost("its log has lost its end"), p.clock())
    p.copy.flush()
    for e in effects:
        if isinstance(e, ev.KeepTail):
            w.cover.hit("tail left on the disk")
            p.node.disk.left = e.records
        elif isinstance(e, ev.SetTable) and not p.paused and rng.random() < 0.5:
            w.coordinator.set(p.coordinator, e)


def brought_along(node: Node) -> Tail:
    """As `halog.runtime.left.found`."""
    tail, disk = stowed.brought_along(node), node.disk
    tail.adopt(disk.left, disk.chain)
    if tail.run:
        node.world.cover.hit("tail brought along")
    else:
        disk.left = ()
    return tail
