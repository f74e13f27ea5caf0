"""This module has what nodes say of a partition (P7): they define where it is to be, enable that, and disable it for
themselves.

All of it stands in the partition's table, so every node sees it, and one compare-and-set decides. A definition belongs
to one node and changes nothing. Once enabled it becomes the target of an ordinary migration
(`halog.core.table.migration`), or the first placement of a partition that had none. Only the next run of its own node
removes it: a partition that the application places asks each run of a node to define and enable it again (P8). A
definition that was not enabled ends with its run everywhere. A disable outlasts every run, until the node enables the
partition.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from halog.core.results import Refusal, Result
from halog.core.table.migration import no_list
from halog.core.table.table import DEFINED, DISABLED, ENABLED, PartitionDefinition, PartitionTable, Target
from halog.core.tolerant import carrying


class Status(enum.Enum):
    """A `Status` says how a node has a partition (P8)."""

    LOCAL_DEFINED = "LocalDefined"
    LOCAL_ENABLED = "LocalEnabled"
    LOCAL_DISABLED = "LocalDisabled"
    REMOTE_DEFINED = "RemoteDefined"
    REMOTE_ENABLED = "RemoteEnabled"
    UNDEFINED = "Undefined"
    """The configuration names the partition, and no node has defined it yet."""


IN_USE = frozenset({Status.LOCAL_ENABLED, Status.REMOTE_ENABLED})
"""The statuses on a node that has the partition defined and enabled."""

_LOCAL = {DEFINED: Status.LOCAL_DEFINED, ENABLED: Status.LOCAL_ENABLED, DISABLED: Status.LOCAL_DISABLED}


def status(table: PartitionTable, node: str) -> Status:
    """Return the partition's status on `node`. A partition that the configuration places is defined and enabled by it,
    everywhere."""
    own = table.definitions.get(node)
    if own is not None:
        return _LOCAL[own.said]
    if table.admitted is None:
        return Status.LOCAL_ENABLED
    if node in table.admitted or any(d.said == ENABLED for d in table.definitions.values()):
        return Status.REMOTE_ENABLED
    return Status.REMOTE_DEFINED if table.configured or table.definitions else Status.UNDEFINED


def listed(table: PartitionTable) -> tuple[str, ...]:
    """Return the cluster's node list: where the partition is to be, in priority order."""
    return table.configured if table.target is None else table.target.nodes


# --- define ---


def why_not_define(table: PartitionTable, node: str, target: Target) -> str | None:
    """Return what speaks against this definition by `node`, or None."""
    return no_list(table.name, target) or not_as_listed(table, node, target)


def not_as_listed(table: PartitionTable, node: str, target: Target) -> str | None:
    """Return why a definition by `node` as a foreign partition contradicts the cluster's node list (P10); None: it does
    not."""
    if node not in target.nodes and listed(table) and target.nodes != listed(table):
        return (
            f"{node} defines {table.name} as a foreign partition on {', '.join(target.nodes)}, and the cluster has it "
            f"on {', '.join(listed(table))}: define it as the cluster has it"
        )
    return None


def defined(table: PartitionTable, node: str, target: Target) -> PartitionTable:
    """Return the table with that definition, which is not in effect yet. Where the node has disabled the partition it
    stays disabled: only `enabled` puts the new definition in place of that."""
    own = table.definitions.get(node)
    said = DISABLED if own is not None and own.said == DISABLED else DEFINED
    return _said(table, node, carrying(PartitionDefinition(target.nodes, target.sync_replicas, said), own))


def _said(table: PartitionTable, node: str, definition: PartitionDefinition) -> PartitionTable:
    return msgspec.structs.replace(table, definitions={**table.definitions, node: definition})


# --- enable ---


def why_not_enable(table: PartitionTable, node: str) -> str | None:
    """Return what speaks against enabling the partition on `node`, or None."""
    if node not in table.definitions and table.admitted is not None:
        return f"{node} has not defined {table.name} in this run: define it first"
    return None


def enabled(table: PartitionTable, node: str, up: Collection[str]) -> tuple[PartitionTable, Target | None]:
    """Return the table with the definition of `node` in effect, and the partition's new target.

    The target is None if the partition is there, or goes there already, or if `node` is none of its nodes. `up`: the
    nodes that hear of it now.
    """
    own = table.definitions.get(node)
    if own is None:
        return table, None
    if own.said == DISABLED and node not in own.nodes:  # it came back to its foreign definition
        own = msgspec.structs.replace(own, nodes=listed(table))
    after = _said(table, node, msgspec.structs.replace(own, said=ENABLED))
    if node not in own.nodes:
        return after, None
    after = admitting(after, own.nodes, up)
    now = table.target or Target(table.configured, table.sync_replicas)
    return after, None if now == own.target else own.target


