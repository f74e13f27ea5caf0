"""Checks what applications and operators say of partitions (P7), and forced replication (P12), and sets it by
compare-and-set. The nodes do the rest by themselves (`halog.core.table.definitions`, `halog.core.table.resync`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from halog.config import Config
from halog.config.multi_site import check_nodes, elsewhere
from halog.core.table import resync
from halog.core.table.definitions import (
    defined,
    differing,
    disabled,
    enabled,
    forgotten,
    listed,
    not_as_listed,
    why_nobody_is_left,
    why_not_disable,
    why_not_enable,
)
from halog.core.table.migration import no_list
from halog.core.table.table import PartitionTable, Target
from halog.errors import DeadlineError, NodeListsError, RefusedError, UnknownNameError
from halog.metadata.drains import unmark_behind
from halog.metadata.partition_tables import TableReport, change_table
from halog.ports import Coordinator
from halog.runtime.placement.migration import LOOK_S, brought, going, refuse, target_of, why_not_nodes
from halog.runtime.rpc.router import Router


class DefinitionResult(NamedTuple):
    """Holds the table as set, and where the partition goes because of it; None: nowhere."""

    table: PartitionTable
    target: Target | None


def define(
    coordinator: Coordinator, config: Config, partition: str, node: str, nodes: Sequence[str], sync: int | None = None
) -> PartitionTable:
    """Let `node` define where `partition` is to be (P7); nothing moves before the definition is enabled. Without `sync`
    there are as many sync replicas as now, at first as the policy says, if there are enough nodes. RefusedError says
    what is wrong with it; ConfigError if there is no such partition."""

    check_nodes(config, (node, *nodes))

    def change(table: PartitionTable) -> PartitionTable:
        target = _wish(config, table, nodes, sync)
        refuse(table, _why_not_there(config, node) or why_not_nodes(config, table, nodes))
        refuse(table, no_list(table.name, target))
        if other := not_as_listed(table, node, target):
            raise NodeListsError(
                f"{other}; nothing was changed",
                partition=partition,
                lists=[{"partition": partition, "node": node, "defined": [*target.nodes], "listed": [*listed(table)]}],
            )
        return defined(table, node, target)

    return change_table(coordinator, partition, change)


def _wish(config: Config, table: PartitionTable, nodes: Sequence[str], sync: int | None) -> Target:
    policy = config.policies.get(table.policy)
    if sync is None and not listed(table) and policy is not None:
        sync = max(0, min(policy.sync_replicas, len(nodes) - 1))
    return target_of(table, nodes, sync)


def _why_not_there(config: Config, node: str) -> str | None:
    away = elsewhere(config, node)
    return f"{away}: give this command there" if away else None


def enable(
    coordinator: Coordinator,
    config: Config,
    up: Collection[str],
    partition: str,
    node: str,
    *,
    told: TableReport,
    replace: bool = False,
) -> DefinitionResult:
    """Put the definition of `node` into effect (P7): the partition goes where it says. `up`: the registered nodes;
    `replace`: give up a migration under way for it; `told` as for `migrate`. A drained node that gets a copy by it does
    not count as drained any more. Nothing happens if the partition is there already. RefusedError names what speaks
    against it, ConfigError a partition that does not exist; then nothing was changed."""
    check_nodes(config, (node,))
    targets: list[Target | None] = [None]
    new: set[str] = set()

    def change(table: PartitionTable) -> PartitionTable:
        refuse(table, _why_not_there(config, node) or why_not_enable(table, node))
        after, targets[0] = enabled(table, node, up)
        if targets[0] is None:
            return after
        new.update(brought(table, targets[0].nodes))
        return going(config, after, targets[0], up, replace=replace, stood=table)

    asked = DefinitionResult(change_table(coordinator, partition, change, told), targets[0])
    unmark_behind(coordinator, partition, new)
    return asked


def disable(
    coordinator: Coordinator, config: Config, up: Collection[str], partition: str, node: str, *, told: TableReport
) -> DefinitionResult:
    """End the hosting of `partition` on `node` (P7): the node leaves the node list, hands over if it is active, and
    deletes its copy. A partition's only node keeps it: it can be read there, and takes nothing new. `told` as for
    `migrate`. RefusedError names what speaks against it, ConfigError a partition that does not exist; then nothing was
    changed."""
    check_nodes(config, (node,))
    targets: list[Target | None] = [None]

    def change(table: PartitionTable) -> PartitionTable:
        refuse(table, _why_not_there(config, node) or why_not_disable(table, node))
        after, target = disabled(table, node)
        targets[0] = target
        if target is None:
            return after
        refuse(table, why_nobody_is_left(table, node, target, up))
        return going(config, after, target, up, replace=True, stood=table)

    return DefinitionResult(change_table(coordinator, partition, change, told), targets[0])


def replicate(coordinator: Coordinator, partition: str, nodes: Sequence[str] = ()) -> PartitionTable:
    """Have these replicas (without any: all of them) copied anew, one after the other (P12). RefusedError names what
    speaks against it, ConfigError a partition that does not exist; then nothing was changed."""

    def change(table: PartitionTable) -> PartitionTable:
        wanted = tuple(dict.fromkeys(nodes)) or resync.replicas(table)
        refuse(table, resync.why_not(table, wanted))
        return resync.wished(table, wanted)

    return change_table(coordinator, partition, change)


def wait_until_replicated(
    router: Router,
    set_: PartitionTable,
    timeout_s: float,
    progress: Callable[[tuple[str, ...]], None] = lambda left: None,
) -> PartitionTable:
    """Wait until every replica that `set_` names has been copied anew. `progress` is told what is left.

    RefusedError if a migration took its place. DeadlineError (exit code 6) after `timeout_s` seconds: copying goes on
    by itself. DeadlineError, too, if replicas were passed over: it names them, and the others have been copied.
    """
    until, name = time.monotonic() + timeout_s, set_.name
    while True:
        known = router.tables.get(name)
        table = set_ if known is None or known[1].config_version < set_.config_version else known[1]
        if table.target is not None:
            raise RefusedError(f"{name} moves meanwhile, which makes the copies it needs", partition=name)
        if table.resync is None:
            _check_none_passed_over(table, set_)
            return table
        progress(resync.left(table))
        if time.monotonic() >= until:
            raise DeadlineError(
                f"{name} is not yet replicated anew after {timeout_s:g} s: {'; '.join(resync.left(table))}; it goes on "
                f"by itself, see `halog partition show {name}`",
                partition=name,
            )
        with router.changed:
            router.changed.wait(min(LOOK_S, max(0.0, until - time.monotonic())))


def _check_none_passed_over(table: PartitionTable, set_: PartitionTable) -> None:
    """Raise DeadlineError, naming them, if replicas of `set_` were passed over."""
    wanted = () if set_.resync is None else set_.resync.nodes
    if over := [n for n in wanted if n in table.passed_over]:
        raise DeadlineError(
            f"{', '.join(over)} was passed over and has the copy of {table.name} it had: it went down, became active, "
            "left the node list, or too few nodes were left without it; look at it with `halog partition show "
            f"{table.name}`, and ask again",
            partition=table.name,
        )


def check_lists(tables: Iterable[PartitionTable], running: Collection[str]) -> None:
    """Check the node lists before a rebalance (P10). NodeListsError, naming both lists, if a running node's definition
    of one of these partitions differs from the cluster's. `running`: names of nodes."""
    found = [d for t in sorted(tables, key=lambda t: t.name) for d in differing(t, running)]
    if found:
        raise NodeListsError(
            f"{'; '.join(map(str, found))}; nothing was changed",
            lists=[
                {"partition": d.partition, "node": d.node, "defined": list(d.defined), "listed": list(d.listed)}
                for d in found
            ],
        )


Tables = dict[str, tuple[int, PartitionTable]]


def begun_anew(coordinator: Coordinator, tables: Tables, node: str) -> Tables:
    """Return the tables with their versions, once the coordinator knows that this new run of `node` has not yet defined
    and enabled what the application places (P8)."""
    made = dict(tables)
    for name, (_, table) in tables.items():
        while forgotten(table, node) != table:
            change_table(coordinator, name, lambda now: forgotten(now, node))
            found = coordinator.get(f"partitions/{name}")
            if found is None:
                raise UnknownNameError.of("partition", name, coordinator.children("partitions"))
            table = PartitionTable.from_bytes(found.data)
            made[name] = found.version, table
    return made
