"""This module has the command `halog drain`. It moves every copy off a node, so that it can be taken away (P12, X4)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from halog.cli.partition.migrate import ask, rate_option, wait_for, waiting_options
from halog.cli.partition.safe_to_stop import check_known
from halog.cli.shared.cluster_options import ClusterOptions
from halog.cli.shared.exit_codes import REFUSED_EXIT
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.placement.drain import MoveProposal
    from halog.core.table.table import PartitionTable, Target


@click.command()
@click.argument("node", type=Name())
@click.option("--allow-fewer", is_flag=True, help="If every other node has a copy already, go on with one copy less.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and why; change nothing.")
@click.option("--undo", is_flag=True, help="Let the node get new partitions again; nothing moves.")
@rate_option
@waiting_options
def drain(
    node: str, allow_fewer: bool, dry_run: bool, undo: bool, copy_rate: int | None, wait: bool, options: ClusterOptions
) -> None:
    """Move every partition's copy off a node, to nodes of the zone that have none.

    It moves them under traffic, partition by partition, as `halog partition migrate` does; the node goes on running,
    empty. If one partition cannot move, nothing is changed, the table says why, and the exit code is 5. Until a
    migration or a plan brings a copy back, or --undo, partitions that are added go to other nodes, if there are enough.

    \b
    Examples:
      halog drain A --dry-run
      halog drain A
      halog drain A --allow-fewer --timeout 600
      halog drain A --copy-rate 5000000
      halog drain A --undo
    """
    from halog.metadata.drains import mark
    from halog.runtime.support.clock import wall_ms

    if undo:
        others = {"--allow-fewer": allow_fewer, "--dry-run": dry_run}
        others |= {"--copy-rate": copy_rate is not None, "--no-wait": not wait}
        _undo(node, others, options)
        return
    with options.connect() as connection:
        check_known(connection, (node,))
        moves = _plan(connection, node, allow_fewer=allow_fewer)
        stuck = [m for m in moves if m.target is None]
        began, done = time.monotonic(), False
        if not dry_run and not stuck:
            mark(connection.coordinator, node, wall_ms())
            wishes = _wish(connection, moves, copy_rate)
            if wait:
                wait_for(connection, wishes, options.timeout_s)
                done = True
        ms = round((time.monotonic() - began) * 1000)
    _show(node, stuck or moves, ms, done=done, format_=options.format)
    if stuck:
        say(f"halog: {len(stuck)} of {len(moves)} partitions cannot leave {node}; nothing was changed")
        raise click.exceptions.Exit(REFUSED_EXIT)
    if done:
        say(f"{node} hosts nothing now, after {ms} ms")
    if not dry_run:
        say(
            f"it gets no partitions that are added, if there are enough other nodes; `halog drain {node} --undo` "
            "ends that"
        )


def _undo(node: str, others: Mapping[str, bool], options: ClusterOptions) -> None:
    """Mark the node as not drained. That works for a node that the file no longer has: it may have been drained for
    that. UsageError if another option is given, too."""
    from halog.metadata.drains import drained_nodes, unmark

    for other in (name for name, given in others.items() if given):
        raise click.UsageError(f"--undo moves nothing: leave out {other}")
    with options.connect() as connection:
        if node not in drained_nodes(connection.coordinator):
            check_known(connection, (node,))
        was = bool(unmark(connection.coordinator, (node,)))
    if options.format == "json":
        emit_json({"node": node, "was_drained": was})
    elif was:
        say(f"{node} may get partitions again; what it had stays where it is: `halog plan create` spreads it")
    else:
        say(f"{node} was not drained, or has got a copy since; nothing was changed")


def _wish(
    connection: ClusterConnection, moves: list[MoveProposal], copy_rate: int | None
) -> list[tuple[PartitionTable, Target]]:
    """Ask for the moves one after the other: each is a compare-and-set, and a node may host hundreds."""
    from halog.cli.partition.move_events import MoveEvents

    wishes = []
    with MoveEvents(connection) as told, progress() as bar:
        for move in bar.track(moves, description="moves asked for"):
            if move.target is not None:
                to = move.target
                wishes.append(
                    ask(connection, move.partition, to.nodes, to.sync_replicas, told=told, copy_rate=copy_rate)
                )
    return wishes


def _plan(connection: ClusterConnection, node: str, *, allow_fewer: bool) -> list[MoveProposal]:
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


def _show(node: str, moves: list[MoveProposal], ms: int, *, done: bool, format_: str) -> None:
    if format_ == "json":
        emit_json({"node": node, "done": done, "ms": ms, "moves": [_as_json(m) for m in moves]})
        return
    rows = [(m.partition, ", ".join(m.before), _to(m), m.why) for m in moves]
    emit_table(["partition", "from", "to", "why"], rows)


def _to(move: MoveProposal) -> str:
    return "" if move.target is None else ", ".join(move.target.nodes)


def _as_json(move: MoveProposal) -> dict[str, object]:
    to, sync = (None, None) if move.target is None else (list(move.target.nodes), move.target.sync_replicas)
    return {"partition": move.partition, "from": list(move.before), "to": to, "sync_replicas": sync, "why": move.why}
