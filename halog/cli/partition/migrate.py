"""This module has the command `halog partition migrate`. It moves a partition to other nodes while it works (P12)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

import halog.cli.partition.accept_loss
import halog.cli.partition.quorum  # noqa: F401 - their commands belong to the same group
from halog.cli.partition.group import partition
from halog.cli.shared.cluster_options import ClusterOptions, Command, R, gathered
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import MOST_BYTES, Name, config_option, number_of, timeout_after
from halog.cli.shared.output import emit_json, format_option

if TYPE_CHECKING:
    from halog.cli.partition.move_events import MoveEvents
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable, Target

TIMEOUT_S = 120.0
"""A command waits this long for a migration: a copy is made at some 100,000 records a second, and a node may be
starting."""


class Nodes(click.ParamType[tuple[str, ...]]):
    """Takes node names, separated by commas."""

    name = "nodes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(Name().convert(name.strip(), param, ctx) for name in str(value).split(","))
        if twice := sorted({name for name in names if names.count(name) > 1}):
            self.fail(f"{', '.join(twice)} is named twice: name each node once, the preferred one first", param, ctx)
        return names


wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until it is done, or only until it is set."
)
rate_option = click.option(
    "--copy-rate",
    type=number_of(most=MOST_BYTES),
    default=None,
    metavar="BYTES",
    help="Bytes a second a node reads for a new copy, 0: no limit; else the policy's copy_bytes_per_s.",
)
patience_option = timeout_after(TIMEOUT_S, "Wait no longer (exit 6); the nodes go on by themselves.")


def waiting_options(command: Command[R]) -> Command[R]:
    """Add `--wait`, `--timeout` for a wait, `--config` and `--format`."""
    return wait_option(patience_option(config_option(format_option(gathered(command)))))


@partition.command("migrate")
@click.argument("name", type=Name(), metavar="PARTITION")
@click.option("--nodes", type=Nodes(), required=True, metavar="C,B", help="Its new nodes, the preferred one first.")
@click.option("--sync", type=number_of(), default=None, help="Sync replicas; without it as many as now.")
@click.option("--replace", is_flag=True, help="Give up a migration under way for this one.")
@rate_option
@waiting_options
def migrate_(
    name: str,
    nodes: tuple[str, ...],
    sync: int | None,
    replace: bool,
    copy_rate: int | None,
    wait: bool,
    options: ClusterOptions,
) -> None:
    """Move a partition to other nodes, under traffic and without loss.

    The new nodes copy it first. Then the role goes to the preferred one by a planned hand-over, and nodes that are not
    named delete their copies. The target stands in ZooKeeper: whatever node dies, and whether or not this command still
    waits, the others go on. Refused with exit code 5, and nothing changed, if it could not end well. Given again with
    another --copy-rate, it goes on with that.

    \b
    Examples:
      halog partition migrate flights-3 --nodes C,B
      halog partition migrate flights-3 --nodes C,B,A --sync 2
      halog partition migrate flights-3 --nodes A,B --replace --no-wait
      halog partition migrate flights-3 --nodes C,B --copy-rate 5000000
    """
    from halog.cli.partition.move_events import MoveEvents

    with options.connect() as connection:
        was, began = connection.table(name), time.monotonic()
        with MoveEvents(connection) as told:
            wished, target = ask(connection, name, nodes, sync, told=told, replace=replace, copy_rate=copy_rate)
        table = wait_for(connection, [(wished, target)], options.timeout_s)[0] if wait else wished
        ms = round((time.monotonic() - began) * 1000)
    _show(was, table, target, ms, options.format)


def ask(
    connection: ClusterConnection,
    name: str,
    nodes: tuple[str, ...],
    sync: int | None = None,
    *,
    told: MoveEvents,
    replace: bool = False,
    copy_rate: int | None = None,
) -> tuple[PartitionTable, Target]:
    """Ask for the migration; see `halog.runtime.placement.migration.migrate`."""
    from halog.runtime.placement.migration import migrate

    return migrate(
        connection.coordinator,
        connection.config,
        ask_up(connection),
        name,
        nodes,
        sync,
        told=told,
        replace=replace,
        copy_rate=copy_rate,
    )


def ask_up(connection: ClusterConnection) -> list[str]:
    """Return the registered nodes that host partitions."""
    return [info.name for info in connection.nodes.values() if info.hosts]


def wait_for(
    connection: ClusterConnection, wishes: list[tuple[PartitionTable, Target]], timeout_s: float
) -> list[PartitionTable]:
    """Wait for all of them, and show how many are there and what is left to do for the next one."""
    from halog.runtime.placement.migration import is_there, wait_until_there

    tables_now = connection.router.tables
    until, said = time.monotonic() + timeout_s, ""
    tables = []
    with progress() as bar:
        task = bar.add_task("partitions moved", total=len(wishes), note="")
        for wished, target in wishes:

            def tell(left: tuple[str, ...], name: str = wished.name) -> None:
                nonlocal said
                there = sum(is_there(tables_now[w.name][1], t) for w, t in wishes if w.name in tables_now)
                note = f"{name}: {'; '.join(left)}" if left else f"{name}: a node becomes active"
                bar.update(task, completed=there, note=note)
                if len(wishes) > 1:
                    note = f"{there} of {len(wishes)} moved; {note}"
                if bar.disable and note != said:
                    say(note)
                said = note

            left_s = max(0.0, until - time.monotonic())
            tables.append(wait_until_there(connection.router, wished, target, left_s, tell))
        bar.update(task, completed=len(wishes), note="")
    return tables


def _show(was: PartitionTable, table: PartitionTable, target: Target, ms: int, format_: str) -> None:
    from halog.core.table.migration import left
    from halog.runtime.placement.migration import is_there

    there = is_there(table, target)
    if format_ == "json":
        emit_json(
            {
                "partition": table.name,
                "from": list(was.configured),
                "to": list(target.nodes),
                "sync_replicas": target.sync_replicas,
                "done": there,
                "still_to_do": list(left(table)),
                "active": None if table.active is None else table.active.node,
                "ms": ms,
            }
        )
    elif there:
        click.echo(f"partition {table.name}: moved from {', '.join(was.configured)} to {_to(target)} in {ms} ms")
    else:
        click.echo(f"partition {table.name}: moves from {', '.join(was.configured)} to {_to(target)}")
        say(f"still to do: {'; '.join(left(table)) or 'a node becomes active'}")


def _to(target: Target) -> str:
    return f"{', '.join(target.nodes)} with {target.sync_replicas} sync"
