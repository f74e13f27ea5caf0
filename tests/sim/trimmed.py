"""Banks whose logs are trimmed behind snapshots (trace 32): who starts with an empty disk, or with one that ends where
the log no longer begins, starts from the newest snapshot and reads on behind it.

A snapshot is what the active's disk holds when it has written everything, its ledger in the rows of the state topic
(`halog.runtime.topics.ledger_rows`). The log is kept from the oldest offset that `Snapshots` would keep it from: what
is in doubt, or not confirmed by all. Only in some histories: the others are replayed as they were.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.roles import Role
from halog.runtime.topics import ledger_rows
from tests.sim import process_faults
from tests.sim.store import Disk, Objects

if TYPE_CHECKING:
    from tests.sim.bank_world import Bank
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range((1 << 21) + 4, 3 << 20, 5)
"""Of those of banks."""
LOOK_MS = 15.0


class Snapshot(NamedTuple):
    """As the state topic holds it."""

    objects: Objects
    chain: ChainState
    next_offset: int
    happened: Sequence[tuple[bytes, int]]
    forgotten: bytes
    rows: Sequence[bytes]
    horizon: bytes
    mapping: int
    first: int
    """Where the log begins from now on."""

    def restore(self, disk: Disk) -> None:
        """Instead of what it holds."""
        lsn = self.chain.lsn
        topic = {key: row for key, row, _ in ledger_rows.keyed(lsn, self.rows)}
        ledger = ledger_rows.restored(topic, lsn, len(self.rows), self.horizon, self.mapping)
        disk.wipe()
        disk.objects, disk.chain, disk.next_offset = dict(self.objects), self.chain, self.next_offset
        disk.outcomes = Outcomes(self.happened, self.forgotten, disk.outcomes.keep)
        disk.undecided, disk.decided = ledger.undecided, ledger.decided
        disk.horizon, disk.mapping = ledger.horizon, ledger.mapping


def given(seed: int) -> bool:
    """Is it such a bank?"""
    return seed in SEEDS


def prepare(bank: Bank, length: float) -> None:
    """Take one now and then, until the faults end."""
    rng = random.Random(f"{bank.seed}/trimmed")
    for world in bank.worlds.values():
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def _look(bank: Bank, world: World, rng: random.Random, length: float) -> None:
    p = world.active()
    if p is not None and not p.paused and p.partition.state.role is Role.ACTIVE:
        in_doubt = bool(p.copy.ledger.undecided)
        if rng.random() < (0.3 if in_doubt else 0.1):
            take(world, p)
            if in_doubt:
                _emptied(world, p, rng)
    if bank.engine.now + LOOK_MS < length:
        bank.engine.at(LOOK_MS, _look, bank, world, rng, length)


def _emptied(world: World, active: Process, rng: random.Random) -> None:
    """A node comes back with nothing, before or after what is in doubt is decided."""
    others = [q.name for q in world.processes() if q is not active]
    if others:
        name = rng.choice(others)
        world.crash(name)
        world.engine.at(rng.uniform(1.0, 100.0), process_faults.restart, world, name, True)


def take(world: World, p: Process) -> None:
    """Of what the active `p` has; the log is trimmed behind it."""
    p.copy.flush()
    disk, ledger = p.node.disk, p.node.disk.ledger
    first = max(_first(p, ledger), 0 if world.snapshot is None else world.snapshot.first)
    world.snapshot = Snapshot(
        dict(disk.objects),
        disk.chain,
        disk.next_offset,
        disk.outcomes.items(),
        disk.outcomes.horizon,
        ledger_rows.rows(ledger),
        ledger.horizon,
        ledger.mapping,
        first,
    )


def _first(p: Process, ledger: Ledger) -> int:
    """The oldest record that somebody may need beside the snapshot."""
    assert p.partition.leading is not None
    unconfirmed = p.partition.leading.votes.unconfirmed
    open_ = [u.offset for u in ledger.undecided.values()]
    open_ += [d.offset for tx, d in ledger.decided.items() if tx in unconfirmed]
    return min([p.node.disk.next_offset, *open_])


def started(world: World, disk: Disk) -> None:
    """A node starts: what it has on its disk may end before the log begins."""
    found = world.snapshot
    if found is not None and disk.next_offset < found.first:
        assert world.bank is not None
        world.bank.cover.hit("snapshot with somebody in doubt" if found.first < found.next_offset else "snapshot")
        found.restore(disk)
