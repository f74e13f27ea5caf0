"""This module says which members may hold commits of a partition that its log lacks, as its table says (E2, E3)."""

from __future__ import annotations

import msgspec

from halog.core.ids import Member
from halog.core.table.table import SYNC, PartitionTable, Replica


def holders(table: PartitionTable) -> frozenset[Member]:
    """Return the members that have every commit acknowledged under this version of the table, in memory or in their
    log. Empty: no replica was waited for, so only the log has them."""
    if not table.sync_set:
        return frozenset()
    return table.sync_set | ({table.active} if table.active is not None else frozenset())


def are_gone(wanted: frozenset[Member], alive: frozenset[Member]) -> bool:
    """Say whether the node of each of them has started anew, so that its memory cannot come back."""
    return all(any(m.node == w.node and m != w for m in alive) for w in wanted)


def with_holders(replicas: tuple[Replica, ...], table: PartitionTable, claimant: Member) -> tuple[Replica, ...]:
    """Return the node list of a claim.

    Until the new epoch opens, its sync set is every member that holds what the log may lack, the dead included. If the
    claimant dies before, one of them is needed.
    """
    wanted = {m for m in holders(table) if m.node != claimant.node}
    if not wanted:
        return replicas
    kept = [msgspec.structs.replace(r, kind=SYNC) if r.member in wanted else r.as_async for r in replicas]
    there = {r.member for r in kept}
    return (*kept, *(Replica(m.node, m.incarnation, SYNC) for m in sorted(wanted - there)))
