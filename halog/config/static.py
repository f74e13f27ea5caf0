"""This module handles static policies: partitions named by hand, each with its node list (P3); from TOML, back to it,
and what is wrong.

    [policies.fixed]
    kind = "static"
    zone = "main"

    [policies.fixed.partitions]
    eu = ["A", "B"]                                    # the preferred node first; `sync_replicas` of the others sync
    us = { nodes = ["B", "A", "C"], async = ["C"] }    # or said for each node
    asia = []                                          # the application or an operator places it (P7)

It never says where a partition is: the partition's table does, which follows the file only when an operator says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from halog.config.model import Config, PolicyConfig

DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
KINDS: Final = (DYNAMIC, STATIC)

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class StaticPartition:
    """Describes one partition of a static policy (P3)."""

    nodes: tuple[str, ...]
    """Nodes in priority order: the first that is up is active. Empty: the application or an operator places it (P7)."""
    asynchronous: tuple[str, ...] | None = None
    """Nodes that commits do not wait for, `async` in the file; None: all but the policy's `sync_replicas`."""

    def sync_replicas(self, policy: PolicyConfig) -> int:
        """Return how many of its replicas commits wait for: the first ones behind the active node."""
        replicas = max(0, len(self.nodes) - 1)
        wanted = policy.sync_replicas if self.asynchronous is None else replicas - len(self.asynchronous)
        return max(0, min(wanted, replicas))


class WrongPartitionsError(ValueError):
    """A table of partitions cannot be read."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class CopyCounts(NamedTuple):
    """Says what is to be checked of a partition's copies. `key`: the key that an error names."""

    key: str
    copies: int
    sync_replicas: int


def partition_names(policy_name: str, policy: PolicyConfig) -> tuple[str, ...]:
    """Return a policy's partitions in the order of their index: as the file names them, else `<policy>-<index>`
    (P1)."""
    return tuple(policy.static) or tuple(f"{policy_name}-{i}" for i in range(policy.partitions))


def shapes(key: str, policy: PolicyConfig) -> list[CopyCounts]:
    """Return every number of copies that the policy's partitions have."""
    if policy.static:
        return [
            CopyCounts(f"{key}.partitions.{name}", len(p.nodes), p.sync_replicas(policy))
            for name, p in policy.static.items()
            if p.nodes
        ]
    return [CopyCounts(f"{key}.sync_replicas", 1 + policy.sync_replicas + policy.async_replicas, policy.sync_replicas)]


# --- from and to TOML ---


def taken_out(
    table: Mapping[str, Any],
) -> tuple[Mapping[str, Any], dict[str, Mapping[str, StaticPartition]], list[tuple[str, str]]]:
    """Return the parsed file with a number in place of each table of partitions; these tables by policy; and (key,
    reason) of what is wrong with them."""
    policies, problems = table.get("policies"), list[tuple[str, str]]()
    if not isinstance(policies, Mapping):
        return table, {}, problems
    found, plain = {}, {}
    for name, policy in policies.items():
        given = policy.get("partitions") if isinstance(policy, Mapping) else None
        plain[name] = policy
        if isinstance(given, Mapping):
            try:
                found[name] = _read(f"policies.{name}.partitions", given)
            except WrongPartitionsError as error:
                problems.append((error.key, error.reason))
            plain[name] = {**policy, "partitions": len(given)}
    return {**table, "policies": plain}, found, problems


def _read(where: str, given: Mapping[str, Any]) -> Mapping[str, StaticPartition]:
    if not given:
        raise WrongPartitionsError(where, 'must name at least one partition, as in eu = ["A", "B"]')
    return MappingProxyType({name: _read_one(f"{where}.{name}", entry) for name, entry in given.items()})


