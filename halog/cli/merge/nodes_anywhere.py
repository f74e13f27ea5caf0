"""A restore may name nodes of this site and of another one. This module finds names that no node has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from halog.errors import AvailabilityError, ConfigError, UnknownNameError
from halog.metadata.partition_tables import table_of

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.runtime.support.adapters import SiteAccess


def check_known(
    connection: ClusterConnection, named: Iterable[tuple[str, str]], remote: Callable[[str], SiteAccess]
) -> None:
    """Raise UnknownNameError for a partition ("": none is named) that this site does not have, and for a node that no
    site has. If the node may be one of a site that does not answer, raise that site's AvailabilityError."""
    config = connection.config
    known = dict.fromkeys([*config.all_sites.nodes, *connection.nodes])
    known |= dict.fromkeys(node for table in connection.tables for node in table.configured)
    wanted = []
    for partition, node in named:
        if partition:
            connection.table(partition)
        wanted.append(node)
    silent: AvailabilityError | None = None
    for site in config.other_sites if any(node not in known for node in wanted) else ():
        try:
            known |= dict.fromkeys(_nodes_of(remote(site)))
        except AvailabilityError as error:
            silent = error
        except ConfigError:  # a site that cannot be reached from here has no node for this command
            continue
    for node in wanted:
        if node not in known:
            raise silent or UnknownNameError.of("node", node, list(known))


def _nodes_of(site: SiteAccess) -> Iterable[str]:
    """Yield the nodes that are registered at another site, and those that its tables name."""
    coordinator = site.coordinator
    yield from coordinator.children("nodes")
    for name in coordinator.children("partitions"):
        yield from table_of(coordinator, name).configured
