"""This module says which nodes an upgrade is about, and which release is meant (U1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from halog.cli.shared.options import Name

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.upgrades import Upgrade

to_option = click.option(
    "--to",
    "to",
    type=Name(),
    default=None,
    metavar="RELEASE",
    help="The release.  [default: that of the upgrade under way, else of this command]",
)


def hosting_names(connection: ClusterConnection) -> list[str]:
    """Return the nodes of this site that host partitions: those that the configuration has in a zone, and those that
    are registered so."""
    config = connection.config
    configured = {n for zone in config.zones for n in config.nodes_of(zone)}
    known = [n for n in config.nodes if n in configured]
    return [*known, *(n for n, info in connection.nodes.items() if info.hosts and n not in known)]


def release_meant(to: str | None, found: Upgrade | None) -> str:
    """Return the release that `--to` says, or leaves out."""
    from halog.release import RELEASE

    return to or (RELEASE if found is None or found.over else found.to)