def _read_one(where: str, entry: Any) -> StaticPartition:
    if not isinstance(entry, Mapping):
        return StaticPartition(_strings(where, entry))
    unknown = [key for key in entry if key not in ("nodes", "async")]
    if unknown:
        raise WrongPartitionsError(f"{where}.{unknown[0]}", "is unknown; known are nodes, async")
    if "nodes" not in entry:
        raise WrongPartitionsError(f"{where}.nodes", "is missing")
    late = _strings(f"{where}.async", entry["async"]) if "async" in entry else None
    return StaticPartition(_strings(f"{where}.nodes", entry["nodes"]), late)


def _strings(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise WrongPartitionsError(where, 'must be a list of node names, the preferred one first, as in ["A", "B"]')
    return tuple(value)


def as_toml(policy: PolicyConfig) -> dict[str, Any]:
    """Return a policy's entries as the file has them."""
    values = {k: v for k, v in vars(policy).items() if v or k not in ("zone", "zones", "backup", "home", "sync_sites")}
    if not policy.sync_sites:
        del values["sync_site_away"], values["sync_site_away_ms"]
    if policy.takeover == "operator":
        del values["takeover"], values["takeover_after_ms"]
    if not policy.two_way:
        del values["comparison"]
    del values["static"]
    if policy.static:
        values["partitions"] = {name: _written(p) for name, p in policy.static.items()}
    return values


def _written(partition: StaticPartition) -> Any:
    if partition.asynchronous is None:
        return partition.nodes
    return {"nodes": partition.nodes, "async": partition.asynchronous}


# --- what is wrong ---


def static_problems(config: Config, key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of everything that is wrong with a policy's kind and the partitions named by hand."""
    if policy.kind not in KINDS:
        yield f"{key}.kind", f"{policy.kind!r} must be one of {', '.join(KINDS)}"
    elif policy.kind == STATIC and not policy.static:
        yield (
            f"{key}.partitions",
            f'must be a table of node lists where kind is "static", as in [{key}.partitions] eu = ["A", "B"]',
        )
    elif policy.kind == DYNAMIC and policy.static:
        yield f"{key}.kind", f'must be "static": {key}.partitions names partitions by hand'
    if policy.static and policy.async_replicas:
        yield f"{key}.async_replicas", "excludes partitions named by hand: their node lists say how many copies"
    known = all(zone in config.zones for zone in policy.spans)
    zone = config.hosts_of(key.partition(".")[2]) if known else tuple(config.nodes)
    for name, partition in policy.static.items():
        yield from _node_list(f"{key}.partitions.{name}", partition, zone, " or ".join(map(repr, policy.spans)))


def _node_list(key: str, partition: StaticPartition, zone: tuple[str, ...], zone_name: str) -> Problems:
    nodes, late = partition.nodes, partition.asynchronous or ()
    if not nodes and partition.asynchronous is not None:
        yield key, "must name at least one node, the preferred one first; or be [], to be placed by the application"
    for node in nodes:
        if node not in zone:
            near = get_close_matches(node, zone, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(zone)}"
            yield key, f"{node!r} is not in zone {zone_name}; {hint}"
        if nodes.count(node) > 1:
            yield key, f"names {node!r} twice"
    for node in late:
        if node not in nodes:
            yield f"{key}.async", f"{node!r} is not in its nodes: {', '.join(nodes)}"
    if nodes[:1] and nodes[0] in late:
        yield f"{key}.async", f"names {nodes[0]!r}, the first of its nodes, which is active and therefore no replica"
    if set(nodes[len(nodes) - len(set(late)) :]) != set(late) or len(set(late)) != len(late):
        yield f"{key}.async", "must be the last of its nodes, each once: the first replicas of a node list are sync"


def name_problems(config: Config) -> Problems:
    """Yield (key, reason) of partition names that are taken: a name is unique in the cluster (P1)."""
    taken: dict[str, str] = {}
    for policy_name, policy in config.policies.items():
        for name in partition_names(policy_name, policy):
            other = taken.setdefault(name, policy_name)
            if other != policy_name:
                by_hand = policy_name if policy.static else other
                rest = other if policy.static else policy_name
                yield (
                    f"policies.{by_hand}.partitions.{name}",
                    f"policy {rest} has a partition of this name; it must be unique in the cluster",
                )
