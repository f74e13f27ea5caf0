"""This module finds where the nodes of a site are reached: by a node's name, or by its location code (N2).

There are two sources: what a node has registered, and what the configuration says of it, which wins. Of the latter
`[sites.NAME.nodes]` of a process's own file wins over `[discovery]`, which all processes share and an activation
changes at once. What was found is kept until its source changes; a node whose registration ended is still found where
it was, since it may serve on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from halog.config.addresses import Addresses, listed
from halog.core.ids import location_code
from halog.metadata.nodes import NodeInfo
from halog.runtime.rpc.node_addresses import NodeAddresses

AS_REGISTERED: Final[Mapping[str, Addresses]] = MappingProxyType({})
"""No node is configured to be reached otherwise than it has registered."""


class Discovery:
    """A `Discovery` keeps what is known of the addresses of one site's nodes. Its owner lets one thread change it at a
    time; any thread may ask."""

    def __init__(self, own: Mapping[str, Addresses] = AS_REGISTERED) -> None:
        """Begin with what a process's own file says of the nodes of another site."""
        self._own = own
        self._shared = AS_REGISTERED
        self._infos: dict[str, NodeInfo] = {}
        """By name, the last registration, also of hosting nodes whose session ended."""
        self._found: dict[str, NodeAddresses] = {}
        """What was found, by name."""
        self._names: dict[int, str] = {}
        """Names that were found, by location code."""

    def registered(self, nodes: Mapping[str, NodeInfo]) -> None:
        """Take the registered nodes, which changed."""
        self._infos = {name: info for name, info in self._infos.items() if info.reached} | dict(nodes)
        self._look_again()

    def configured(self, shared: Mapping[str, Addresses]) -> None:
        """Take what the configuration in force says of nodes, for all processes."""
        self._shared = shared
        self._look_again()

    def _look_again(self) -> None:
        """Forget what was found of each node whose addresses changed: the others keep the address that is in use."""
        names = dict.fromkeys((*self._infos, *self._shared, *self._own))
        found = {name: self._addresses(name) for name in names}
        kept = {name: at for name, at in self._found.items() if found.get(name) == at.addresses}
        self._found = {
            name: kept.get(name) or NodeAddresses(addresses) for name, addresses in found.items() if addresses
        }
        self._names = {}

    def _addresses(self, name: str) -> tuple[str, ...]:
        info = self._infos.get(name)
        if info is not None and not info.reached:
            return ()  # a client, which nobody connects to
        said = listed(self._own.get(name) or self._shared.get(name, ""))
        return said or (() if info is None else info.reached)

    def by_name(self, node: str) -> NodeAddresses | None:
        """Return how a node is reached; None: no address of it is known."""
        return self._found.get(node)

    def by_location(self, code: int) -> str | None:
        """Return the name of the node with this location code; None: no such node is known."""
        names = self._names
        if code not in names:
            found = next((name for name in (*self._infos, *self._found) if location_code(name) == code), None)
            if found is None:
                return None
            names[code] = found
        return names[code]

    def last_seen(self, node: str) -> NodeInfo | None:
        """Return what a node registered last; None: nothing."""
        return self._infos.get(node)

    def as_reached(self, info: NodeInfo) -> NodeInfo:
        """Return a registration with the addresses by which the node is reached from here."""
        at = self._found.get(info.name)
        if at is None or at.addresses == info.reached:
            return info
        return msgspec.structs.replace(info, address=at.addresses[0], addresses=at.addresses)
