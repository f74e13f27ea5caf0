"""What an operator asks for when a partition is to move (P12): the wish is checked, set by compare-and-set, watched.

The nodes do the rest by themselves, whether or not the one who asked still waits (`halog.core.table.migration`). Only
where none of a partition's nodes is running there is nobody who could move it: then it is placed anew at once, and
comes back from the log (P1).
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
from halog.metadata.partition_tables import Told, change_table
from halog.ports import Coordinator
from halog.runtime.placement.initial_placement import going_to_be
from halog.runtime.rpc.router import Router

LOOK_S = 0.1
"""How often whoever waits looks for progress: a step takes some ms, copying as long as the data asks for."""


def migrate(
    coordinator: Coordinator,
    config: Config,
    up: Collection[str],
    partition: str,
    nodes: Sequence[str],
    sync_replicas: int | None = None,
    *,
    told: Told,
    replace: bool = False,
    copy_rate: int | None = None,
) -> tuple[PartitionTable, Target]:
    """Have `partition` move to `nodes`, the preferred one first (P12). `up`: the registered nodes. Without
    `sync_replicas` as many as now, if there are nodes enough. `copy_rate`: bytes a second that a node reads for a copy
    no redundancy waits for, 0 for no limit, without it as the policy says; asked for again with another rate, a
    migration under way goes on with that. A node that was drained and gets a copy by it counts as one no more. `told`
    tells the event history of the wish: nodes tell only its end. Returns the table as set, and what was asked for.

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
    unmark_behind(coordinator, partition, new)  # last: what is refused changes nothing
    return table, target_of(table, nodes, sync_replicas)


def brought(table: PartitionTable, nodes: Sequence[str]) -> list[str]:
    """Those of `nodes` that get a copy if the partition goes there; who is about to get one is still among them."""
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
    """`table` with that wish; placed at once where nobody hosts it who could move it. `stood`: as the coordinator has
    it: who may host it now is not changed by the wish itself. At once, too, where another site serves it: the log has
    it all. RefusedError."""
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
    """The placement that is asked for; without `sync_replicas` as many as now, if there are nodes enough."""
    now = table.sync_replicas if table.target is None else table.target.sync_replicas
    return Target(tuple(nodes), max(0, min(now, len(nodes) - 1)) if sync_replicas is None else sync_replicas)


def refuse(table: PartitionTable, reason: str | None) -> None:
    """RefusedError, if there is a reason."""
    if reason is not None:
        raise RefusedError(reason, partition=table.name)


def why_not_nodes(config: Config, table: PartitionTable, nodes: Sequence[str]) -> str | None:
    """Nodes that do not exist, or may not host this partition; None: they do, and may."""
    policy = config.policies.get(table.policy)
    if policy is None:
        return f"{config.source} knows no policy {table.policy}: use the configuration the cluster runs with"
    zone, named = config.hosts_of(table.policy), " or ".join(policy.spans)
    for node in nodes:
        if away := elsewhere(config, node):
            return f"{away}: it has copies there alone"
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
    """Wait until a partition is where it is to be; `wished` and `target` as `migrate` returned them. `progress` is told
    what is left whenever it looks.

    RefusedError if somebody wished something else meanwhile, DeadlineError (exit code 6) after `timeout_s` seconds: it
    goes on by itself.
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
    """Is the wish fulfilled?"""
    wished = (table.configured, table.sync_replicas, table.target) == (target.nodes, target.sync_replicas, None)
    if table.owner:
        return wished
    return wished and table.active is not None and table.active.node in target.nodes
