"""A command may give up a promise of the cluster. It is confirmed with the cluster's name, so that it never hits the
wrong cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.options import Text

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

cluster_option = click.option(
    "--cluster", "confirmed", type=Text(), default="", metavar="NAME", help="Confirm it with the cluster's name."
)


def check_named(connection: ClusterConnection, confirmed: str) -> None:
    """Raise RefusedError if `confirmed` names another cluster than this one. An empty name passes: a command that gives
    up nothing needs none."""
    if confirmed:
        check_confirmed(connection, confirmed, f"this is not cluster {confirmed}", "If this one is meant")


def check_confirmed(connection: ClusterConnection, confirmed: str, given_up: str, unless: str, **about: Any) -> None:
    """Raise RefusedError unless `confirmed` is the name of this cluster. The error says what would be given up, and
    when that may be."""
    from halog.errors import RefusedError

    cluster = connection.config.cluster.name
    if confirmed != cluster:
        raise RefusedError(
            f"{given_up}; nothing was changed. {unless}, confirm it with the name of this cluster: --cluster {cluster}",
            cluster=cluster,
            **about,
        )
