"""This module keeps what is known of one site's partitions and nodes: its tables, its registrations, and how each node
is reached.

A node's router knows its own site by it, and each other site that requests go to. Whoever feeds it watches that site's
coordinator. This module decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from halog.config.addresses import Addresses
from halog.core.table.table import PartitionTable
from halog.errors import UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.ports import Channel
from halog.runtime.rpc.discovery import AS_REGISTERED, Discovery
from halog.runtime.rpc.node_addresses import NodeAddresses
from halog.runtime.rpc.versions import check_spoken, mismatch_of

RETRY_S = 0.01
"""Pause between attempts when nothing tells us of a change: an election takes a few tens of ms."""


class ClusterView:
    """Keeps what is known of one site, for all threads of a node. `addresses`: of nodes that this process reaches
    otherwise than they have registered (N2)."""

    def __init__(self, channel: Channel, addresses: Mapping[str, Addresses] = AS_REGISTERED) -> None:
        self.channel = channel
        self._discovery = Discovery(addresses)
        self.changed = threading.Condition()
        self.tables: dict[str, tuple[int, PartitionTable]] = {}
        self.nodes: dict[str, NodeInfo] = {}
        """The registered nodes, with the addresses by which they are reached from here."""

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
            for address in dead.reached:
                self.channel.drop(address)
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
        with self.changed:
            self._discovery.registered(nodes)
            gone = self._reached_anew(nodes)
        for address in gone:
            self.channel.drop(address)

    def configure(self, addresses: Mapping[str, Addresses]) -> None:
        """Take the addresses that the configuration in force gives nodes, which count from now on: requests waiting at
        one that it does not give any more fail now."""
        with self.changed:
            self._discovery.configured(addresses)
            gone = self._reached_anew(self.nodes)
        for address in gone:
            self.channel.drop(address)

    def _reached_anew(self, names: Iterable[str]) -> set[str]:
        """Look up where these nodes are reached; they are all that are registered. Returns the addresses of registered
        nodes that are in use no more."""
        before = {address for info in self.nodes.values() for address in info.reached}
        found = ((name, self._discovery.last_seen(name)) for name in names)
        self.nodes = {name: self._discovery.as_reached(info) for name, info in found if info is not None}
        for info in self.nodes.values():
            for address in info.reached:
                self.channel.expect(address, info.name, tls=info.tls)
        self.changed.notify_all()
        return before - {address for info in self.nodes.values() for address in info.reached}

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

    def addresses_of(self, node: str) -> NodeAddresses:
        """Return how a node is reached, or was when it was seen last. UnreachableError if it never was, and no address
        is configured; VersionMismatchError if it has registered protocols of which this process speaks none."""
        at, info = self._discovery.by_name(node), self._discovery.last_seen(node)
        if at is None:
            raise UnreachableError(f"node {node} was never registered", sent=False)
        if info is not None and node in self.nodes:
            check_spoken(info)
        elif info is not None and (error := mismatch_of(info)) is not None:  # it is gone, and another one comes
            raise UnreachableError(f"node {node} is not registered; last it was: {error}", node=node, sent=False)
        return at

    def at_location(self, code: int) -> str | None:
        """Return the name of the node with this location code (N2); None: no such node is known."""
        return self._discovery.by_location(code)

    def pause(self, partition: str, seen: int, until: float) -> None:
        """Wait for a table that is newer than `seen`, but not for long."""
        with self.changed:
            left = min(RETRY_S, until - time.monotonic())
            self.changed.wait_for(lambda: self.stamp(partition) != seen, max(0.0, left))
