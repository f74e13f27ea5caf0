"""Commands on sites are about partitions with a home. This module chooses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from halog.cli.shared.options import Name

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable

partition_option = click.option(
    "--partition",
    "names",
    type=Name(),
    multiple=True,
    metavar="NAME",
    help="Only this one; repeatable.  [default: all with a home]",
)

comparison_option = click.option(
    "--two-way/--three-way",
    "two_way",
    default=None,
    help="Compare without the common ancestor, by the manual's rule; or with it.  [default: as the policy's "
    "`comparison` says]",
)


def is_two_way(connection: ClusterConnection, policy: str, said: bool | None) -> bool:
    """Say whether histories of a policy that parted are compared two-way: as `said`, else as the policy says (M3)."""
    return connection.config.policies[policy].two_way if said is None else said


def with_home(connection: ClusterConnection, names: Iterable[str]) -> list[PartitionTable]:
    """Return the partitions named, or all whose policy has a home. ConfigError for a partition that has none."""
    from halog.errors import ConfigError

    config = connection.config
    wanted = [connection.table(name) for name in names] or [
        t for t in connection.tables if t.policy in config.policies and config.policies[t.policy].home
    ]
    for table in wanted:
        if not config.policies[table.policy].home:
            raise ConfigError(
                f"{config.source}: partition {table.name} is of this site alone: policies.{table.policy} has no home",
                partition=table.name,
            )
    return wanted
