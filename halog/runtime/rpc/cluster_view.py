"""This module keeps what is known of one site's partitions and nodes: its tables, its registrations, and how each node
is reached.

A node's router knows its own site by it, and each other site that requests go to. Whoever feeds it watches that site's
coordinator. This module decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.ports import Channel
from halog.runtime.rpc.versions import check_spoken, mismatch_of

RETRY_S = 0.01
"""Pause between attempts when nothing tells us of a change: an election takes a few tens of ms."""

AS_REGISTERED: Final[Mapping[str, str]] = MappingProxyType({})


class ClusterView:
    """Keeps what is known of one site, for all threads of a node. `addresses`: host:port of nodes that are reached
    otherwise than they have registered (N2)."""

    def __init__(self, channel: Channel, addresses: Mapping[str, str] = AS_REGISTERED) -> None:
        self.channel = channel
        self._addresses = addresses
        self.changed = threading.Condition()
        self.tables: dict[str, tuple[int, PartitionTable]] = {}
        self.nodes: dict[str, NodeInfo] = {}
        self._last: dict[str, NodeInfo] = {}
        """The last registration of every node, also of those whose session ended: they may serve on."""

    def table_seen(self, name: str, version: int, table: PartitionTable) -> None:
        """A partition's znode was read: requests waiting at an active node that was found dead fail now, long before
        its session ends (a stopped process keeps its connections open)."""
        dead: NodeInfo | None = None
        with self.changed:
            known = self.tables.get(name)
            if known is None or version >= known[0]:
                self.tables[name] = (version, table)
                self.taken(name, version, table)
                if known is not None and known[1].active not in (None, table.active):
                    dead = self._dropped(known[1], table)
                self.changed.notify_all()
        if dead is not None:
            self.channel.drop(dead.address)
            self.doubted(dead.name)

    def anew(self) -> None:
        """Begin anew: what is read from now on is another connection's, and counts whatever its version. The
        coordinator may have been built anew."""
        with self.changed:
            self.tables = {name: (-1, table) for name, (_, table) in self.tables.items()}

    def taken(self, name: str, version: int, table: PartitionTable) -> None:
        """Do what is to be done once a table was taken that is not older than the one before; nobody has routed by it
        yet."""

    def doubted(self, node: str) -> None:
        """Do what is to be done once something says that a node may not be up any more."""

    def _dropped(self, before: PartitionTable, now: PartitionTable) -> NodeInfo | None:
        """Return the former active node, if it is not in the node list any more: after a hand-over it would be."""
        assert before.active is not None
        return None if before.active.node in now.node_list else self.nodes.get(before.active.node)

    def nodes_seen(self, nodes: dict[str, NodeInfo]) -> None:
        """Take the registered nodes, which changed: requests waiting at one that is gone fail now."""
        now = {name: self._as_reached(info) for name, info in nodes.items()}
        with self.changed:
            gone = {i.address for i in self.nodes.values()} - {i.address for i in now.values()}
            self.nodes = now
            self._last.update(now)
            self.changed.notify_all()
        for address in gone:
            self.channel.drop(address)

    def _as_reached(self, info: NodeInfo) -> NodeInfo:
        address = self._addresses.get(info.name)
        return info if address is None else msgspec.structs.replace(info, address=address)

    def nudge(self) -> None:
        """Something that waiting callers should look at has changed."""
        with self.changed:
            self.changed.notify_all()

    def active(self, partition: str) -> str | None:
        """Return the name of the node that should be active."""
        known = self.tables.get(partition)
        if known is None or known[1].active is None:
            return None
        return known[1].active.node

    def epoch(self, partition: str) -> int:
        """Return the highest epoch number known of a partition."""
        known = self.tables.get(partition)
        return 0 if known is None else known[1].epoch.number

    def stamp(self, partition: str) -> int:
        """Return a number that is another one with each change of a partition's table."""
        known = self.tables.get(partition)
        return -1 if known is None else known[0]

    def address_of(self, node: str) -> str:
        """Where a node listens, or did when it was seen last. UnreachableError if it never was; VersionMismatchError if
        it has registered protocols of which this process speaks none."""
        info = self._last.get(node)
        if info is None:
            raise UnreachableError(f"node {node} was never registered", sent=False)
        if node in self.nodes:
            check_spoken(info)
        elif (error := mismatch_of(info)) is not None:  # it is gone, and another one comes
            raise UnreachableError(f"node {node} is not registered; last it was: {error}", node=node, sent=False)
        return info.address

    def pause(self, partition: str, seen: int, until: float) -> None:
        """Wait for a table that is newer than `seen`, but not for long."""
        with self.changed:
            left = min(RETRY_S, until - time.monotonic())
            self.changed.wait_for(lambda: self.stamp(partition) != seen, max(0.0, left))
