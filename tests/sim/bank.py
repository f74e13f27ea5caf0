"""Histories over several partitions (D4, D5): a bank whose accounts are spread, with transfers and audits.

Each partition is a world of its own (`World`), with its own nodes, log, coordinator and faults; all share one clock.
Tellers transfer within a partition or over several, by the protocol an initiator follows (T1, T2), and die at any step
of it; auditors read everything. What a partition asks of another travels like any request, late, lost or to a zombie.
They are histories of their own, from 2^21 on; from 3 * 2^20 on those of a shop (`tests.sim.shop`), from 5 * 2^20 on
those of a market (`tests.sim.market`), and from 10 * 2^20 on those of tellers that say that they live
(`tests.sim.patient`).
"""

from __future__ import annotations

import random

from tests.sim import belated, trimmed
from tests.sim.bank_world import Bank
from tests.sim.faults import FAULTS
from tests.sim.teller import Teller

SEEDS = range(1 << 21, 3 << 20)
SHOP_SEEDS = range(3 << 20, 1 << 22)
MARKET_SEEDS = range(5 << 20, 6 << 20)


def make(seed: int, *, verbose: bool = False, teller: type[Teller] | None = None) -> Bank:
    """A bank of this seed: how many partitions and nodes, which faults, how unkind; and what tellers it has."""
    bank = Bank(seed, verbose=verbose)
    chance = random.Random(seed * 104_729 + 5)
    length = chance.uniform(250.0, 900.0)
    for world in bank.worlds.values():
        for name in world.nodes:
            bank.engine.at(chance.choice((0.0, 0.0, 200.0)) * chance.random(), world.start, name)
        kinds = chance.sample(FAULTS, chance.randint(1, 4))
        for _ in range(chance.randint(0, 4)):
            bank.engine.at(80.0 + chance.random() * (length - 80.0), chance.choice(kinds), world)
    bank.tellers = [(teller or Teller)(bank, f"teller{i}", quota=12) for i in range(chance.choice((1, 2, 4)))]
    for one in bank.tellers:
        bank.engine.at(30.0 + 60.0 * chance.random(), one.begin)
    if belated.given(seed):
        belated.prepare(bank, length)
    if trimmed.given(seed):
        trimmed.prepare(bank, length)
    bank.engine.at(length, bank.heal)
    bank.length = length
    return bank
