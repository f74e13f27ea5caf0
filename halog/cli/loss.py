"""`halog partition accept-loss`: go on without what only nodes that are gone had in memory (R6, local NO_SYNC)."""

from __future__ import annotations

from pathlib import Path

import click

import halog.cli.group  # noqa: F401 - its commands belong to the same group
from halog.cli.options import config_option, timeout_option
from halog.cli.output import emit_json, emit_table, format_option
from halog.cli.partition import partition


@partition.command("accept-loss")
@click.argument("name", metavar="PARTITION")
@config_option
@format_option
@timeout_option
def accept_loss(name: str, config_path: Path, format_: str, timeout_s: float) -> None:
    """Let a partition go on whose last acknowledged commits are with nodes that do not come back.

    Only where commits do not wait for the log (local_sync = "NO_SYNC"): after all nodes that had acknowledged them died
    at once, the partition waits for one of them (event HALOG-1018). Those that are started again end the wait by
    themselves; this is for those that never will be. What the log lacks is lost then.

    \b
    Examples:
      halog partition accept-loss flights-3
    """
    from halog.cli.connection import connect
    from halog.core.tail import holders
    from halog.errors import RefusedError
    from halog.runtime.groups import change_table, give_up_unlogged

    with connect(config_path, timeout_s) as connection:
        policy = connection.config.policies.get(connection.table(name).policy)
        if policy is not None and not policy.unlogged:
            raise RefusedError(f"{name} waits for nobody's memory: its commits wait for the log", partition=name)
        waited_for = sorted(m.node for m in holders(connection.table(name)))
        up = {name_: info.incarnation for name_, info in connection.nodes.items()}
        change_table(connection.coordinator, name, give_up_unlogged(up))
    if format_ == "json":
        emit_json({"partition": name, "given_up": waited_for})
    else:
        emit_table(["partition", "goes on without the memory of"], [(name, ", ".join(waited_for))])
