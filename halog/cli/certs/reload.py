"""`halog certs reload` has running nodes look at the files of their certificates now (O4)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from halog.cli.certs.group import certs
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.exit_codes import DEGRADED_EXIT, REFUSED_EXIT
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

COLUMNS = ("node", "certificates", "since", "why")
SILENT, UNKNOWN = "no answer", "not known"
MOST_THREADS = 16


@certs.command("reload")
@click.option("--node", "names", type=Name(), multiple=True, metavar="NODE", help="This node; repeatable.")
@click.option("--all", "is_all", is_flag=True, help="Every node that is registered and hosts partitions.")
@cluster_options
@click.pass_context
def reload_(ctx: click.Context, names: tuple[str, ...], is_all: bool, options: ClusterOptions) -> None:
    """Have running nodes look at the files of their certificates now, and say what became of them.

    A node looks every two seconds by itself; this says when it is done, and why files are refused. Files that were
    refused before are tried again. It takes the role operator. Exit code 5 if a node refuses its files: it goes on with
    those that it has. Exit code 4 if a node gives no answer, or is of a halog that does not know the request.

    \b
    Examples:
      halog certs reload --all
      halog certs reload --node A --node B --format json
    """
    from halog.config.multi_site import check_nodes

    if bool(names) == is_all:
        raise click.UsageError("give --node, or --all")
    with options.connect() as connection:
        check_nodes(connection.config, names)
        nodes = list(dict.fromkeys(names)) or [name for name, info in connection.nodes.items() if info.hosts]
        with ThreadPoolExecutor(MOST_THREADS) as pool:
            said = list(pool.map(lambda node: _asked(connection, node), nodes))
    emit(options.format, said, COLUMNS, ([one[key] for key in ("node", "outcome", "since", "why")] for one in said))
    outcomes = {one["outcome"] for one in said}
    ctx.exit(REFUSED_EXIT if "refused" in outcomes else DEGRADED_EXIT if outcomes & {SILENT, UNKNOWN} else 0)


def _asked(connection: ClusterConnection, node: str) -> dict[str, str | None]:
    """Return what a node says of its certificates. UnauthorizedError: whoever asks may not."""
    from halog.cli.shared.event_log import time_text
    from halog.errors import HalogError, UnauthorizedError, UnsupportedRequestError
    from halog.runtime.rpc import frames

    silent = {"node": node, "outcome": SILENT, "since": None, "files": None}
    try:
        reply = connection.router.request(node, frames.ReloadCertificates(), connection.timeout_s)
    except UnauthorizedError:
        raise
    except UnsupportedRequestError as error:
        return {**silent, "outcome": UNKNOWN, "why": error.message}
    except HalogError as error:
        return {**silent, "why": error.message}
    if not isinstance(reply, frames.CertificatesReply):
        return {**silent, "why": f"it answered {type(reply).__name__}"}
    since = time_text(reply.since_ms)
    return {"node": node, "outcome": reply.outcome, "since": since, "files": reply.files or None, "why": reply.why}
