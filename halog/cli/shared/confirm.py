"""What gives up a promise of the cluster is confirmed with its name: nobody does that to another one than he means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.options import Text

if TYPE_CHECKING:
    from halog.cli.shared.connection import Connection

cluster_option = click.option(
    "--cluster", "confirmed", type=Text(), default="", metavar="NAME", help="Confirm it with the cluster's name."
)


def check_named(connection: Connection, confirmed: str) -> None:
    """RefusedError where another cluster is named than this one; to name none is right where nothing is given up."""
    if confirmed:
        check_confirmed(connection, confirmed, f"this is not cluster {confirmed}", "If this one is meant")


def check_confirmed(connection: Connection, confirmed: str, given_up: str, unless: str, **about: Any) -> None:
    """RefusedError that says what would be given up, and when it may be, where nobody says that in this cluster."""
    from halog.errors import RefusedError

    cluster = connection.config.cluster.name
    if confirmed != cluster:
        raise RefusedError(
            f"{given_up}; nothing was changed. {unless}, confirm it with the name of this cluster: --cluster {cluster}",
            cluster=cluster,
            **about,
        )
