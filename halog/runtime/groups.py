"""What operators change about a partition's group while it runs (Q2, Q3), and the end of what was to last a while.

Everything stands in the partition's znode and is changed by compare-and-set like everything there, so it cannot cross
an election: whoever claims the partition does it with the group of the very version he replaces. Nobody need be up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

import msgspec

from halog.core.group import LEVELS, why_not_designated, why_not_required
from halog.core.table import Group, PartitionTable
from halog.errors import ConfigError, HalogError, RefusedError, VersionError
from halog.ports import Coordinator, UnknownResult
from halog.runtime.copy import Copy

logger = logging.getLogger("halog.host")

ATTEMPTS = 20
"""A znode changes with each node that joins or leaves: somebody else is this often quicker in no real cluster."""

LOOK_S = 0.5
"""How often a node looks whether an override's time is over: they are given in minutes."""

Change = Callable[[PartitionTable], Group]


def set_priority(coordinator: Coordinator, partition: str, node: str, level: str) -> PartitionTable:
    """How much `node` is to be active: never, normal, high or highest (Q2). RefusedError if nobody could be active."""

    def change(table: PartitionTable) -> Group:
        if node not in table.configured:
            raise RefusedError(f"{node} is not in the group of {partition}: {', '.join(table.configured)}")
        levels = {**table.group.priorities, node: LEVELS[level]}
        if level == "never" and all(levels.get(n) == LEVELS["never"] for n in table.configured):
            raise RefusedError(f"{node} is the last node of {partition} that may be active; raise another one first")
        if level == "never" and table.group.designated == node:
            raise RefusedError(f"{node} is designated for {partition}; take that back first")
        return msgspec.structs.replace(table.group, priorities=levels)

    return change_group(coordinator, partition, change)


def require(
    coordinator: Coordinator, partition: str, nodes: int, *, until_ms: int = 0, reason: str = "", may_fork: bool = False
) -> PartitionTable:
    """So many nodes for commits and elections instead of the quorum (Q3); 0: the quorum again. RefusedError where two
    halves could go on without each other and `may_fork` does not confirm it."""

    def change(table: PartitionTable) -> Group:
        why_not = why_not_required(table, nodes, may_fork=may_fork)
        if why_not is not None:
            raise RefusedError(why_not, partition=partition)
        return _until(msgspec.structs.replace(table.group, required=nodes), until_ms, reason)

    return change_group(coordinator, partition, change)


def designate(
    coordinator: Coordinator, partition: str, node: str, *, until_ms: int = 0, reason: str = ""
) -> PartitionTable:
    """In a group of two: `node` may go on alone (Q3); "" takes it back."""

    def change(table: PartitionTable) -> Group:
        why_not = why_not_designated(table, node)
        if why_not is not None:
            raise RefusedError(why_not, partition=partition)
        return _until(msgspec.structs.replace(table.group, designated=node), until_ms, reason)

    return change_group(coordinator, partition, change)


def _until(group: Group, until_ms: int, reason: str) -> Group:
    """Both overrides of a group end together: an operator who gives a second one says until when anew."""
    if not group.required and not group.designated:
        until_ms, reason = 0, ""
    return msgspec.structs.replace(group, until_ms=until_ms, reason=reason)


def change_group(coordinator: Coordinator, partition: str, change: Change) -> PartitionTable:
    """Set what `change` makes of the table as it is now; returns the new table."""
    path = f"partitions/{partition}"
    for _ in range(ATTEMPTS):
        found = coordinator.get(path)
        if found is None:
            raise ConfigError(f"there is no partition {partition}; see `halog partition list`")
        table = PartitionTable.from_bytes(found.data)
        changed = msgspec.structs.replace(table, group=change(table))
        if changed == table:
            return table
        try:
            coordinator.set(path, changed.to_bytes(), found.version)
            return changed
        except VersionError:
            coordinator.sync(path)
        except UnknownResult:
            coordinator.sync(path)  # if it landed, the next turn finds nothing to change
    raise RefusedError(f"the table of {partition} changes too often to be changed; try again", partition=partition)


class Overrides:
    """Ends the overrides of the partitions hosted here when their time is over (by this machine's clock)."""

    def __init__(self, coordinator: Coordinator, copies: Callable[[], Collection[Copy]]) -> None:
        self._coordinator, self._copies = coordinator, copies

    def turn(self, closing: threading.Event) -> None:
        """One look at all of them."""
        if not closing.wait(LOOK_S):
            for copy in self._copies():
                if _over(copy.core.table.group):
                    self._end(copy.name)

    def _end(self, partition: str) -> None:
        def change(table: PartitionTable) -> Group:
            group = table.group
            return Group(priorities=group.priorities) if _over(group) else group  # else: another node was quicker

        try:
            change_group(self._coordinator, partition, change)
        except HalogError as e:
            logger.warning("the override of %s could not be ended: %s", partition, e)
            return
        logger.warning("the override of %s has ended: its time is over", partition)


def _over(group: Group) -> bool:
    return 0 < group.until_ms <= time.time_ns() // 1_000_000
