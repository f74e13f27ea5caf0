"""Moves a partition as an operator asks (P12): the request is checked, set by compare-and-set, and watched.

The nodes do the rest by themselves, whether or not the caller still waits (`halog.core.table.migration`). If none of a
partition's nodes is running, nobody could move it: then it is placed anew at once, and comes back from the log (P1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from halog.config import Config
from halog.config.multi_site import check_nodes, elsewhere
from halog.core.table.definitions import admitting
from halog.core.table.migration import assigned, left, moving, paced, why_not, why_not_assigned
from halog.core.table.table import PartitionTable, Target
from halog.errors import DeadlineError, RefusedError
from halog.metadata.drains import unmark_behind
from halog.metadata.partition_tables import TableReport, change_table
from halog.ports import Coordinator
from halog.runtime.placement.initial_placement import going_to_be
from halog.runtime.rpc.router import Router

LOOK_S = 0.1
"""A caller who waits looks for progress this often: a step takes some ms, copying as long as the data needs."""


def migrate(
    coordinator: Coordinator,
    config: Config,
    up: Collection[str],
    partition: str,
    nodes: Sequence[str],
    sync_replicas: int | None = None,
    *,
    told: TableReport,
    replace: bool = False,
    copy_rate: int | None = None,
) -> tuple[PartitionTable, Target]:
    """Have `partition` move to `nodes`, the preferred one first (P12). `up`: the registered nodes. Without
    `sync_replicas` it has as many as now, if there are enough nodes. `copy_rate`: bytes a second that a node reads for
    a copy no redundancy waits for, 0 for no limit; without it the policy's. If the same move is asked for with another
    rate, a migration under way goes on with that rate. A drained node that gets a copy by the move does not count as
    drained any more. `told` writes the request into the event history: nodes tell only its end. Returns the table as
    set, and the target.

    RefusedError names what speaks against it, ConfigError a partition that does not exist; then nothing was changed.
    DrainMarkError if the node still counts as drained: the partition moves nevertheless.
    """

    check_nodes(config, nodes)
    new: set[str] = set()

    def change(table: PartitionTable) -> PartitionTable:
        target = target_of(table, nodes, sync_replicas)
        new.update(brought(table, nodes))
        after = going(config, table, target, up, replace=replace, stood=table, copy_rate=copy_rate)
        return table if after is table else admitting(after, nodes, up)

    table = change_table(coordinator, partition, change, told)
    unmark_behind(coordinator, partition, new)  # done last: a refusal must change nothing
    return table, target_of(table, nodes, sync_replicas)


def brought(table: PartitionTable, nodes: Sequence[str]) -> list[str]:
    """Return those of `nodes` that get a copy if the partition goes there; a node that is about to get one is
    included."""
    return [n for n in nodes if n not in table.configured or n not in going_to_be(table)]


def going(
    config: Config,
    table: PartitionTable,
    target: Target,
    up: Collection[str],
    *,
    replace: bool,
    stood: PartitionTable,
    copy_rate: int | None = None,
) -> PartitionTable:
    """Return `table` with this move. It is placed at once if no host is up that could move it, or if another site
    serves it: then the log has everything. `stood`: the table as the coordinator has it, which says who hosts it now;
    the request itself does not change that. RefusedError."""
    refuse(table, why_not_nodes(config, table, target.nodes) or _why_nobody(target.nodes, up))
    refuse(table, why_not(table, target, replace=replace))
    policy = config.policies[table.policy]
    if table.owner:
        return msgspec.structs.replace(assigned(table, target), target=None)
    if any(n in up for n in stood.present):
        if copy_rate is not None and table.target == target:
            return paced(table, copy_rate)
        return moving(table, target, policy.copy_bytes_per_s if copy_rate is None else copy_rate)
    refuse(table, why_not_assigned(stood, unlogged=policy.unlogged))
    return assigned(table, target)


def target_of(table: PartitionTable, nodes: Sequence[str], sync_replicas: int | None) -> Target:
    """Return the placement that is asked for; without `sync_replicas` it has as many as now, if there are enough
    nodes."""
    now = table.sync_replicas if table.target is None else table.target.sync_replicas
    return Target(tuple(nodes), max(0, min(now, len(nodes) - 1)) if sync_replicas is None else sync_replicas)


def refuse(table: PartitionTable, reason: str | None) -> None:
    """Raise RefusedError if there is a reason."""
    if reason is not None:
        raise RefusedError(reason, partition=table.name)


def why_not_nodes(config: Config, table: PartitionTable, nodes: Sequence[str]) -> str | None:
    """Name a node that does not exist or may not host this partition; None if all exist and may."""
    policy = config.policies.get(table.policy)
    if policy is None:
        return f"{config.source} knows no policy {table.policy}: use the configuration the cluster runs with"
    zone, named = config.hosts_of(table.policy), " or ".join(policy.spans)
    for node in nodes:
        if away := elsewhere(config, node):
            return f"{away}: it can have copies only there"
        if node not in zone:
            return (
                f"{node} is not in zone {named} of policy {table.policy} ({', '.join(zone)}): "
                "it may not host its partitions"
            )
    return None


def _why_nobody(nodes: Sequence[str], up: Collection[str]) -> str | None:
    if not nodes or any(n in up for n in nodes):
        return None
    return f"none of {', '.join(nodes)} is running: start one of them first"


def wait_until_there(
    router: Router,
    wished: PartitionTable,
    target: Target,
    timeout_s: float,
    progress: Callable[[tuple[str, ...]], None] = lambda left: None,
) -> PartitionTable:
    """Wait until a partition is where it is to be; `wished` and `target` as `migrate` returned them. At each look
    `progress` is told what is left.

    RefusedError if somebody asked for another move meanwhile. DeadlineError (exit code 6) after `timeout_s` seconds:
    the move goes on by itself.
    """
    until, name = time.monotonic() + timeout_s, wished.name
    while True:
        known = router.tables.get(name)
        table = wished if known is None or known[1].config_version < wished.config_version else known[1]
        if table.config_version > wished.config_version:
            where = table.configured if table.target is None else table.target.nodes
            raise RefusedError(
                f"{name} goes to {', '.join(where)} instead: somebody asked for that meanwhile", partition=name
            )
        if is_there(table, target):
            return table
        progress(left(table))
        if time.monotonic() >= until:
            raise DeadlineError(
                f"{name} is not yet on {', '.join(target.nodes)} after {timeout_s:g} s: "
                f"{', '.join(left(table)) or 'no node is active for it'}; it goes on by itself, see "
                f"`halog partition show {name}`",
                partition=name,
            )
        with router.changed:
            router.changed.wait(min(LOOK_S, max(0.0, until - time.monotonic())))


def is_there(table: PartitionTable, target: Target) -> bool:
    """Is the partition at its target?"""
    wished = (table.configured, table.sync_replicas, table.target) == (target.nodes, target.sync_replicas, None)
    if table.owner:
        return wished
    return wished and table.active is not None and table.active.node in target.nodes
