"""`halog partition accept-loss` goes on without what only nodes that are gone had in memory (R6, local NO_SYNC)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from halog.cli.partition.group import partition
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.confirm import check_confirmed, cluster_option
from halog.cli.shared.options import Name, reason_option
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.groups import UnloggedSurrender


@partition.command("accept-loss")
@click.argument("name", type=Name(), metavar="PARTITION")
@cluster_option
@reason_option
@cluster_options
def accept_loss(name: str, confirmed: str, reason: str, options: ClusterOptions) -> None:
    """Let a partition go on whose last acknowledged commits are with nodes that do not come back.

    This is only for commits that do not wait for the log (local_sync = "NO_SYNC"). If all nodes that had acknowledged
    them died at once, the partition waits for one of them (event HALOG-1018). The wait ends by itself when one is
    started again; this command is for nodes that never will be. What the log lacks is lost then. So it is refused with
    exit code 5 unless --cluster confirms it with the name of the cluster. Event HALOG-1019 says who has done it, and
    why.

    \b
    Examples:
      halog partition accept-loss flights-3 --cluster fleet
      halog partition accept-loss flights-3 --cluster fleet --reason "A and B burnt down"
    """
    from halog.errors import RefusedError
    from halog.metadata.groups import UnloggedSurrender
    from halog.metadata.partition_tables import change_table

    with options.connect() as connection:
        policy = connection.config.policies.get(connection.table(name).policy)
        if policy is not None and not policy.unlogged:
            raise RefusedError(f"{name} has nothing to give up: its commits wait for the log", partition=name)
        up = {name_: info.incarnation for name_, info in connection.nodes.items()}
        _check_confirmed(connection, name, confirmed, up)
        giving_up = UnloggedSurrender(up)
        change_table(connection.coordinator, name, giving_up)
        _tell(connection, name, giving_up, reason)
    if options.format == "json":
        emit_json({"partition": name, "given_up": giving_up.names})
    else:
        emit_table(["partition", "goes on without the memory of"], [(name, ", ".join(giving_up.names))])


def _check_confirmed(connection: ClusterConnection, name: str, confirmed: str, up: dict[str, int]) -> None:
    """Raise RefusedError if nothing would be given up, or if nobody says that it may be, in this cluster."""
    from halog.metadata.groups import UnloggedSurrender

    would = UnloggedSurrender(up)
    would(connection.table(name))
    lost = f"what {', '.join(would.names)} may have of {name} in memory would be lost for good"
    check_confirmed(connection, confirmed, lost, "If they do not come back", partition=name)


def _tell(connection: ClusterConnection, name: str, giving_up: UnloggedSurrender, reason: str) -> None:
    """Write into the event history who has done it, and why; no node can know. It is done, whether or not the history
    takes it."""
    from halog.cli.shared.event_log import note_or_say
    from halog.events import UNLOGGED_LOST, EventPlace, event
    from halog.metadata.identity import who

    by, now_ms, names = who(), time.time_ns() // 1_000_000, giving_up.names
    told = event(
        UNLOGGED_LOST,
        EventPlace(connection.config.cluster.name, connection.name, name, giving_up.epoch),
        name=f"{connection.name}/accept-loss/{name}/{now_ms}",
        time_ms=now_ms,
        node=by,
        cause=f"what {', '.join(names)} may have in memory, by {by}" + (f": {reason}" if reason else ""),
        more={"given_up": names, "by": by, "reason": reason},
    )
    note_or_say(connection, [told])
