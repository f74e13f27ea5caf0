"""This module says where keys belong, as one node knows it: it is asked for every key, and again when a mapping changes
(P6, T8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from halog.core.keys.mapping import Place, PolicyMapping
from halog.errors import CoordinatorError, UnknownTypeError, UnreachableError
from halog.runtime.keys.create_placement import CreatePlacement
from halog.runtime.keys.key_owners import Owner, Places
from halog.runtime.keys.loads import PartitionLoads
from halog.runtime.keys.mapping_cache import MappingCache
from halog.runtime.rpc.router import Router
from mappers import NewObject

AGAIN_S = 0.05
"""Pause before the coordinator is asked again for a mapping."""


def _stays_open() -> bool:
    return False


class Routing:
    """Says where keys belong, and where new objects go, for one node."""

    def __init__(
        self,
        places: Places,
        mappings: MappingCache,
        router: Router,
        loads: PartitionLoads,
        start: bytes = b"",
        closing: Callable[[], bool] = _stays_open,
    ) -> None:
        """`start` names this process, so that not all begin their rounds at the same partition. `closing` says whether
        nobody is to wait any more."""
        self.places = places
        self._router = router
        self.mappings = mappings
        self.loads = loads
        self.choosing = CreatePlacement(places.config, loads, start)
        self._closing = closing

    def owner(self, type_name: str) -> Owner:
        """Return who decides for a type now. Raises UnknownTypeError, ConfigError."""
        now = self.mappings.now
        found = now.owners.get(type_name)
        if found is None:
            found = now.owners[type_name] = self.places.owner(type_name, now.mappings)
        return found

    def partition_of(self, type_name: str, routing_key: bytes) -> str:
        """See Backend."""
        return self.owner(type_name).partition(type_name, routing_key)

    def place_of(self, type_name: str, routing_key: bytes) -> Place:
        """See Backend."""
        return self.owner(type_name).place(type_name, routing_key)

    def next_partition(self, type_name: str, made: Callable[[], NewObject]) -> str:
        """See Backend."""
        return self.choosing.next_of(self.owner(type_name), made)

    def partitions_of(self, type_name: str) -> Sequence[str]:
        """See Backend."""
        return self.owner(type_name).partitions

    def had(self, type_name: str, partition: str) -> bool:
        """See Backend. Raises ConfigError."""
        try:
            owner = self.owner(type_name)
        except UnknownTypeError:
            return False
        return partition in owner.partitions or self.mappings.now.policies.get(partition) == owner.policy

    def relearn(self, partition: str, version: int) -> None:
        """See Backend. Raises CoordinatorError if the cluster holds no such version, UnreachableError if the
        coordinator does not answer within the time of a call."""
        known = self._router.tables.get(partition)
        if known is None:
            return
        policy = known[1].policy
        if self.learned(policy, version).version < version:
            raise CoordinatorError(
                f"partition {partition} serves mapping version {version}, znode policies/{policy} has an older one: "
                "was ZooKeeper put back to an older state?",
                partition=partition,
            )

    def learned(self, policy: str, version: int) -> PolicyMapping:
        """Return the mapping that the cluster has, where a partition serves this version. A coordinator that is away is
        waited for as a failover is: a session that ended while this process slept is soon replaced."""
        limit_s = self._limit_s(policy)
        until = time.monotonic() + limit_s
        while True:
            try:
                return self.mappings.learn(policy)
            except UnreachableError as error:
                known = self.mappings.known.get(policy)
                if known is not None and known.version >= version:  # told by its watch meanwhile
                    return known
                if self._closing() or time.monotonic() >= until:
                    raise UnreachableError(
                        f"a partition of policy {policy} serves mapping version {version}, which could not be read "
                        f"within {limit_s:g} s: {error.message}; nothing was done; run it again once ZooKeeper "
                        "answers",
                        policy=policy,
                    ) from error
            time.sleep(AGAIN_S)

    def _limit_s(self, policy: str) -> float:
        config = self.places.config
        own = config.policies[policy].call_deadline_ms if policy in config.policies else None
        return (config.timing.call_deadline_ms if own is None else own) / 1000
