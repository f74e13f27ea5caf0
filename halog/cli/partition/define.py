"""This module has the commands `halog partition define|enable|disable|replicate`. They set where nodes have a partition
(P7), and copy replicas anew (P12)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from halog.cli.partition.group import partition
from halog.cli.partition.migrate import Nodes, ask_up, wait_for, waiting_options
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import Name, number_of
from halog.cli.shared.output import emit_json
from halog.config.multi_site import check_nodes

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from halog.runtime.placement.definitions import DefinitionResult

node_option = click.option("--node", type=Name(), required=True, metavar="NODE", help="The node that this is about.")


@partition.command("define")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@click.option("--nodes", type=Nodes(), required=True, metavar="C,B", help="Where it should be, preferred node first.")
@click.option("--sync", type=number_of(), default=None, help="Sync replicas; without it as many as now.")
@cluster_options
def define_(name: str, node: str, nodes: tuple[str, ...], sync: int | None, options: ClusterOptions) -> None:
    """Define, for one node, where a partition should be; nothing moves before it is enabled there.

    If the node is not in --nodes, the partition is foreign there, and --nodes must be the cluster's list: otherwise it
    is refused with exit code 5, naming both.

    \b
    Examples:
      halog partition define eu --node A --nodes A,B
      halog partition define eu --node C --nodes C,B --sync 1
    """
    from halog.runtime.placement.definitions import define

    with options.connect() as connection:
        _check_up(connection, node)
        table = define(connection.coordinator, connection.config, name, node, nodes, sync)
    definition = table.definitions[node]
    if options.format == "json":
        emit_json(_json(table, node))
        return
    click.echo(f"partition {name}: {node} has it on {', '.join(nodes)} with {definition.sync_replicas} sync")
    say(f"not in effect yet: `halog partition enable {name} --node {node}`")


@partition.command("enable")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@click.option("--replace", is_flag=True, help="Give up a migration under way for this one.")
@waiting_options
def enable_(name: str, node: str, replace: bool, wait: bool, options: ClusterOptions) -> None:
    """Put a node's definition of a partition into effect: it goes there, under traffic and without loss.

    If it is there already, nothing happens. Refused with exit code 5, and nothing changed, if it could not end well.

    \b
    Examples:
      halog partition enable eu --node A
      halog partition enable eu --node C --no-wait
    """
    from halog.cli.partition.move_events import MoveEvents
    from halog.runtime.placement.definitions import enable

    with options.connect() as connection:
        _check_up(connection, node)
        c, up = connection.coordinator, ask_up(connection)
        with MoveEvents(connection) as told:
            asked = enable(c, connection.config, up, name, node, told=told, replace=replace)
        table = _waited(connection, asked, wait, options.timeout_s)
    _show(table, asked, node, "enabled", options.format)


@partition.command("disable")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@waiting_options
def disable_(name: str, node: str, wait: bool, options: ClusterOptions) -> None:
    """Take a node out of a partition's node list: it hands over if it is active, and deletes its copy.

    The only node keeps its copy: it can be read, and takes nothing new until it is enabled again or moved. Only this
    command disables a partition that the configuration defines.

    \b
    Examples:
      halog partition disable eu --node A
    """
    from halog.cli.partition.move_events import MoveEvents
    from halog.runtime.placement.definitions import disable

    with options.connect() as connection:
        c, up = connection.coordinator, ask_up(connection)
        with MoveEvents(connection) as told:
            asked = disable(c, connection.config, up, name, node, told=told)
        table = _waited(connection, asked, wait, options.timeout_s)
    _show(table, asked, node, "disabled", options.format)


def _check_up(connection: ClusterConnection, node: str) -> None:
    """Check that the node runs: one that does not would have to say it again when it starts (P8)."""
    from halog.errors import RefusedError

    if node in connection.config.nodes and node not in ask_up(connection):
        raise RefusedError(f"node {node} is not running: start it first")


def _waited(connection: ClusterConnection, asked: DefinitionResult, wait: bool, timeout_s: float) -> PartitionTable:
    if asked.target is None or not wait:
        return asked.table
    return wait_for(connection, [(asked.table, asked.target)], timeout_s)[0]


def _json(table: PartitionTable, node: str) -> dict[str, Any]:
    from halog.core.table.definitions import listed, status
    from halog.core.table.migration import left

    return {
        "partition": table.name,
        "node": node,
        "status": status(table, node).value,
        "nodes": list(listed(table)),
        "node_list": list(table.node_list),
        "sync_replicas": table.sync_replicas,
        "still_to_do": list(left(table)),
    }


def _show(table: PartitionTable, asked: DefinitionResult, node: str, what: str, format_: str) -> None:
    from halog.core.table.definitions import listed
    from halog.core.table.migration import left

    if format_ == "json":
        emit_json(_json(table, node))
        return
    where = f"it is on {', '.join(listed(table))}" if listed(table) else "nobody has placed it"
    if table.shut:
        where += ", where it can be read and takes nothing new"
    if table.target is not None:
        where = f"it moves to {', '.join(table.target.nodes)}"
        say(f"still to do: {'; '.join(left(table))}")
    click.echo(f"partition {table.name}: {what} on {node}; {where}")


# --- copies made anew ---


@partition.command("replicate")
@click.argument("name", type=Name(), metavar="PARTITION")
@click.option("--nodes", type=Nodes(), default=(), metavar="B", help="Only these replicas; without it all.")
@waiting_options
def replicate_(name: str, nodes: tuple[str, ...], wait: bool, options: ClusterOptions) -> None:
    """Have the replicas of a partition copied anew from the log, one after the other; commits go on.

    Each leaves the node list, drops its copy, makes a new one, and is counted again, before the next one begins.
    Replicas that were away do not need it: they read what they missed. Refused with exit code 5 if too few nodes would
    be left for a quorum meanwhile. Exit code 6 names replicas that were passed over: they have the copy they had.

    \b
    Examples:
      halog partition replicate flights-3
      halog partition replicate flights-3 --nodes B
    """
    from halog.core.table.resync import left
    from halog.runtime.placement.definitions import replicate

    with options.connect() as connection:
        began = time.monotonic()
        check_nodes(connection.config, nodes)
        table = replicate(connection.coordinator, name, nodes)
        asked = table.resync.nodes if table.resync is not None else ()
        if wait:
            table = _replicated(connection, table, len(asked), options.timeout_s)
        ms = round((time.monotonic() - began) * 1000)
    if options.format == "json":
        done = table.resync is None
        emit_json({"partition": name, "nodes": list(asked), "done": done, "still_to_do": list(left(table)), "ms": ms})
    elif table.resync is None:
        click.echo(f"partition {name}: {', '.join(asked)} copied anew in {ms} ms")
    else:
        click.echo(f"partition {name}: {', '.join(asked)} to be copied anew")
        say(f"still to do: {'; '.join(left(table))}")


def _replicated(connection: ClusterConnection, table: PartitionTable, count: int, timeout_s: float) -> PartitionTable:
    """Wait for all of them, and show whose turn it is."""
    from halog.runtime.placement.definitions import wait_until_replicated

    said = ""
    with progress() as bar:
        task = bar.add_task("replicas copied", total=count, note="")

        def tell(left: tuple[str, ...]) -> None:
            nonlocal said
            bar.update(task, completed=count - len(left), note=left[0])
            if bar.disable and left[0] != said:
                say(left[0])
            said = left[0]

        return wait_until_replicated(connection.router, table, timeout_s, tell)
