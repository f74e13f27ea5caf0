"""This module has the commands `halog partition priority|require|designate`. They set who should be active, and with
how few nodes a partition may go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from halog.cli.partition.group import partition
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import check_confirmed, check_named, cluster_option
from halog.cli.shared.options import Name, for_option, number_of, reason_option
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from halog.core.table.table import PartitionTable
    from halog.metadata.groups import Change

LEVELS = ("never", "normal", "high", "highest")

Changed = list[tuple["PartitionTable", str]]
"""Holds tables as they are now, and who is active: the node that the table names and that says so itself; "" is
nobody."""


def _change(
    target: str,
    options: ClusterOptions,
    change: Change,
    node: str = "",
    *,
    gives_up: Callable[[PartitionTable], str] = lambda table: "",
    confirmed: str = "",
    known: str = "",
) -> Changed:
    """Make the change in one partition; or, if none has the name, in all of a policy that `node` is in the group of. If
    one would refuse, none is changed. Return what is changed, with who is active for it; it is told, also where the
    next one fails.

    `known` names a node that must exist, whatever is changed. `gives_up` says what promise is given up, which must be
    confirmed; empty: none.
    """
    from halog.cli.shared.survey import ask_nodes, partition_view
    from halog.cli.shared.table_events import PartitionChangeWatch, tell
    from halog.config.multi_site import check_nodes
    from halog.metadata.groups import change_group
    from halog.runtime.support.clock import wall_ms

    asked_ms = wall_ms()  # before any `--for` can be over
    with options.connect() as connection:
        of_policy = [t for t in connection.tables if t.policy == target]
        alone = [t for t in connection.tables if t.name == target]  # a partition goes before a policy of the same name
        tables = alone or of_policy or [connection.table(target)]
        check_nodes(connection.config, filter(None, (node, known)))
        chosen = [t for t in tables if not node or node in t.configured] or tables
        for table in chosen:
            change(table)
        for given_up in filter(None, map(gives_up, chosen)):
            check_confirmed(connection, confirmed, given_up, "If that may be", partition=target)
        check_named(connection, confirmed)
        done: list[PartitionChangeWatch] = []
        try:
            for table in chosen:
                done.append(PartitionChangeWatch(change, asked_ms))
                done[-1].now = change_group(connection.coordinator, table.name, done[-1])
        finally:
            tell(connection, done)
        said = ask_nodes(connection)
        changed = [one.now for one in done if one.now is not None]
        return [(t, partition_view(t, connection.nodes, said).active or "") for t in changed]


def _shown(tables: Changed, format_: str) -> None:
    from halog.core.table.group import as_of, needed, priority
    from halog.runtime.support.clock import wall_ms

    if format_ == "json":
        emit_json([{"partition": t.name, "active": active or None, **as_json(t)} for t, active in tables])
        return
    rows = []
    for t, active in tables:
        levels = ", ".join(f"{n} {LEVELS[priority(t, n)]}" for n in t.configured)
        rows.append((t.name, active, needed(as_of(t, wall_ms()), active), levels))
    emit_table(["partition", "active", "nodes needed", "priorities"], rows)


def as_json(table: PartitionTable) -> dict[str, object]:
    """Return a partition's group as plain values."""
    from halog.core.table.group import priority

    group = table.group
    return {
        "quorum": table.quorum,
        "required": group.required or None,
        "required_until_ms": group.required_until_ms or None,
        "required_reason": group.required_reason or None,
        "designated": group.designated or None,
        "designated_until_ms": group.designated_until_ms or None,
        "designated_reason": group.designated_reason or None,
        "priorities": {n: LEVELS[priority(table, n)] for n in table.configured},
    }


def _until(for_ms: int | None, takes_back: bool) -> int:
    """Return when it ends by itself; 0: never. An override that is taken back ends at once."""
    if takes_back and for_ms is not None:
        raise click.UsageError(
            "--for is of no use where an override is taken back: leave it out, or give the override that should last "
            "so long"
        )
    return 0 if for_ms is None else time.time_ns() // 1_000_000 + for_ms


@partition.command("priority")
@click.argument("target", type=Name(), metavar="PARTITION|POLICY")
@click.argument("node", type=Name())
@click.argument("level", type=click.Choice(LEVELS))
@cluster_options
def priority_(target: str, node: str, level: str, options: ClusterOptions) -> None:
    """Set how much a node should be active, among nodes that hold the same.

    A node of priority never replicates and votes, and is never active; if it is active now it hands over at once.

    \b
    Examples:
      halog partition priority flights-3 B highest
      halog partition priority flights C never      (all partitions of the policy)
    """
    from halog.metadata.groups import priority_of

    _shown(_change(target, options, priority_of(node, level), node), options.format)


@partition.command("require")
@click.argument("target", type=Name(), metavar="PARTITION|POLICY")
@click.argument("nodes", type=number_of())
@for_option
@reason_option
@click.option("--may-fork", is_flag=True, help="Allow so few that two halves could go on without each other.")
@cluster_option
@cluster_options
def require_(
    target: str, nodes: int, for_ms: int | None, reason: str, may_fork: bool, confirmed: str, options: ClusterOptions
) -> None:
    """Set how many nodes commits and elections need, instead of the quorum; 0 takes it back.

    It takes effect at once. Refused with exit code 5 if both halves of a group could go on alone, unless --may-fork
    says that they may, and --cluster confirms it with the name of the cluster.

    \b
    Examples:
      halog partition require flights-3 2 --for 15m --reason "rack 4 is being moved"
      halog partition require flights 0 --reason "rack 4 is there"
      halog partition require flights 1 --may-fork --cluster fleet --for 1h --reason "B and C burnt down"
    """
    from halog.core.table.group import forks
    from halog.metadata.groups import required

    change = required(nodes, until_ms=_until(for_ms, not nodes), reason=reason, may_fork=may_fork)
    tables = _change(
        target,
        options,
        change,
        gives_up=lambda table: forks(table, nodes),
        confirmed=confirmed,
    )
    _shown(tables, options.format)


@partition.command("designate")
@click.argument("target", type=Name(), metavar="PARTITION|POLICY")
@click.argument("node", type=Name(), metavar="NODE|none")
@for_option
@reason_option
@cluster_options
def designate_(target: str, node: str, for_ms: int | None, reason: str, options: ClusterOptions) -> None:
    """Let one node of a group of two go on alone; `none` takes it back.

    \b
    Examples:
      halog partition designate flights-3 A --for 2h --reason "B gets a new disk"
      halog partition designate flights-3 none
    """
    from halog.metadata.groups import designated

    back = node == "none"
    change = designated("" if back else node, until_ms=_until(for_ms, back), reason=reason)
    _shown(
        _change(target, options, change, known=node if node != "none" else ""),
        options.format,
    )
