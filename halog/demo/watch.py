"""This module sees the cluster from outside: partition tables and each node's own status, asked over the network.

It never guesses: a node that does not answer has no status. One thread per node asks; all others read the answers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from halog.core import roles
from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router

ASK_S = 0.5
"""A node that needs longer is shown as silent."""
PAUSE_S = 0.3
"""Seconds between two rounds: three status answers cost the nodes 1 ms."""


class CopyStatus(msgspec.Struct, frozen=True):
    """Holds one copy, as its node describes it."""

    partition: str
    role: str
    lsn: int
    hash: str
    lag_records: int
    error: str | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """Holds one node, as it describes itself."""

    node: str
    pid: int
    copies: tuple[CopyStatus, ...]

    @property
    def lag(self) -> int:
        """Return how many records the copy that is furthest behind is behind."""
        return max((c.lag_records for c in self.copies), default=0)

    @property
    def failed(self) -> str | None:
        """Say why a copy cannot go on, if one cannot."""
        return next((f"{c.partition}: {c.error}" for c in self.copies if c.error), None)

    def leads(self) -> set[str]:
        """Return the partitions it believes to be active for."""
        return {c.partition for c in self.copies if c.role in LEADING}


LEADING = frozenset(role.value for role in roles.LEADING)


class ClusterWatch:
    """A `ClusterWatch` asks all nodes again and again; `latest` holds the answers."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.latest: dict[str, NodeStatus | None] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, node: str) -> None:
        """Begin to ask a node; one thread per node, so that a silent one hides no other."""
        self.latest[node] = None
        thread = threading.Thread(target=self._ask_on, args=(node,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def forget(self, node: str) -> None:
        """Drop the status of a node that has left."""
        with self._lock:
            del self.latest[node]

    def close(self) -> None:
        """End all asking."""
        self._closing.set()
        for thread in self._threads:
            thread.join(2 * ASK_S)

    def _ask_on(self, node: str) -> None:
        while not self._closing.wait(PAUSE_S):
            status = self.ask(node)
            with self._lock:
                if node not in self.latest:
                    return
                self.latest[node] = status

    def ask(self, node: str) -> NodeStatus | None:
        """Return the node's answer now, or None."""
        try:
            reply = self.router.request(node, frames.StatusRequest(), ASK_S)
            return msgspec.convert(reply.status, NodeStatus) if isinstance(reply, frames.StatusReply) else None
        except (HalogError, msgspec.ValidationError):
            return None

    @property
    def tables(self) -> dict[str, PartitionTable]:
        """Return all partitions, by name."""
        return {name: table for name, (_, table) in sorted(self.router.tables.items())}

    def led_by(self, node: str) -> list[str]:
        """Return the partitions a node is active for."""
        return [n for n, t in self.tables.items() if t.active is not None and t.active.node == node]

    def hosted(self, node: str) -> int:
        """Return how many partitions the node must have a copy of."""
        return sum(node in t.configured for t in self.tables.values())

    def in_every_list(self, node: str) -> bool:
        """Say whether the node is back in the node list of every partition it is configured for, in this
        incarnation."""
        info = self.router.nodes.get(node)
        return info is not None and all(
            t.active == info.member or any(r.member == info.member for r in t.replicas)
            for t in self.tables.values()
            if node in t.configured
        )


def is_up(status: NodeStatus | None, pid: int, partitions: int) -> bool:
    """Say whether the very process answers, and its copies have left loading."""
    if status is None or status.pid != pid or len(status.copies) < partitions:
        return False
    return all(c.role != "loading" for c in status.copies)


def uneven(statuses: Mapping[str, NodeStatus | None], partitions: Iterable[str]) -> list[str]:
    """Return partitions whose copies are not all at the same record of the same history; all of them if a node is
    silent."""
    positions: dict[str, set[Any]] = {p: set() for p in partitions}
    for status in statuses.values():
        if status is None:
            return list(positions)
        for copy in status.copies:
            positions.setdefault(copy.partition, set()).add((copy.lsn, copy.hash))
    return [p for p, seen in positions.items() if len(seen) != 1]
