"""This module has the group behind a partition: its configured nodes, how many of them a commit and an election need,
and who is preferred (R7, Q2, Q3). It is arithmetic only.

The group is never smaller than what is configured: a node list that shrinks (R4, P10) makes no quorum smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from halog.core.table.preference import HIGHEST, NEVER, NORMAL
from halog.core.table.table import Group, PartitionTable

LEVELS = {"never": NEVER, "normal": NORMAL, "high": NORMAL + 1, "highest": HIGHEST}
"""Priorities by name."""


def majority(nodes: int) -> int:
    """Return the quorum of a group of so many nodes (R7)."""
    return nodes // 2 + 1


def needed(table: PartitionTable, active: str) -> int:
    """Return how many nodes, `active` included, must have a commit of `active`, or answer when it is a candidate."""
    if table.group.designated and table.group.designated == active:
        return 1
    return table.group.required or table.quorum or 1


def ends(group: Group) -> tuple[int, ...]:
    """Return when the group's overrides end by themselves, in ms since 1970."""
    return tuple(until for until in (group.required_until_ms, group.designated_until_ms) if until)


def without(group: Group, over: Collection[int]) -> Group:
    """Return the group without the overrides that end at these times."""
    if group.required_until_ms and group.required_until_ms in over:
        group = msgspec.structs.replace(group, required=0, required_until_ms=0, required_reason="")
    if group.designated_until_ms and group.designated_until_ms in over:
        group = msgspec.structs.replace(group, designated="", designated_until_ms=0, designated_reason="")
    return group


def as_of(table: PartitionTable, wall_ms: int) -> PartitionTable:
    """Return the table as it counts at this time, in ms since 1970. It is for processes that have a znode and no copy
    (`quorum_overrides.py`)."""
    over = [until for until in ends(table.group) if until <= wall_ms]
    return msgspec.structs.replace(table, group=without(table.group, over)) if over else table


def priority(table: PartitionTable, node: str) -> int:
    """Return the node's priority now (Q2)."""
    return table.group.priorities.get(node, NORMAL)


def counts(table: PartitionTable, node: str) -> bool:
    """Say whether this node's acknowledgement counts for a quorum. One that can never be active might hold the only
    copy."""
    return node in table.configured and (table.count_never or priority(table, node) != NEVER)


def rank(table: PartitionTable, node: str) -> tuple[int, int]:
    """Return the node's rank for the active role among nodes that hold the same; the lowest is first (Q2)."""
    placed = table.configured
    return -priority(table, node), placed.index(node) if node in placed else len(placed)


def could_fork(table: PartitionTable, required: int) -> bool:
    """Say whether two halves could go on without each other with so many nodes required (F6). 0 stands for the
    quorum."""
    return 0 < 2 * required <= len(table.configured)


def forks(table: PartitionTable, required: int) -> str:
    """Return a warning that two halves could go on without each other; empty: they could not."""
    if not could_fork(table, required):
        return ""
    of = f"{required} of {len(table.configured)} nodes"
    return f"with {of} required both halves of {table.name} could go on without each other"


def why_not_required(table: PartitionTable, nodes: int, *, may_fork: bool) -> str | None:
    """Return what speaks against so many nodes instead of the quorum (Q3, F6), or None. 0 takes an override back."""
    size = len(table.configured)
    if not 0 <= nodes <= size:
        return f"{table.name} has {size} nodes: the required number must be from 1 to {size} (0: the quorum again)"
    if (forked := forks(table, nodes)) and not may_fork:
        return f"{forked}; confirm with --may-fork, or in a group of two designate one node"
    if nodes > len(counted(table)):
        return (
            f"only {', '.join(counted(table))} of {table.name} count: with {nodes} required nothing could be committed"
        )
    return None


def counted(table: PartitionTable) -> list[str]:
    """Return the nodes that count for a quorum, as active or by their acknowledgements."""
    return [n for n in table.configured if counts(table, n)]


def why_not_priority(table: PartitionTable, node: str, level: int) -> str | None:
    """Return what speaks against this priority of `node` (Q2), or None."""
    group, members = table.group, table.hosts
    if node not in members:
        return f"{node} is not in the group of {table.name}: {', '.join(members)}"
    if level != NEVER:
        return None
    after = msgspec.structs.replace(
        table, group=msgspec.structs.replace(group, priorities={**group.priorities, node: level})
    )
    groups = [table.configured] + ([] if table.target is None else [table.target.nodes])
    if any(all(priority(after, n) == NEVER for n in nodes) for nodes in groups):
        return f"{node} is the last node of {table.name} that may be active; raise another one first"
    if group.designated == node:
        return f"{node} is designated for {table.name}; take that back first"
    need = group.required or table.quorum
    if len(counted(after)) < need:
        left = ", ".join(counted(after))
        return f"without {node} only {left} of {table.name} would count, {need} are needed: nothing could be committed"
    return None if table.target is None else why_no_quorum(after, table.target.nodes)


def why_no_quorum(table: PartitionTable, nodes: Sequence[str]) -> str | None:
    """Return why these nodes, once they are the group, could commit nothing (R7); None: they could."""
    able = [n for n in nodes if table.count_never or priority(table, n) != NEVER]
    if not table.quorum or len(able) >= majority(len(nodes)):
        return None
    count, need = ", ".join(able) or "none", majority(len(nodes))
    group = ", ".join(nodes)
    return f"only {count} of {group} would count for {table.name}, {need} are needed: nothing could be committed"


def why_not_designated(table: PartitionTable, node: str) -> str | None:
    """Return what speaks against letting this node go on alone (Q3), or None. An empty name takes it back."""
    if not node:
        return None
    if len(table.configured) != 2:
        return f"{table.name} has {len(table.configured)} nodes: only in a group of two may one go on alone"
    if node not in table.configured:
        return f"{node} is not in the group of {table.name}: {', '.join(table.configured)}"
    if priority(table, node) == NEVER:
        return f"{node} has priority never: it cannot be active for {table.name}"
    other = table.group.designated
    if other and other != node:
        return f"{other} is designated for {table.name}: it may be going on alone; take that back first"
    return None
