"""This module reads and writes policies/<name>: the mapping of a policy, and a change of it under way (T8).

policies/<name>    JSON: what all nodes must agree on of a policy; what decides where a key belongs is among it:
                   `mapper`, `partitions`, `ring_size`, and `mapper_version`, `names` where there are any; `mapping`:
                   its version, absent before the first change; `changing`: a change under way. By compare-and-set only

Once a mapping has changed, or is being changed, this znode wins over every file: a process with an older one goes by it
and says so. Before that a file that says otherwise is refused (`halog.runtime.keys.policy_agreement`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from halog.config import Config
from halog.core.keys.mapping import Layout, MappingChange, PolicyMapping
from halog.core.tolerant import TolerantDecoder, plain
from halog.errors import CoordinatorError, OutcomeUnknownError, UnknownNameError, VersionMismatchError
from halog.metadata.cas import attempts
from halog.ports import Coordinator, Versioned
from halog.release import RELEASE

LAYOUT = ("mapper", "partitions", "ring_size", "mapper_version", "names")

STATE = ("mapping", "changing")

_CHANGE = TolerantDecoder(MappingChange)

ATTEMPTS = 50
"""Nodes that note their clean partitions meet: each attempt that fails means that another node's went through."""


class PolicyZnode(NamedTuple):
    """Holds what a znode has: the mapping, everything else, and its version for the compare-and-set."""

    mapping: PolicyMapping
    said: Mapping[str, Any]
    znode: int


def path_of(policy: str) -> str:
    """Return the path of the policy's znode."""
    return f"policies/{policy}"


def parse(path: str, found: Versioned) -> PolicyZnode:
    """Decode a policy's znode. Raises CoordinatorError for what is no mapping; VersionMismatchError as `told`."""
    try:
        said = msgspec.json.decode(found.data, type=dict[str, Any])
        return PolicyZnode(told(said, path), said, found.version)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CoordinatorError(f"znode {path} does not hold a policy's mapping: {error}") from error


def told(said: Mapping[str, Any], path: str) -> PolicyMapping:
    """Return the mapping among all that is said of a policy, at `path`. Raises VersionMismatchError if a later version
    of halog says more of where keys will belong: this one would look for them elsewhere."""
    now = msgspec.convert({name: said[name] for name in LAYOUT if name in said}, Layout)
    changing = None if "changing" not in said else _CHANGE.decode(msgspec.json.encode(said["changing"]))
    if changing is not None and (more := said["changing"]["to"].keys() - LAYOUT):
        named = ", ".join(f"`{name}`" for name in sorted(more))
        raise VersionMismatchError(
            f"znode {path}: the layout that the policy changes to has {named}, which a later version of halog wrote; "
            f"halog {RELEASE} does not know where keys belong by it, and nothing was done: upgrade the installation "
            "that says so",
            policy=path.removeprefix(path_of("")),
            release=RELEASE,
        )
    return PolicyMapping(now, int(said.get("mapping", 0)), changing)


def packed(said: Mapping[str, Any], mapping: PolicyMapping) -> bytes:
    """Return the znode's content. What a mapping does not use is absent, so that one never changed reads as it always
    did."""
    kept = {name: value for name, value in said.items() if name not in STATE}
    layout = msgspec.to_builtins(mapping.now)
    kept = {name: value for name, value in kept.items() if name not in LAYOUT or name in layout} | layout
    if mapping.version:
        kept["mapping"] = mapping.version
    if mapping.changing is not None:
        kept["changing"] = plain(mapping.changing)
    return msgspec.json.encode(kept)


def read(coordinator: Coordinator, policy: str) -> PolicyZnode:
    """Return what the cluster holds of a policy. Raises UnknownNameError if it has no such policy."""
    return _known(coordinator, policy, coordinator.get(path_of(policy)))


def _known(coordinator: Coordinator, policy: str, found: Versioned | None) -> PolicyZnode:
    if found is None:
        raise UnknownNameError.of("policy", policy, sorted(coordinator.children("policies")))
    return parse(path_of(policy), found)


def read_all(coordinator: Coordinator) -> dict[str, PolicyMapping]:
    """Return the mapping of every policy that the cluster has."""
    return {name: read(coordinator, name).mapping for name in coordinator.children("policies")}


def step(coordinator: Coordinator, policy: str, taken: Callable[[PolicyMapping], PolicyMapping]) -> PolicyMapping:
    """Take one step of a change by compare-and-set, and again from what others have made of it; return the mapping
    then. Passes on what `taken` raises."""
    path = path_of(policy)
    for attempt in attempts(coordinator, path, ATTEMPTS):
        standing = _known(coordinator, policy, attempt.found)
        new = taken(standing.mapping)
        if new == standing.mapping or attempt.write(packed(standing.said, new)):
            return new
    raise OutcomeUnknownError(f"znode {path} was changed by others {ATTEMPTS} times in a row", policy=policy)


def with_all_partitions(config: Config, held: Mapping[str, PolicyMapping]) -> Config:
    """Return the configuration with as many partitions as the cluster has, or is about to have."""
    policies = dict(config.policies)
    for name, policy in config.policies.items():
        if name in held and not policy.static:
            policies[name] = dataclasses.replace(policy, partitions=len(held[name].partition_names(name)))
    return dataclasses.replace(config, policies=policies)


def with_made_partitions(config: Config, held: Mapping[str, PolicyMapping]) -> Config:
    """Return the same without the partitions that a change is about to add: before it is open nobody has made them for
    certain, nor needs them."""
    made = {
        name: PolicyMapping(mapping.now) if mapping.changing is not None and not mapping.changing.open else mapping
        for name, mapping in held.items()
    }
    return with_all_partitions(config, made)
