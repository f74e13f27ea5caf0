"""`halog partition define|enable|disable|replicate`: what nodes say of a partition (P7), copies made anew (P12)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.partition.group import partition
from halog.cli.partition.migrate import Nodes, ask_up, patience_option, wait_for, wait_option
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import Name, config_option, number_of, timeout_option
from halog.cli.shared.output import emit_json, format_option
from halog.config.multi_site import check_nodes

if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection
    from halog.core.table.table import PartitionTable
    from halog.runtime.placement.definitions import DefinitionResult

node_option = click.option(
    "--node", type=Name(), required=True, metavar="NODE", help="The node in whose name it is said."
)


@partition.command("define")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@click.option("--nodes", type=Nodes(), required=True, metavar="C,B", help="Where it is to be, preferred node first.")
@click.option("--sync", type=number_of(), default=None, help="Sync replicas; without it as many as now.")
@config_option
@format_option
@timeout_option
def define_(
    name: str, node: str, nodes: tuple[str, ...], sync: int | None, config_path: Path, format_: str, timeout_s: float
) -> None:
    """Say, for one node, where a partition is to be; nothing moves before it is enabled there.

    If the node is none of --nodes the partition is foreign there, and --nodes is to be the cluster's list: refused
    with exit code 5 otherwise, naming both.

    \b
    Examples:
      halog partition define eu --node A --nodes A,B
      halog partition define eu --node C --nodes C,B --sync 1
    """
    from halog.cli.shared.connection import connect
    from halog.runtime.placement.definitions import define

    with connect(config_path, timeout_s) as connection:
        _check_up(connection, node)
        table = define(connection.coordinator, connection.config, name, node, nodes, sync)
    definition = table.definitions[node]
    if format_ == "json":
        emit_json(_json(table, node))
        return
    click.echo(f"partition {name}: {node} has it on {', '.join(nodes)} with {definition.sync_replicas} sync")
    say(f"not in effect yet: `halog partition enable {name} --node {node}`")


@partition.command("enable")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@click.option("--replace", is_flag=True, help="Give up a migration under way for this one.")
@wait_option
@patience_option
@config_option
@format_option
def enable_(name: str, node: str, replace: bool, wait: bool, timeout_s: float, config_path: Path, format_: str) -> None:
    """Put a node's definition of a partition into effect: it goes there, under traffic and without loss.

    Where it is there already, nothing happens. Refused with exit code 5, and nothing changed, where it could not end
    well.

    \b
    Examples:
      halog partition enable eu --node A
      halog partition enable eu --node C --no-wait
    """
    from halog.cli.partition.move_events import Moves
    from halog.cli.shared.connection import connect
    from halog.runtime.placement.definitions import enable

    with connect(config_path, timeout_s) as connection:
        _check_up(connection, node)
        c, up = connection.coordinator, ask_up(connection)
        with Moves(connection) as told:
            asked = enable(c, connection.config, up, name, node, told=told, replace=replace)
        table = _waited(connection, asked, wait, timeout_s)
    _show(table, asked, node, "enabled", format_)


@partition.command("disable")
@click.argument("name", type=Name(), metavar="PARTITION")
@node_option
@wait_option
@patience_option
@config_option
@format_option
def disable_(name: str, node: str, wait: bool, timeout_s: float, config_path: Path, format_: str) -> None:
    """Take a node out of a partition's node list: it hands over if it is active, and deletes its copy.

    The only node keeps its copy: it can be read, and takes nothing new until it is enabled again or moved. What the
    configuration defines is disabled by this alone.

    \b
    Examples:
      halog partition disable eu --node A
    """
    from halog.cli.partition.move_events import Moves
    from halog.cli.shared.connection import connect
    from halog.runtime.placement.definitions import disable

    with connect(config_path, timeout_s) as connection:
        c, up = connection.coordinator, ask_up(connection)
        with Moves(connection) as told:
            asked = disable(c, connection.config, up, name, node, told=told)
        table = _waited(connection, asked, wait, timeout_s)
    _show(table, asked, node, "disabled", format_)


def _check_up(connection: Connection, node: str) -> None:
    """A node that does not run would have to say it again when it starts (P8)."""
    from halog.errors import RefusedError

    if node in connection.config.nodes and node not in ask_up(connection):
        raise RefusedError(f"node {node} is not running: start it first")


def _waited(connection: Connection, asked: DefinitionResult, wait: bool, timeout_s: float) -> PartitionTable:
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
@wait_option
@patience_option
@config_option
@format_option
def replicate_(
    name: str, nodes: tuple[str, ...], wait: bool, timeout_s: float, config_path: Path, format_: str
) -> None:
    """Have the replicas of a partition copied anew from the log, one after the other; commits go on.

    Each leaves the node list, drops its copy, makes a new one, and is counted again, before the next one begins. It is
    not needed for replicas that were away: they read what they missed. Refused with exit code 5 where too few nodes
    would be left for a quorum meanwhile. Exit code 6 names replicas that were passed over: they have the copy they had.

    \b
    Examples:
      halog partition replicate flights-3
      halog partition replicate flights-3 --nodes B
    """
    from halog.cli.shared.connection import connect
    from halog.core.table.resync import left
    from halog.runtime.placement.definitions import replicate

    with connect(config_path, timeout_s) as connection:
        began = time.monotonic()
        check_nodes(connection.config, nodes)
        table = replicate(connection.coordinator, name, nodes)
        asked = table.resync.nodes if table.resync is not None else ()
        if wait:
            table = _replicated(connection, table, len(asked), timeout_s)
        ms = round((time.monotonic() - began) * 1000)
    if format_ == "json":
        done = table.resync is None
        emit_json({"partition": name, "nodes": list(asked), "done": done, "still_to_do": list(left(table)), "ms": ms})
    elif table.resync is None:
        click.echo(f"partition {name}: {', '.join(asked)} copied anew in {ms} ms")
    else:
        click.echo(f"partition {name}: {', '.join(asked)} to be copied anew")
        say(f"still to do: {'; '.join(left(table))}")


def _replicated(connection: Connection, table: PartitionTable, count: int, timeout_s: float) -> PartitionTable:
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
