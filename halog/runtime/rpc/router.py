"""Knows who is active for a partition, and how to reach it: in this site, or in the one that serves it (R5, M5).

The router knows the partition tables (watched in the coordinator) and the registered nodes' addresses, and asks other
sites (`halog.runtime.rpc.remote_sites`) for what this one only mirrors. How a request gets its answer is in `Request`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from halog.config.addresses import Addresses
from halog.core.table.table import PartitionTable
from halog.errors import DeadlineError, NotActiveError, UnreachableError
from halog.ports import Channel
from halog.runtime.rpc import frames
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.rpc.errors import from_frame, not_allowed
from halog.runtime.rpc.node_addresses import NodeAddresses
from halog.runtime.rpc.own_state import OwnState
from halog.runtime.rpc.remote_sites import RemoteSites, mirrored
from halog.runtime.rpc.request import HERE, OpenCommit, Request


def _seen_by_nobody(name: str, version: int, table: PartitionTable) -> None:
    """Nobody is told of tables."""


def _served_for_nobody(table: PartitionTable, site: str) -> None:
    """Nobody is told which site serves a partition."""


def _not_looked(partition: str) -> None:
    """Do nothing: nobody reads tables at once, and what is known stays."""


def _not_doubted(node: str) -> None:
    """Nobody is told that a node may not be up any more."""


def _none_missing(table: PartitionTable | None) -> str:
    return ""


class Router(ClusterView):
    """A `Router` brings requests to the node that is active, and is what a node knows of its own site. All threads of
    the node share it."""

    def __init__(
        self,
        me: str,
        channel: Channel,
        attempt_s: float,
        site: str = "this one",
        *,
        afar: RemoteSites | None = None,
        own: OwnState | None = None,
        seen: Callable[[str, int, PartitionTable], None] = _seen_by_nobody,
        served: Callable[[PartitionTable, str], None] = _served_for_nobody,
        look: Callable[[str], None] = _not_looked,
        missing: Callable[[PartitionTable | None], str] = _none_missing,
        silent: Callable[[str], None] = _not_doubted,
    ) -> None:
        """Know one's own site, whose name is `site`. `afar`: the other sites; without it nothing goes there. `own`:
        while it says that this node is offline, nothing is asked for in its name. `seen` is told of every table that is
        not older than the one before; `served` which other site serves a partition, or "", before anything is asked for
        there. `look` reads a partition's table at once. `missing` says which server is away that a partition needs; "":
        none, as far as this process finds. `silent` is told of a node of this site that may not be up any more: a
        request met nobody there, or a partition that it served went to another one. It never waits."""
        super().__init__(channel)
        self.me = me
        self.attempt_s = attempt_s
        self.site = site
        self.afar = afar
        self.own = own or OwnState()
        self.seen = seen
        self.served = served
        self.look = look
        self._missing = missing
        self._silent = silent

    def taken(self, name: str, version: int, table: PartitionTable) -> None:
        """See ClusterView."""
        self.served(table, _serving(table))
        self.seen(name, version, table)

    def doubted(self, node: str) -> None:
        """See ClusterView."""
        self._silent(node)

    def offline(self) -> str:
        """Return why this very node is offline; "": it is not (Q1)."""
        return self.own.why_offline

    def configure(self, addresses: Mapping[str, Addresses]) -> None:
        """Take the addresses that the configuration in force gives nodes, of this site and of others."""
        super().configure(addresses)
        if self.afar is not None:
            self.afar.configure(addresses)

    def missing(self, partition: str) -> str:
        """Return which server is away that a partition needs; "": none, as far as this process finds."""
        known = self.tables.get(partition)
        return self._missing(None if known is None else known[1])

    # --- which site ---

    def site_of(self, partition: str) -> str:
        """Return the other site that serves it, as far as this one knows; "": this one, also while it hands over."""
        known = self.tables.get(partition)
        return HERE if known is None else _serving(known[1])

    def has_moved(self, partition: str, site: str) -> bool:
        """Is it no more this site that serves it? Whoever made another one serve it has been answered, perhaps, before
        this node was told."""
        self.look(partition)
        return self.site_of(partition) != site

    def place(self, site: str, partition: str, until: float) -> ClusterView:
        """Return what knows about the nodes of a site that serves this partition. PartitionUnavailableError says why
        that one cannot be asked."""
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
        open_: OpenCommit | None = None,
    ) -> frames.Reply:
        """Send `frame` to the active node until one answers it; raises what the node answered, or when time is up.
        Raises LocalError as soon as `local()` says this very node is active; OutcomeUnknownError if an earlier attempt
        may have been acted on and there will be no other, because the node is closed. Where a refusal came behind an
        attempt that may have been, or may still be acted on, its evidence says `asked_before`; of a commit `may_arrive`
        if one is still to be reckoned with: it was for the epoch that refuses this one. `site`: not anywhere else; as a
        rule what it rests on says so. `open_`: of a commit, or a vote, what its earlier requests left open; behind it
        what all of them do. OutcomeUnknownError has its epoch as evidence, `epoch`."""
        return Request(self, partition, frame, deadline_s, local, site, open_ or OpenCommit()).answer()

    def once(self, where: ClusterView, target: str | None, data: bytes, until: float) -> frames.Reply:
        """Make one attempt at one node."""
        if where is self:
            return self._once(target, data, until)
        if target is None:
            raise NotActiveError("no node of the other site is known to be active")
        return self._reply(where.addresses_of(target), data, until)

    def _once(self, target: str | None, data: bytes, until: float) -> frames.Reply:
        if target is None or target == self.me:
            raise NotActiveError("no other node is known to be active")
        try:
            return self._reply(self.addresses_of(target), data, until)
        except (UnreachableError, DeadlineError):
            self._silent(target)
            raise

    def _reply(self, at: NodeAddresses, data: bytes, until: float) -> frames.Reply:
        timeout = max(0.001, min(self.attempt_s, until - time.monotonic()))
        return _checked(frames.decode_reply(at.ask(self.channel, data, timeout)))

    def request(self, node: str, frame: frames.Request, timeout_s: float) -> frames.Reply:
        """Ask one named node, once. UnauthorizedError: it does not let this process in."""
        if node not in self.nodes:
            raise UnreachableError(f"node {node} is not registered; see `halog node list`", node=node, sent=False)
        try:
            data = self.addresses_of(node).ask(self.channel, frames.encode(frame), timeout_s)
        except UnreachableError as error:
            raise not_allowed(error, node) or error from None
        return _checked(frames.decode_reply(data))


def _serving(table: PartitionTable) -> str:
    return table.owner if table.active is None else HERE


def _checked(reply: frames.Reply) -> frames.Reply:
    if type(reply) is frames.ErrorReply:
        raise from_frame(reply)
    return reply
