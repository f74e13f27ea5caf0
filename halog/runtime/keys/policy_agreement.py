"""This module makes and checks what the cluster has agreed on of a policy: policies/<name>, made by the first process
that has the policy.

All nodes and tools must agree on it: what decides where a key belongs (P6), what an acknowledgement says (R6), and how
long a lease may last (R5). Where keys belong the cluster alone says, once somebody has decided that for the cluster: by
a change of the mapping (T8), or by an activated version of the configuration (P11). So at whatever step an activation
dies, or is turned back, nodes start with the version that is active, and go by what the cluster has.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from halog.config import Config
from halog.config.mapper import callable_of
from halog.core.keys.mapping import Layout, PolicyMapping
from halog.errors import ConfigError
from halog.metadata import mapped_policies
from halog.ports import Coordinator
from halog.runtime.keys.key_owners import function_at, function_of, layout_of
from mappers import earlier_of

logger = logging.getLogger("halog.cluster")

_COUNTED = tuple(name for name in mapped_policies.LAYOUT if name != "names")
"""What a change of the mapping may change of a layout."""


def mapping(config: Config, policy: str) -> bytes:
    """Return what a configuration says of a policy, as the coordinator holds it. Raises ConfigError for a custom mapper
    that is not there.

    What a policy does not use is absent. So clusters that were made before there was such a thing read the same.
    """
    p = config.policies[policy]
    said: dict[str, Any] = {name: getattr(p, name) for name in ("mapper", "partitions", "ring_size")}
    said |= _fixed(config, policy)
    if callable_of(p.mapper):
        said["mapper_version"] = function_of(config, policy).version
    if p.static:
        said["names"] = list(p.static)
    return msgspec.json.encode(said)


def _fixed(config: Config, policy: str) -> dict[str, Any]:
    p = config.policies[policy]
    leased = ("lease_ttl_ms",) if p.lease_ttl_ms else ()
    return {name: getattr(p, name) for name in ("local_sync", "remote_sync", *leased)}


def agree(coordinator: Coordinator, config: Config, policy: str, *, activated: bool = False) -> None:
    """Write a policy's znode, unless the cluster has it. Raises ConfigError as `check_mapping`."""
    path = mapped_policies.path_of(policy)
    if coordinator.get(path) is None:
        coordinator.create(path, mapping(config, policy))
    check_mapping(coordinator, config, policy, activated=activated)


def check_mapping(coordinator: Coordinator, config: Config, policy: str, *, activated: bool = False) -> None:
    """Raise ConfigError if the cluster was made with another policy: objects would be looked for where they are not, or
    be less safe than some node believes. `activated`: the configuration is an activated version. It wishes where keys
    belong, and the cluster says; a file is taken at its word."""
    found = coordinator.get(mapped_policies.path_of(policy))
    if found is None:
        return
    held = mapped_policies.parse(mapped_policies.path_of(policy), found)
    changed = bool(held.mapping.version) or held.mapping.changing is not None
    passed_over: tuple[str, ...] = mapped_policies.STATE
    if changed or activated:
        passed_over += mapped_policies.LAYOUT if changed else _COUNTED
        _check_code(config, policy, held.mapping)
        want = _fixed(config, policy) | ({"names": list(names)} if (names := config.policies[policy].static) else {})
    else:
        want = msgspec.json.decode(mapping(config, policy), type=dict[str, Any])
        if _knows(config, policy, held.mapping.now):
            want["mapper_version"] = held.mapping.now.mapper_version
    keys = [k for k in dict.fromkeys((*want, *held.said)) if want.get(k) != held.said.get(k) and k not in passed_over]
    if keys:
        shown = [f"{k} is {_shown(want, k)} here, {_shown(held.said, k)} there" for k in keys]
        rebalance = f"; or let `halog rebalance --policy {policy}` with this file change it"
        raise ConfigError(
            f"{config.source}: policies.{policy} differs from what the cluster was created with: "
            f"{'; '.join(shown)}; change it back or use another cluster name"
            f"{rebalance if set(keys) <= set(mapped_policies.LAYOUT) else ''}",
            policy=policy,
        )


def _knows(config: Config, policy: str, layout: Layout) -> bool:
    """Say whether newer code of a custom mapper has the cluster's version, too."""
    mapper = config.policies[policy].mapper
    same = callable_of(mapper) and mapper == layout.mapper
    return bool(same) and layout.mapper_version in earlier_of(function_of(config, policy).function)


def _check_code(config: Config, policy: str, held: PolicyMapping) -> None:
    """Raise ConfigError if this process does not have the code of the cluster's mapper. Log a warning if its
    configuration says otherwise where keys belong: the cluster says that."""
    for layout in held.layouts:
        if callable_of(layout.mapper):
            _check_has(config, policy, layout, may_turn_back=layout != held.now)
    if not any(_is_said(config, policy, layout) for layout in held.layouts):
        logger.warning(
            "policy %s: %s places keys differently, and the cluster's mapping counts: see `halog rebalance "
            "status`; `halog rebalance --policy %s` changes it",
            policy,
            config.source,
            policy,
        )


def _check_has(config: Config, policy: str, layout: Layout, *, may_turn_back: bool) -> None:
    try:
        function_at(config, policy, layout)
    except ConfigError as error:
        if not may_turn_back:
            raise
        back = f"; or turn the change to it back with `halog rebalance cancel --policy {policy}`, also with no node up"
        raise ConfigError(f"{error.message}{back}", policy=policy) from error


def _is_said(config: Config, policy: str, layout: Layout) -> bool:
    """Say whether this is the layout of the configuration. Code of a mapper that the cluster does not use is not asked
    for."""
    p = config.policies[policy]
    if (p.mapper, p.partitions, p.ring_size) != (layout.mapper, layout.partitions, layout.ring_size):
        return False
    return layout == layout_of(config, policy)


def _shown(said: Mapping[str, Any], key: str) -> str:
    return msgspec.json.encode(said[key]).decode() if key in said else "absent"
