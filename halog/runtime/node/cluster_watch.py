"""Tells a running node's parts what it hears from the coordinator: tables change, nodes come and go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from halog.config.addresses import Addresses
from halog.config.security import REQUIRED, SecurityConfig
from halog.errors import HalogError
from halog.metadata import nodes
from halog.metadata.nodes import NodeInfo
from halog.ports import Coordinator
from halog.runtime.client.caller import Asker
from halog.runtime.membership.members import Membership
from halog.runtime.membership.witness import TlsAddresses, Witness
from halog.runtime.node.certificate_files import certificate_files
from halog.runtime.node.knowledge import Knowledge
from halog.runtime.node.registration import AGAIN_S
from halog.runtime.rpc import frames

logger = logging.getLogger("halog.node")


class CoordinatorWatch:
    """A `CoordinatorWatch` passes on what the coordinator tells. `members`: of a hosting node, else None."""

    def __init__(
        self,
        coordinator: Coordinator,
        hello: frames.Hello,
        asker: Asker,
        known: Knowledge,
        members: Membership | None,
        witness: Witness | None,
        security: SecurityConfig,
    ) -> None:
        self._files = certificate_files(security, asker.name)
        self._requires_tls = security.node_tls == REQUIRED
        self._coordinator = coordinator
        self._hello = hello
        self._asker = asker
        self._known = known
        self._members = members
        self._witness = witness
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Hear of every change from now on."""
        self._coordinator.watch_members("partitions", self._known.table_changed)
        self._coordinator.watch_children("nodes", self._nodes_changed)

    def _nodes_changed(self, names: list[str]) -> None:
        """Read the registered nodes. The watch tells a change once: what cannot be read now is read later."""
        with self._lock:  # what is read later is applied later
            try:
                infos = nodes.read_nodes(self._coordinator, self._coordinator.children("nodes"))
            except HalogError as e:
                if not self._asker.closed:
                    logger.warning("could not read the registered nodes, going on trying: %s", e)
                    threading.Thread(target=self._look_later, name="halog-later", daemon=True).start()
                return
            self._known.router.nodes_seen(infos)
            self._tell(self._known.router.nodes)

    def _look_later(self) -> None:
        time.sleep(AGAIN_S)
        self._nodes_changed([])

    def configure(self, addresses: Mapping[str, Addresses]) -> None:
        """Take the addresses that the configuration in force gives nodes."""
        with self._lock:
            self._known.router.configure(addresses)
            self._tell(self._known.router.nodes)

    def _tell(self, infos: dict[str, NodeInfo]) -> None:
        """Tell the registered nodes, with the addresses by which they are reached."""
        if self._members is not None:
            self._members.registrations(infos)
        else:
            if self._known.asks is not None:
                self._known.asks.registrations(infos)
            self._known.lives.members_seen(frozenset(i.member for i in infos.values() if i.hosts), "")
        if self._witness is not None:
            others = [i for i in infos.values() if i.hosts and i.name != self._asker.name]
            self._witness.others(self._hello, *self._by_tls(others))

    def _by_tls(self, others: list[NodeInfo]) -> tuple[list[str], TlsAddresses | None]:
        """Return the addresses that are told without TLS, and those with it."""
        if self._files is None:
            return [a for i in others for a in i.reached], None
        with_it = [i for i in others if i.tls or self._requires_tls]
        plain = [a for i in others if i not in with_it for a in i.reached]
        return plain, TlsAddresses([a for i in with_it for a in i.reached], self._files)
