"""Banks that forget at once (T6), and outcomes that come behind the horizon in them (trace 30): now and then the active
appends one again whose id has expired, as a writer does that recovers what an older one held (E5). Whoever was said to
have a decision, and has it not, is found out there: it asks too late (trace 28).

No writer of halog appends it, so no fault brings it about; every reader must pass over it all the same (T2). Only in
some histories, drawn from chances of their own: the others are replayed as they were.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from halog.core import effects as fx
from halog.core.commit.writer import NOBODY
from halog.core.log.records import Outcome
from halog.core.roles import Role
from tests.sim.twin import history

if TYPE_CHECKING:
    from tests.sim.bank_world import Bank
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range((1 << 21) + 2, 3 << 20, 5)
"""Of those of banks."""
KEEP = 1
"""Decisions remembered: what is confirmed is forgotten before anybody in doubt asks."""
LOOK_MS = 60.0


def given(seed: int) -> bool:
    """Is it such a bank?"""
    return seed in SEEDS


def prepare(bank: Bank, length: float) -> None:
    """Look now and then, until the faults end."""
    rng = random.Random(f"{bank.seed}/belated")
    for world in bank.worlds.values():
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def _look(bank: Bank, world: World, rng: random.Random, length: float) -> None:
    p = world.active()
    if p is not None and not p.paused and p.partition.state.role is Role.ACTIVE:
        assert p.partition.leading is not None
        ledger, flying = p.partition.state.ledger, p.partition.leading.votes.deciding
        ids = [a.record.header.tx for a in history(world.log.entries) if isinstance(a.record, Outcome)]
        expired = [tx for tx in ids if ledger.expired(tx) and tx not in flying]
        if expired:
            bank.cover.hit("outcome behind the horizon")
            reappend(p, rng.choice(expired))
    if bank.engine.now + LOOK_MS < length:
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def reappend(p: Process, tx: bytes) -> None:
    """The active `p` appends an abort of `tx`, which has expired, as its own."""
    leading = p.partition.leading
    assert leading is not None
    out: list[fx.Effect] = []
    leading.votes._decide(tx, NOBODY, p.clock(), out, commit=False)
    p.partition.state.tag = leading.writer.tag
    for effect in out:
        p._perform(effect)
