"""Who may hold of a partition what its log lacks, as its table says (E2, E3)."""

from __future__ import annotations

from halog.core.ids import Member
from halog.core.table.table import SYNC, PartitionTable, Replica


def holders(table: PartitionTable) -> frozenset[Member]:
    """Each of them has every commit that was acknowledged under this version of the table, in memory or in its log.
    Empty: the log alone has them, since no replica was waited for."""
    if not table.sync_set:
        return frozenset()
    return table.sync_set | ({table.active} if table.active is not None else frozenset())


def are_gone(wanted: frozenset[Member], alive: frozenset[Member]) -> bool:
    """Has the node of each of them started anew, so that its memory cannot come back?"""
    return all(any(m.node == w.node and m != w for m in alive) for w in wanted)


def with_holders(replicas: tuple[Replica, ...], table: PartitionTable, claimant: Member) -> tuple[Replica, ...]:
    """The node list of a claim: until the new epoch opens, its sync set is whoever holds what the log may lack, the
    dead included; if the claimant dies before, one of them is needed."""
    wanted = {m for m in holders(table) if m.node != claimant.node}
    if not wanted:
        return replicas
    kept = [Replica(r.node, r.incarnation, SYNC) if r.member in wanted else r.as_async for r in replicas]
    there = {r.member for r in kept}
    return (*kept, *(Replica(m.node, m.incarnation, SYNC) for m in sorted(wanted - there)))
