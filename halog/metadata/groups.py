"""This module makes the changes that operators make to a partition's group while it runs (Q2, Q3).

Everything stands in the partition's znode and is changed by compare-and-set like everything there. So it cannot cross
an election: whoever claims the partition does it with the group of the very version it replaces. Nobody need be up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from halog.core.ids import Member
from halog.core.table.group import LEVELS, why_not_designated, why_not_priority, why_not_required
from halog.core.table.holders import holders
from halog.core.table.table import Group, PartitionTable
from halog.errors import RefusedError
from halog.metadata.partition_tables import change_table
from halog.ports import Coordinator

Change = Callable[[PartitionTable], Group]
"""Returns what becomes of a table's group; RefusedError says why not."""


def priority_of(node: str, level: str) -> Change:
    """Return a change of how much `node` is to be active: never, normal, high or highest (Q2)."""

    def change(table: PartitionTable) -> Group:
        _refuse(table, why_not_priority(table, node, LEVELS[level]))
        return msgspec.structs.replace(table.group, priorities={**table.group.priorities, node: LEVELS[level]})

    return change


def required(nodes: int, *, until_ms: int = 0, reason: str = "", may_fork: bool = False) -> Change:
    """Return a change to so many nodes for commits and elections instead of the quorum (Q3). 0: the quorum again, and
    `reason` says why. Refused where two halves could go on without each other and `may_fork` does not confirm it."""

    def change(table: PartitionTable) -> Group:
        _refuse(table, why_not_required(table, nodes, may_fork=may_fork))
        if not nodes and not table.group.required:
            return table.group
        until = until_ms if nodes else 0
        return msgspec.structs.replace(table.group, required=nodes, required_until_ms=until, required_reason=reason)

    return change


def designated(node: str, *, until_ms: int = 0, reason: str = "") -> Change:
    """Return a change by which `node` may go on alone in a group of two (Q3). "" takes that back, and `reason` says
    why."""

    def change(table: PartitionTable) -> Group:
        _refuse(table, why_not_designated(table, node))
        if not node and not table.group.designated:
            return table.group
        until = until_ms if node else 0
        return msgspec.structs.replace(
            table.group, designated=node, designated_until_ms=until, designated_reason=reason
        )

    return change


def _refuse(table: PartitionTable, why_not: str | None) -> None:
    if why_not is not None:
        raise RefusedError(why_not, partition=table.name)


class UnloggedSurrender:
    """Gives up what only nodes that do not come back have in memory, so that others may be elected (E3). `up` has the
    nodes that are up, and their incarnations. Refused while one that may have it is among them. Asked again, it changes
    nothing where none of those it has given up is a holder any more."""

    def __init__(self, up: Mapping[str, int]) -> None:
        self._up = up
        self.given: frozenset[Member] = frozenset()
        """Whom it has given up, once it was asked, in the epoch of number `epoch`."""
        self.epoch = 0

    def __call__(self, table: PartitionTable) -> PartitionTable:
        wanted = holders(table)
        if self.given and not self.given & wanted:
            return table  # no answer had come, and perhaps somebody leads by now
        there = sorted(m.node for m in wanted if self._up.get(m.node) == m.incarnation)
        if not wanted:
            _refuse(table, f"{table.name} has nothing to give up: its log has all that was acknowledged")
        if there:
            _refuse(table, f"{', '.join(there)} may have what was acknowledged in {table.name}, and is up: wait for it")
        self.given = wanted
        self.epoch = table.epoch.number
        return msgspec.structs.replace(table, active=None, replicas=tuple(r.as_async for r in table.replicas))

    @property
    def names(self) -> list[str]:
        """Return the nodes it has given up."""
        return sorted(m.node for m in self.given)


def change_group(coordinator: Coordinator, partition: str, change: Change) -> PartitionTable:
    """Set what `change` makes of the group as it is now; return the new table."""
    return change_table(coordinator, partition, lambda table: msgspec.structs.replace(table, group=change(table)))
