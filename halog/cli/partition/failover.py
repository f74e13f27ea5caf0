"""This module has the command `halog failover`. It moves the active role of a partition to another node, planned and
without loss."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit_json

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection


@click.command()
@click.argument("partition", type=Name())
@click.option("--to", "target", type=Name(), required=True, metavar="NODE", help="The node that should be active.")
@cluster_options
def failover(partition: str, target: str, options: ClusterOptions) -> None:
    """Hand a partition over to another node of its node list.

    This is planned: the active node finishes the commits in flight, closes its epoch in the log and steps back; callers
    wait a moment and go on. Refused with exit code 5, and nothing changed, if the node could not take over safely.

    \b
    Examples:
      halog failover flights-3 --to B
      halog failover flights-3 --to B --timeout 3 --format json
    """

    with options.connect() as connection:
        was = _check(connection, partition, target)
        began = time.monotonic()
        hand_over(connection, partition, target, options.timeout_s)
        ms = round((time.monotonic() - began) * 1000)
        epoch = connection.table(partition).epoch.number
    if options.format == "json":
        emit_json({"partition": partition, "from": was, "to": target, "epoch": epoch, "ms": ms})
    else:
        click.echo(f"partition {partition}: {was} handed over to {target} in {ms} ms, epoch {epoch}")


def _check(connection: ClusterConnection, partition: str, target: str) -> str | None:
    """Check what can be refused without asking a node. Return the node that is active now."""
    from halog.config.multi_site import check_nodes
    from halog.errors import NothingToDoError, RefusedError

    table = connection.table(partition)
    check_nodes(connection.config, (target,))
    if target not in table.configured:
        listed = ", ".join(table.configured)
        raise RefusedError(f"{target} is not in the node list of {partition} ({listed}): it holds no copy")
    if target not in connection.nodes:
        raise RefusedError(f"node {target} is not running; start it, and wait until it has caught up")
    if table.active is not None and table.active.node == target:
        raise NothingToDoError(f"{target} is active for {partition} already")
    return None if table.active is None else table.active.node


def hand_over(connection: ClusterConnection, partition: str, target: str, timeout_s: float) -> None:
    """Ask for the hand-over, then wait until the coordinator names the new node."""
    from halog.errors import DeadlineError, RefusedError
    from halog.runtime.rpc import frames

    until = time.monotonic() + timeout_s
    router = connection.router
    try:
        connection.ask(partition, frames.HandOverRequest(partition, target), frames.CommitReply)
    except RefusedError:
        if router.active(partition) != target:  # else the first request did it, and its answer was lost
            raise
    with router.changed:
        left = max(0.0, until - time.monotonic())
        if not router.changed.wait_for(lambda: router.active(partition) == target, left):
            raise DeadlineError(
                f"{partition} was handed over, but {target} did not become active within {timeout_s:g} s; "
                f"see `halog partition show {partition}`",
                partition=partition,
            )
