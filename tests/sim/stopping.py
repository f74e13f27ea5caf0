"""Copies that stop where commits do not wait for the log (R6, decision 13): in these histories no process merely dies.
Each one's copy stops first, leaves on its disk what its log never had, and its node is started anew with that disk. So
nothing that was acknowledged may be lost, not even where somebody said that it may be: all there was is brought along.
A copy that stopped has read all of its log; so that others stand before it takes part again, its node may open it late.

Only in some histories, drawn from chances of their own: what once failed in the others is replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from halog.core import effects as fx, events as ev
from halog.core.state.tail import Tail
from halog.core.table.holders import holders
from tests.sim import faults, process_faults, pushed_store
from tests.sim.away import span

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
    if not given(seed) and not pushed_store.is_rough(seed):
        return kinds
    return [k for k in kinds if k not in NEVER_HERE] or [faults.crash]


def stop(w: World, p: Process) -> None:
    """The copy of `p` stops, as when its log has lost its end; then the process is no more."""
    rng = random.Random(f"{w.seed}/stopping/{p.me}")
    effects = p.partition.step(ev.LogLost("its log has lost its end"), p.clock())
    p.copy.flush()
    for e in effects:
        if isinstance(e, fx.KeepTail):
            w.cover.hit("tail left on the disk")
            p.node.disk.left = e.records
        elif isinstance(e, fx.SetTable) and not p.paused and rng.random() < 0.5:
            w.coordinator.set(p.coordinator, e)


OPENS_MS = 5.0, 400.0
"""How long a node may take to open its copy: others ask it meanwhile, and wait no longer for one that cannot answer."""


def opens_after(p: Process) -> float:
    """So many ms after its start `p` takes its copy for up to date, at the earliest."""
    rng = random.Random(f"{p.world.seed}/opening/{p.me}")
    if not given(p.world.seed) or p.me.incarnation == 1 or p.world.healed or rng.random() < 0.4:
        return 0.0
    return rng.uniform(*OPENS_MS)


def prepare(w: World, length: float) -> None:
    """In most of these histories whoever holds what the log lacks stops, once or more often."""
    if given(w.seed):
        for _ in range(w.operator.choice((0, 1, 1, 2, 3))):
            w.engine.at(60.0 + w.operator.random() * (length - 60.0), log_stands_still, w)


def log_stands_still(w: World) -> None:
    """It takes nothing of what the active sends; soon all stop who hold that."""
    p = w.active()
    if p is None or p.session is None:
        return
    p.session.freeze()
    w.engine.at(span(w, 100.0, 600.0), p.session.thaw)
    w.engine.at(span(w, 2.0, 60.0), holders_stop, w)


def holders_stop(w: World) -> None:
    """Others live: they stand, and go on with what these bring along."""
    named = holders(w.coordinator.table)
    for p in [p for p in w.processes() if p.me in named]:
        w.cover.hit("holder stopped")
        w.crash(p.name)
        w.engine.at(span(w, 5.0, 300.0), process_faults.restart, w, p.name, False)


def brought_along(node: Node) -> Tail:
    """As `halog.runtime.store.unlogged_tail.found`."""
    tail, disk = pushed_store.brought_along(node), node.disk
    tail.adopt(disk.left, disk.chain)
    if tail.run:
        node.world.cover.hit("tail brought along")
    else:
        disk.left = ()
    return tail
