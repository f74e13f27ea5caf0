"""Outcomes that come behind the horizon (trace 30), in a bank that forgets early: now and then the active appends one
again whose id has expired, as a writer does that recovers what an older one held (E5).

No writer of halog appends it, so no fault brings it about; every reader must pass over it all the same (T2). Only in
some histories, drawn from chances of their own: the others are replayed as they were.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.records import Outcome
from halog.core.roles import Role
from halog.core.writer import NOBODY
from tests.sim.twin import history

if TYPE_CHECKING:
    from tests.sim.bank import Bank
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range((1 << 21) + 2, 3 << 20, 5)
"""Banks; those of them that remember few decisions."""
LOOK_MS = 60.0


def given(bank: Bank) -> bool:
    """Does somebody append them in this history?"""
    return bank.seed in SEEDS and bank.keep < 10


def prepare(bank: Bank, length: float) -> None:
    """Look now and then, until the faults end."""
    rng = random.Random(f"{bank.seed}/belated")
    for world in bank.worlds.values():
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def _look(bank: Bank, world: World, rng: random.Random, length: float) -> None:
    p = world.active()
    if p is not None and not p.paused and p.partition.role is Role.ACTIVE:
        ledger = p.partition.ledger
        outcomes = [a.record for a in history(world.log.entries) if isinstance(a.record, Outcome)]
        expired = [r.header.tx for r in outcomes if ledger.expired(r.header.tx)]
        if expired:
            bank.cover.hit("outcome behind the horizon")
            reappend(p, rng.choice(expired))
    if bank.engine.now + LOOK_MS < length:
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def reappend(p: Process, tx: bytes) -> None:
    """The active `p` appends an abort of `tx`, which has expired, as its own."""
    assert p.partition.leading is not None
    out: list[ev.Effect] = []
    p.partition.leading.votes._decide(tx, NOBODY, p.clock(), out, commit=False)
    for effect in out:
        p._perform(effect)
