"""The mapping of each policy, as the cluster holds it and as a node knows it (T8).

policies/<name>    JSON: what all nodes must agree on of a policy; what decides where a key belongs is among it:
                   `mapper`, `partitions`, `ring_size`, and `mapper_version`, `names` where there are any; `mapping`:
                   its version, absent before the first change; `changing`: a change under way. By compare-and-set only

Once a mapping has changed, or is being changed, this znode wins over every file: a process with an older one goes by it
and says so. Before that a file that says otherwise is refused, as it always was (`halog.runtime.placement.bootstrap`).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from halog.backend import Mapped
from halog.config import Config
from halog.core.keys.mapping import Changing, Layout, PolicyMapping
from halog.core.table.table import PartitionTable
from halog.errors import CoordinatorError, OutcomeUnknownError, UnknownNameError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned
from halog.runtime.keys.key_owners import Owner

LAYOUT = ("mapper", "partitions", "ring_size", "mapper_version", "names")
STATE = ("mapping", "changing")

ATTEMPTS = 50
"""Nodes that note their clean partitions meet: each attempt that fails is another one's that went through."""


class Standing(NamedTuple):
    """What a znode holds: the mapping, everything else, and its version for the compare-and-set."""

    mapping: PolicyMapping
    said: Mapping[str, Any]
    znode: int


def path_of(policy: str) -> str:
    """The policy's znode."""
    return f"policies/{policy}"


def parse(path: str, found: Versioned) -> Standing:
    """CoordinatorError for what is no mapping."""
    try:
        said = msgspec.json.decode(found.data, type=dict[str, Any])
        return Standing(told(said), said, found.version)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CoordinatorError(f"znode {path} does not hold a policy's mapping: {error}") from error


def told(said: Mapping[str, Any]) -> PolicyMapping:
    """The mapping among all that is said of a policy."""
    now = msgspec.convert({name: said[name] for name in LAYOUT if name in said}, Layout)
    changing = None if "changing" not in said else msgspec.convert(said["changing"], Changing)
    return PolicyMapping(now, int(said.get("mapping", 0)), changing)


def packed(said: Mapping[str, Any], mapping: PolicyMapping) -> bytes:
    """The znode's content: what a mapping does not use is absent, so that one never changed reads as it always did."""
    kept = {name: value for name, value in said.items() if name not in STATE}
    layout = msgspec.to_builtins(mapping.now)
    kept = {name: value for name, value in kept.items() if name not in LAYOUT or name in layout} | layout
    if mapping.version:
        kept["mapping"] = mapping.version
    if mapping.changing is not None:
        kept["changing"] = msgspec.to_builtins(mapping.changing)
    return msgspec.json.encode(kept)


def read(coordinator: Coordinator, policy: str) -> Standing:
    """What the cluster holds of a policy. UnknownNameError if it has no such policy."""
    found = coordinator.get(path_of(policy))
    if found is None:
        raise UnknownNameError.of("policy", policy, sorted(coordinator.children("policies")))
    return parse(path_of(policy), found)


def read_all(coordinator: Coordinator) -> dict[str, PolicyMapping]:
    """Of every policy that the cluster has."""
    return {name: read(coordinator, name).mapping for name in coordinator.children("policies")}


def step(coordinator: Coordinator, policy: str, taken: Callable[[PolicyMapping], PolicyMapping]) -> PolicyMapping:
    """Take one step of a change by compare-and-set, and again from what others have made of it; the mapping then.
    What `taken` raises passes."""
    path = path_of(policy)
    for _ in range(ATTEMPTS):
        standing = read(coordinator, policy)
        new = taken(standing.mapping)
        if new == standing.mapping:
            return new
        try:
            coordinator.set(path, packed(standing.said, new), standing.znode)
        except (VersionError, UnknownResult):
            coordinator.sync(path)
            continue
        return new
    raise OutcomeUnknownError(f"znode {path} was changed by others {ATTEMPTS} times in a row", policy=policy)


def with_all_partitions(config: Config, held: Mapping[str, PolicyMapping]) -> Config:
    """The configuration with as many partitions as the cluster has, or is about to have."""
    policies = dict(config.policies)
    for name, policy in config.policies.items():
        if name in held and not policy.static:
            policies[name] = dataclasses.replace(policy, partitions=len(held[name].partition_names(name)))
    return dataclasses.replace(config, policies=policies)


def with_made_partitions(config: Config, held: Mapping[str, PolicyMapping]) -> Config:
    """The same without those that a change is about to add: before it is open nobody has made them for certain, nor
    needs them."""
    made = {
        name: PolicyMapping(mapping.now) if mapping.changing is not None and not mapping.changing.open else mapping
        for name, mapping in held.items()
    }
    return with_all_partitions(config, made)


class Known(Mapped, frozen=True, eq=False):
    """What a node knows at one time, all of a piece: whoever routes by it is led to owners and versions that belong
    together."""

    mappings: Mapping[str, PolicyMapping] = {}
    updating: frozenset[str] = frozenset()
    """Partitions whose objects change partition, until all that are left belong there (P8)."""
    owners: dict[str, Owner] = msgspec.field(default_factory=dict)
    """By type, as they are asked for."""


class Mappings:
    """What one node knows. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._znodes: dict[str, int] = {}
        """By policy, the version of the znode that is known: what was read may be told late."""
        self.changed: Callable[[], None] = lambda: None
        """Called behind every change, on any thread; so is"""
        self.noted: Callable[[], None] = lambda: None
        self.now = Known()
        self.homes: Collection[str] = ()
        """Policies that have one, so that another site may serve their partitions some day."""

    @property
    def known(self) -> Mapping[str, PolicyMapping]:
        """By policy."""
        return self.now.mappings

    def watch(self, policies: Mapping[str, Any]) -> None:
        """Learn what is, and of every change from now on."""
        for policy in policies:
            self.learn(policy)
            self._coordinator.watch(path_of(policy), partial(self._seen, policy))

    def learn(self, policy: str) -> PolicyMapping:
        """What the cluster holds now, whatever the watch has told."""
        self._coordinator.sync(path_of(policy))
        self._take(policy, read(self._coordinator, policy))
        return self.known[policy]

    def _seen(self, policy: str, path: str, found: Versioned | None) -> None:
        if found is not None:
            self._take(policy, parse(path, found))

    def _take(self, policy: str, standing: Standing) -> None:
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
            self.now = Known(
                versions, changing, listed, leaving, policies, self.now.sites, mappings=known, updating=updating
            )
        self.changed()
        self.noted()

    def served(self, table: PartitionTable, site: str) -> None:
        """Another site serves it from now on; "": this one does. Told of every partition; of those that no other site
        may ever serve nothing is noted."""
        with self._lock:
            sites = self.now.sites
            noted = site or table.name in sites or table.policy in self.homes
            if noted and sites.get(table.name) != site:
                self.now = msgspec.structs.replace(self.now, sites={**sites, table.name: site})
