"""Rougher histories of replicas that store what they are pushed (R6, decision 38): all processes die again and again,
while the log takes nothing; whoever claims dies before it serves; a machine that loses its power keeps its disk up to
any write behind the last flush; in every third a tail is soon more than a frame takes.

No disk is ever lost, no node is gone for good, and the znode is never put back: so nothing that was acknowledged may
be missing at the end, whatever was told meanwhile. HALOG-1019 is told where no answer was given since the holder that
the znode names last served, and of that hardly ever.

They are histories of their own, from 2^23 on, and draw from the operators' chances: no other history is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from unittest import mock

from halog.core.election import positions
from halog.core.roles import CLAIMANT
from halog.core.state import held
from tests.sim import faults, process_faults, pushed_store
from tests.sim.away import log_away, span

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = pushed_store.ROUGH

SHORT_TAIL: Final = 600
"""Bytes: some five records."""

QUOTA: Final = 60
LOOK_MS, LOOKS = 0.7, 400
"""How often, and how many times, somebody looks for a claimant to kill."""


def given(seed: int) -> bool:
    return pushed_store.is_rough(seed)


def sync_replicas(seed: int, usual: int) -> int:
    """At least one: without it every commit waits for the log."""
    return max(1, usual) if given(seed) else usual


@contextmanager
def tails(world: World) -> Iterator[None]:
    """How much a tail may be, while this history is played."""
    if not given(world.seed) or world.seed % 3:
        yield
        return
    with mock.patch.object(held, "MAX_BYTES", SHORT_TAIL), mock.patch.object(positions, "MAX_BYTES", SHORT_TAIL):
        yield


def prepare(world: World, length: float) -> float:
    """What goes wrong besides; how much longer such a history takes."""
    if not given(world.seed):
        return 0.0
    rng = world.operator
    for node in world.nodes.values():
        pushed_store.keeps_writes(node)
    for client in world.clients:
        client.quota = QUOTA
    if rng.random() < 0.5:
        world.nature.drop = min(world.nature.drop, 0.02)
    more = rng.uniform(100.0, 600.0)
    kinds: list[Callable[[World], None]] = [
        faults.crash,
        crash_all,
        log_stands_still,
        log_stands_still,
        claimants_die,
        log_away,
    ]
    for _ in range(rng.randint(2, 10)):
        world.engine.at(60.0 + rng.random() * (length + more - 60.0), rng.choice(kinds), world)
    return more


def crash_all(w: World) -> None:
    """Nobody is left; they come back one after the other."""
    w.cover.hit("all crash")
    for p in list(w.processes()):
        crash(w, p)


def crash(w: World, p: Process) -> None:
    if p.alive:
        w.crash(p.name)
        w.engine.at(span(w, 5.0, 300.0), process_faults.restart, w, p.name, False)


def log_stands_still(w: World) -> None:
    """It takes nothing of what the active sends; soon somebody dies, or all do."""
    p = w.active()
    if p is None or p.session is None:
        return
    p.session.freeze()
    w.engine.at(span(w, 100.0, 600.0), p.session.thaw)
    w.engine.at(span(w, 2.0, 60.0), w.operator.choice((faults.crash, crash_all, crash_all)), w)


def claimants_die(w: World, looks: int = LOOKS) -> None:
    """Whoever is between its claim and serving is killed, alone or with all others, a few times in a row."""
    able = [p for p in w.processes() if p.partition.state.role in CLAIMANT]
    if able and w.operator.random() < 0.15:
        w.cover.hit("claimant killed")
        if w.operator.random() < 0.3:
            crash_all(w)
        else:
            crash(w, able[0])
        looks -= LOOKS // 3
    if looks > 0:
        w.engine.at(LOOK_MS, claimants_die, w, looks - 1)
