"""What must hold of transactions that ask for less than their policy, or for more (R6, decision 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core.durability import Durability
from halog.core.ids import Member
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.checks import Checks
    from tests.sim.client import Request, Transaction
    from tests.sim.node import Process

EARLY = Durability(local="NO_SYNC")


def told_early(checks: Checks, p: Process, request: Request, lsn: int) -> None:
    """It asked for that, all before it that the log lacks did too, and whoever is waited for holds it."""
    leading, tx = p.partition.leading, request.tx
    assert leading is not None
    durability = tx.durability
    demand(durability is not None and durability.early, f"R6: {tx.name} was answered before the log had lsn {lsn}")
    asked = {t.id: t for t in checks.world.transactions()}
    before = [item for item in leading.writer.queue if item.lsn <= lsn]
    for item in before:
        first = asked[item.tx].durability if item.tx in asked else EARLY  # a barrier's changes nothing
        demand(first is not None and first.early, f"R6: lsn {lsn} was answered before {item.lsn}, which waits")
    again = lsn in tx.told_early  # a replica may have gone since: what was answered is answered
    tx.told_early.add(lsn)
    checks.world.cover.hit("answered before the log, as asked")
    if not request.asked and not again and leading.epoch == checks.epoch:
        demand(bool(checks.sync_set), f"R6: lsn {lsn} was acknowledged by {p.name}: nobody else has it, nor the log")
        checks.is_held(p, lsn, before[-1].digest)


def told_flushed(checks: Checks, p: Process, request: Request, lsn: int) -> None:
    """So many replicas had it on their disks as it asked for."""
    durability = request.tx.durability
    if request.asked or durability is None or not durability.flushed:
        return
    have = {m.node for m, upto in checks.flushed.items() if upto >= lsn and m.node != p.name}
    demand(
        len(have) >= _wanted(checks, durability.flushed),
        f"R6: lsn {lsn} was acknowledged by {p.name}: of {durability.flushed} disks {sorted(have)} have it",
    )
    checks.flush_told[lsn] = max(durability.flushed, checks.flush_told.get(lsn, 0))
    checks.world.cover.hit("flushed as asked")


def still_flushed(checks: Checks, gone: Member) -> None:
    """A copy was dropped: what was said to be on so many disks is on as many others, the active node's included. Where
    an operator wishes fewer it is on fewer from now on, though he may wish for more again."""
    for lsn, replicas in checks.flush_told.items():
        have = {m.node for m, upto in checks.flushed.items() if upto >= lsn}
        checks.flush_told[lsn] = wanted = _wanted(checks, replicas)
        demand(
            len(have) >= wanted, f"R6: {gone.node} dropped its copy; lsn {lsn} is on the disks of {sorted(have)} only"
        )


def _wanted(checks: Checks, replicas: int) -> int:
    """So many as were asked for; or as the partition has when it is where an operator wishes it."""
    table = checks.world.coordinator.table
    return min(replicas, table.sync_replicas, *([] if table.target is None else [table.target.sync_replicas]))


def told_the_truth(checks: Checks, tx: Transaction, lsn: int | None) -> None:
    """Answered early it may be lost, or be tried again; nobody says otherwise of it than the log."""
    if lsn is None:
        demand(tx.happened is None or tx.happened in tx.told_early, f"P1: {tx.name} was acknowledged at {tx.happened}")
        checks.world.cover.hit("answered early and lost")
    elif tx.happened is None:
        demand(not tx.denied, f"P5: {tx.name} was said not to have happened ({tx.denied}); it is lsn {lsn}")
    else:
        demand(tx.happened in {lsn, *tx.told_early}, f"P1: {tx.name} was acknowledged at {tx.happened}, it is {lsn}")
