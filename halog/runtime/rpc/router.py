"""Who is active for a partition, and how to reach it: in this site, or in the one that serves it (R5, M5).

The router knows the partition tables (watched in the coordinator) and the registered nodes' addresses, and asks other
sites (`halog.runtime.rpc.remote_sites`) for what this one only mirrors. How a request gets its answer is in `Request`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from halog.core.table.table import PartitionTable
from halog.errors import NotActiveError, UnreachableError
from halog.ports import Channel
from halog.runtime.rpc import frames
from halog.runtime.rpc.cluster_view import Known
from halog.runtime.rpc.errors import from_frame
from halog.runtime.rpc.remote_sites import Afar, mirrored
from halog.runtime.rpc.request import HERE, Open, Request


class Router(Known):
    """Shared by all threads of a node. Of its own site, whose name is `site`, it is what is known."""

    def __init__(self, me: str, channel: Channel, attempt_s: float, site: str = "this one") -> None:
        super().__init__(channel)
        self.me = me
        self.attempt_s = attempt_s
        self.site = site
        self.afar: Afar | None = None
        """The other sites; None: nothing goes there."""
        self.seen: Callable[[str, int, PartitionTable], None] = lambda name, version, table: None
        """Told of every table that is not older than the one before."""
        self.served: Callable[[PartitionTable, str], None] = lambda table, site: None
        """Told which other site serves a partition, or "", before anything is asked for there."""
        self.look: Callable[[str], None] = lambda partition: None
        """Reads a partition's table at once."""
        self.offline: Callable[[], str] = lambda: ""
        """Why this very node is offline, if it is (Q1): then nothing is asked for in its name."""
        self.missing: Callable[[str], str] = lambda partition: ""
        """Which server is away that a partition needs; "": none, as far as this process finds."""

    def taken(self, name: str, version: int, table: PartitionTable) -> None:
        """See Known."""
        self.served(table, _serving(table))
        self.seen(name, version, table)

    # --- which site ---

    def site_of(self, partition: str) -> str:
        """The other site that serves it, as far as this one knows; "": this one, also while it hands over."""
        known = self.tables.get(partition)
        return HERE if known is None else _serving(known[1])

    def has_moved(self, partition: str, site: str) -> bool:
        """Is it no more this site that serves it? Whoever made another one serve it has been answered, perhaps, before
        this node was told."""
        self.look(partition)
        return self.site_of(partition) != site

    def place(self, site: str, partition: str, until: float) -> Known:
        """Who knows about the nodes of a site that serves this partition. PartitionUnavailableError says why that one
        cannot be asked."""
        if site == HERE:
            return self
        if self.afar is None:
            raise mirrored(partition, site)
        return self.afar.serving(site, self.tables[partition][1], until)

    # --- asking ---

    def ask(
        self,
        partition: str,
        frame: frames.Request,
        deadline_s: float,
        local: Callable[[], bool],
        site: str | None = None,
        open_: Open | None = None,
    ) -> frames.Reply:
        """Send `frame` to the active node until one answers it; raises what the node answered, or when time is up.
        Raises LocalError as soon as `local()` says this very node is active; OutcomeUnknownError if an earlier attempt
        may have been acted on and there will be no other, because the node is closed. Where a refusal came behind an
        attempt that may have been, or may still be acted on, its evidence says `asked_before`; of a commit `may_arrive`
        if one is still to be reckoned with: it was for the epoch that refuses this one. `site`: not anywhere else; as a
        rule what it rests on says so. `open_`: of a commit, or a vote, what its earlier requests left open; behind it
        what all of them do. OutcomeUnknownError has its epoch as evidence, `epoch`."""
        return Request(self, partition, frame, deadline_s, local, site, open_ or Open()).answer()

    def once(self, where: Known, target: str | None, data: bytes, until: float) -> frames.Reply:
        """One attempt at one node."""
        if where is self:
            return self._once(target, data, until)
        if target is None:
            raise NotActiveError("no node of the other site is known to be active")
        return self._reply(where.address_of(target), data, until)

    def _once(self, target: str | None, data: bytes, until: float) -> frames.Reply:
        if target is None or target == self.me:
            raise NotActiveError("no other node is known to be active")
        return self._reply(self.address_of(target), data, until)

    def _reply(self, address: str, data: bytes, until: float) -> frames.Reply:
        timeout = max(0.001, min(self.attempt_s, until - time.monotonic()))
        return _checked(frames.decode_reply(self.channel.request(address, data, timeout)))

    def request(self, node: str, frame: frames.Request, timeout_s: float) -> frames.Reply:
        """Ask one named node, once."""
        info = self.nodes.get(node)
        if info is None:
            raise UnreachableError(f"node {node} is not registered; see `halog node list`", node=node, sent=False)
        return _checked(frames.decode_reply(self.channel.request(info.address, frames.encode(frame), timeout_s)))


def _serving(table: PartitionTable) -> str:
    return table.owner if table.active is None else HERE


def _checked(reply: frames.Reply) -> frames.Reply:
    if type(reply) is frames.Failed:
        raise from_frame(reply)
    return reply
