"""`halog drain`: move every copy off a node, so that it can be taken away (P12, X4)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.partition.migrate import ask, patience_option, rate_option, wait_for, wait_option
from halog.cli.partition.safe_to_stop import check_known
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import Name, config_option
from halog.cli.shared.output import emit_json, emit_table, format_option

if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection
    from halog.core.placement.drain import PlannedMove
    from halog.core.table.table import PartitionTable, Target


@click.command()
@click.argument("node", type=Name())
@click.option("--allow-fewer", is_flag=True, help="Where no other node is without a copy, go on with one copy less.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and why; change nothing.")
@click.option("--undo", is_flag=True, help="It may get new partitions again; nothing moves.")
@rate_option
@wait_option
@patience_option
@config_option
@format_option
def drain(
    node: str,
    allow_fewer: bool,
    dry_run: bool,
    undo: bool,
    copy_rate: int | None,
    wait: bool,
    timeout_s: float,
    config_path: Path,
    format_: str,
) -> None:
    """Move every partition's copy off a node, to nodes of the zone that have none.

    Under traffic, partition by partition as `halog partition migrate` does; the node goes on running, empty. If one
    partition cannot move, nothing is changed, the table says why, and the exit code is 5. Until a migration or a plan
    brings a copy back, or --undo, partitions that are added go to other nodes, if those are enough.

    \b
    Examples:
      halog drain A --dry-run
      halog drain A
      halog drain A --allow-fewer --timeout 600
      halog drain A --copy-rate 5000000
      halog drain A --undo
    """
    from halog.cli.shared.connection import connect
    from halog.metadata.drains import mark
    from halog.runtime.support.clock import wall_ms

    if undo:
        others = {"--allow-fewer": allow_fewer, "--dry-run": dry_run}
        others |= {"--copy-rate": copy_rate is not None, "--no-wait": not wait}
        _undo(node, others, config_path, timeout_s, format_)
        return
    with connect(config_path, timeout_s) as connection:
        check_known(connection, (node,))
        moves = _plan(connection, node, allow_fewer=allow_fewer)
        stuck = [m for m in moves if m.target is None]
        began, done = time.monotonic(), False
        if not dry_run and not stuck:
            mark(connection.coordinator, node, wall_ms())
            wishes = _wish(connection, moves, copy_rate)
            if wait:
                wait_for(connection, wishes, timeout_s)
                done = True
        ms = round((time.monotonic() - began) * 1000)
    _show(node, stuck or moves, ms, done=done, format_=format_)
    if stuck:
        say(f"halog: {len(stuck)} of {len(moves)} partitions cannot leave {node}; nothing was changed")
        raise click.exceptions.Exit(REFUSED_EXIT)
    if done:
        say(f"{node} hosts nothing now, after {ms} ms")
    if not dry_run:
        say(f"it gets no partitions that are added, if there are others enough; `halog drain {node} --undo` ends that")


def _undo(node: str, others: Mapping[str, bool], config_path: Path, timeout_s: float, format_: str) -> None:
    """It counts as drained no more, also where the file has it no more: it may have been drained for that. UsageError
    for what else is asked for."""
    from halog.cli.shared.connection import connect
    from halog.metadata.drains import drained_nodes, unmark

    for other in (name for name, given in others.items() if given):
        raise click.UsageError(f"--undo moves nothing: leave {other} away")
    with connect(config_path, timeout_s) as connection:
        if node not in drained_nodes(connection.coordinator):
            check_known(connection, (node,))
        was = bool(unmark(connection.coordinator, (node,)))
    if format_ == "json":
        emit_json({"node": node, "was_drained": was})
    elif was:
        say(f"{node} may get partitions again; what it had stays where it is: `halog plan create` spreads it")
    else:
        say(f"{node} was not drained, or has got a copy since; nothing was changed")


def _wish(
    connection: Connection, moves: list[PlannedMove], copy_rate: int | None
) -> list[tuple[PartitionTable, Target]]:
    """Set them one after the other: each is a compare-and-set, and a node may host hundreds."""
    from halog.cli.partition.move_events import Moves

    wishes = []
    with Moves(connection) as told, progress() as bar:
        for move in bar.track(moves, description="moves asked for"):
            if move.target is not None:
                to = move.target
                wishes.append(
                    ask(connection, move.partition, to.nodes, to.sync_replicas, told=told, copy_rate=copy_rate)
                )
    return wishes


def _plan(connection: Connection, node: str, *, allow_fewer: bool) -> list[PlannedMove]:
    from halog.cli.shared.survey import CLIENT, DOWN, UP, survey
    from halog.core.placement.drain import plan
    from halog.metadata.drains import drained_nodes

    config = connection.config
    zones = {name: config.hosts_of(name) for name in config.policies}
    seen = survey(connection).nodes
    serve = [n.node for n in seen if n.state == UP]
    registered = [n.node for n in seen if n.state not in (DOWN, CLIENT)]
    unlogged = [name for name, policy in connection.config.policies.items() if policy.unlogged]
    backup = {name: config.backups_of(name) for name in config.policies}
    domains = {name: n.failure_domain for name, n in config.nodes.items()}
    return plan(
        connection.tables,
        node,
        zones,
        serve,
        registered,
        unlogged=unlogged,
        backup=backup,
        domains=domains,
        drained=drained_nodes(connection.coordinator),
        allow_fewer=allow_fewer,
    )


def _show(node: str, moves: list[PlannedMove], ms: int, *, done: bool, format_: str) -> None:
    if format_ == "json":
        emit_json({"node": node, "done": done, "ms": ms, "moves": [_as_json(m) for m in moves]})
        return
    rows = [(m.partition, ", ".join(m.before), _to(m), m.why) for m in moves]
    emit_table(["partition", "from", "to", "why"], rows)


def _to(move: PlannedMove) -> str:
    return "" if move.target is None else ", ".join(move.target.nodes)


def _as_json(move: PlannedMove) -> dict[str, object]:
    to, sync = (None, None) if move.target is None else (list(move.target.nodes), move.target.sync_replicas)
    return {"partition": move.partition, "from": list(move.before), "to": to, "sync_replicas": sync, "why": move.why}
