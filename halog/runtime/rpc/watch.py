"""A tool's router is told by this of a cluster that the tool never joins: the partitions and the nodes, now and from
now on.

Reads and watches znodes, and writes none.
"""

from __future__ import annotations

from collections.abc import Sequence

from halog.core.table.table import PartitionTable
from halog.metadata import nodes
from halog.ports import Coordinator, Versioned
from halog.runtime.rpc.router import Router


def watch(coordinator: Coordinator, router: Router, partitions: Sequence[str]) -> None:
    """Tell a router of these partitions at once, then of all that there are and come, and of all nodes."""

    def table_changed(path: str, found: Versioned | None) -> None:
        if found is not None:
            table = PartitionTable.from_bytes(found.data)
            router.table_seen(table.name, found.version, table)

    def nodes_changed(names: list[str]) -> None:
        router.nodes_seen(nodes.read_nodes(coordinator, names))

    paths = [f"partitions/{name}" for name in partitions]
    for path, found in zip(paths, coordinator.get_many(paths), strict=True):
        table_changed(path, found)
    coordinator.watch_members("partitions", table_changed)
    coordinator.watch_children("nodes", nodes_changed)
    nodes_changed(coordinator.children("nodes"))
