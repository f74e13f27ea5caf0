"""Knows the mapping of each policy, as the cluster holds it (`halog.metadata.mapped_policies`), and watches it (T8).

What is known is replaced whole, so whoever routes by it sees owners and versions that belong together.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import msgspec

from halog.backend import KnownMappings
from halog.core.keys.mapping import PolicyMapping
from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.metadata.mapped_policies import PolicyZnode, parse, path_of, read
from halog.ports import Coordinator, Versioned
from halog.runtime.keys.key_owners import Owner

logger = logging.getLogger("halog.mappings")


class MappingView(KnownMappings, frozen=True, eq=False):
    """Holds what a node knows at one time, all of a piece: whoever routes by it sees owners and versions that belong
    together."""

    mappings: Mapping[str, PolicyMapping] = {}
    updating: frozenset[str] = frozenset()
    """Partitions whose objects change partition, until all that are left belong there (P8)."""
    owners: dict[str, Owner] = msgspec.field(default_factory=dict)
    """By type, as they are asked for."""


def _nobody_told() -> None:
    """Nobody waits for a change."""


class MappingCache:
    """A `MappingCache` keeps what one node knows of mappings. It is thread-safe."""

    def __init__(
        self,
        coordinator: Coordinator,
        homes: Collection[str] = (),
        changed: Callable[[], None] = _nobody_told,
    ) -> None:
        """Begin with nothing known. `homes`: the policies that have a home, so that another site may serve their
        partitions some day. `changed` is called after every change, on any thread."""
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._znodes: dict[str, int] = {}
        """By policy, the version of the znode that is known: what was read may be told late."""
        self._changed = changed
        self._homes = homes
        self.now = MappingView()

    @property
    def known(self) -> Mapping[str, PolicyMapping]:
        """Return the mappings by policy."""
        return self.now.mappings

    def watch(self, policies: Mapping[str, Any]) -> None:
        """Read the mappings of these policies, and hear of every change from now on."""
        for policy in policies:
            self.learn(policy)
            self._coordinator.watch(path_of(policy), partial(self._seen, policy))

    def learn(self, policy: str) -> PolicyMapping:
        """Read what the cluster holds now, whatever the watch has told."""
        self._coordinator.sync(path_of(policy))
        self._take(policy, read(self._coordinator, policy))
        return self.known[policy]

    def _seen(self, policy: str, path: str, found: Versioned | None) -> None:
        if found is None:
            return
        try:
            standing = parse(path, found)
        except HalogError as e:
            logger.error("this process goes on with the mapping of policy %s that it knows: %s", policy, e)
            return
        self._take(policy, standing)

    def _take(self, policy: str, standing: PolicyZnode) -> None:
        mapping = standing.mapping
        with self._lock:
            if self._znodes.get(policy, -1) >= standing.znode:
                return
            self._znodes[policy] = standing.znode
            if self.known.get(policy) == mapping:
                return
            known = {**self.known, policy: mapping}
            policies = {**self.now.policies, **dict.fromkeys(mapping.partition_names(policy), policy)}
            versions = {name: known[p].version for name, p in policies.items() if known[p].version}
            updating = frozenset(name for p, m in known.items() for name in m.updating(p))
            listed = {name: known[p].kind for name, p in policies.items() if known[p].kind}
            leaving = frozenset(n for n in listed if n not in known[policies[n]].newest.partition_names(policies[n]))
            changing = any(m.next is not None for m in known.values())
            self.now = MappingView(
                versions, changing, listed, leaving, policies, self.now.sites, mappings=known, updating=updating
            )
        self._changed()

    def served(self, table: PartitionTable, site: str) -> None:
        """Note that another site serves a partition from now on; "": this one does. This is told of every partition;
        nothing is noted of those that no other site may ever serve."""
        with self._lock:
            sites = self.now.sites
            noted = site or table.name in sites or table.policy in self._homes
            if noted and sites.get(table.name) != site:
                self.now = msgspec.structs.replace(self.now, sites={**sites, table.name: site})