def admitting(table: PartitionTable, nodes: Collection[str], up: Collection[str]) -> PartitionTable:
    """Return the table with those of these nodes that are up admitted as hosts, in their present run."""
    if table.admitted is None:
        return table
    able = {*table.admitted, *(n for n in nodes if n in up)}
    return msgspec.structs.replace(table, admitted=tuple(sorted(able & {*table.hosts, *table.node_list, *nodes})))


# --- disable ---


def why_not_disable(table: PartitionTable, node: str) -> str | None:
    """Return what speaks against disabling the partition on `node`, or None."""
    if status(table, node) in (Status.UNDEFINED, Status.REMOTE_DEFINED):
        return f"{table.name} is not enabled on {node}: there is nothing to disable"
    return None


def disabled(table: PartitionTable, node: str) -> tuple[PartitionTable, Target | None]:
    """Return the table with the partition disabled on `node`, and the partition's new target.

    The target is None if `node` is none of its nodes, or the only one. The definition is kept as it was, to be enabled
    again.
    """
    now = table.target or Target(table.configured, table.sync_replicas)
    own = table.definitions.get(node)
    was = carrying(PartitionDefinition(now.nodes, now.sync_replicas, DISABLED), own)
    after = _said(table, node, own if own is not None and own.said == DISABLED else was)
    nodes = tuple(n for n in now.nodes if n != node)
    if node not in now.nodes or not nodes:
        return after, None
    return after, Target(nodes, min(now.sync_replicas, len(nodes) - 1))


def shut(table: PartitionTable) -> Result | None:
    """Return the answer to a new commit where the partition is disabled on its only node; None: it is not."""
    if not table.shut:
        return None
    return Refusal(
        f"{table.name} is disabled on {table.configured[0]}, the only node it has: it can be read, and takes nothing "
        "new; enable it there, or move it"
    )


def why_nobody_is_left(table: PartitionTable, node: str, target: Target, up: Collection[str]) -> str | None:
    """Return what speaks against leaving the partition to `target`, where `node` is disabled; None: a node will host
    it.

    It speaks against it that the nodes that are up have not enabled the partition since they were started: none of them
    would host it. `up`: the nodes that run.
    """
    able = [n for n in target.nodes if n in up]
    if table.admitted is None or not able or any(n in table.admitted for n in able):
        return None
    return (
        f"{', '.join(able)} would have {table.name} without {node}, and has not enabled it since it was started: "
        "define and enable it there first"
    )


# --- a node's next run ---


def forgotten(table: PartitionTable, node: str) -> PartitionTable:
    """Return the table at the start of a new run of `node`.

    If the application places the partition, the node must define and enable it again (P8). A definition that was not
    enabled is forgotten everywhere. A disable stays. If the node is the only one, it goes on hosting what can only be
    read.
    """
    own = table.definitions.get(node)
    ended = own is not None and (own.said == DEFINED or (own.said == ENABLED and table.admitted is not None))
    stays = table.admitted is None or node not in table.admitted or table.shut
    if stays and not ended:
        return table
    return msgspec.structs.replace(
        table,
        admitted=table.admitted if stays else tuple(n for n in table.admitted or () if n != node),
        definitions={n: d for n, d in table.definitions.items() if n != node or not ended},
    )


class DifferingLists(NamedTuple):
    """A `DifferingLists` is two node lists of one partition: one that `node` has defined and not put into effect, and
    the cluster's (P10)."""

    partition: str
    node: str
    defined: tuple[str, ...]
    listed: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.node} has defined {self.partition} on {', '.join(self.defined)} and not enabled it, and the "
            f"cluster has it on {', '.join(self.listed)}: enable it on {self.node}, or define it there as the "
            "cluster has it"
        )


def differing(table: PartitionTable, running: Collection[str]) -> list[DifferingLists]:
    """Return the definitions that are not in effect and differ from the cluster's node list (P10).

    Such a partition is not rebalanced before somebody has decided. `running`: nodes that could decide; what another
    node said ends with its run.
    """
    ours = listed(table)
    return [
        DifferingLists(table.name, node, d.nodes, ours)
        for node, d in table.definitions.items()
        if d.said == DEFINED and node in running and ours and d.nodes != ours
    ]
