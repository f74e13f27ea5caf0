"""This module keeps the policy of every type, as the cluster holds it: `bindings`, one znode, JSON {type: policy} (P4,
P6).

A type is entered when the first node that declares it starts, by the rule of `Config.policy_of`; what is entered stays.
So a node that would look for a type's objects under another policy is refused by name. In a cluster that was made
before there was this znode, types are entered as their objects were placed then: by their own name, else by "*".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from halog.config import Config
from halog.errors import ConfigError, CoordinatorError, VersionError
from halog.ports import Coordinator, UnknownResult, Versioned
from halog.schema import Definition

PATH = "bindings"
ATTEMPTS = 50
"""Nodes that start together enter the same types: each attempt that fails means that another node's went through."""

_DECODER = msgspec.json.Decoder(dict[str, str])


def read(coordinator: Coordinator) -> dict[str, str]:
    """Return {type: policy}; empty in a cluster that has none."""
    return _decoded(coordinator.get(PATH))


def _decoded(found: Versioned | None) -> dict[str, str]:
    try:
        return {} if found is None else _DECODER.decode(found.data)
    except msgspec.MsgspecError as error:
        raise CoordinatorError(f"znode {PATH} does not hold the bindings: {error}") from error


def agree(
    coordinator: Coordinator,
    config: Config,
    declared: Iterable[Definition],
    stored: Callable[[], Iterable[str]],
) -> dict[str, str]:
    """Enter the types that are new; return {type: policy} of all there are. `stored` returns the types that the cluster
    knew before it had bindings. Raises ConfigError, and changes nothing, if the cluster keeps a declared type under
    another policy."""
    declared = list(declared)
    for _ in range(ATTEMPTS):
        found = coordinator.get(PATH)
        held = _decoded(found)
        before = dict(held)
        if found is None:
            entered = {name: config.policy_of(name) for name in stored()}
            held = {
                name: policy for name, policy in entered.items() if policy is not None and policy in config.policies
            }
        for definition in declared:
            _enter(config, definition, held)
        if found is not None and held == before:
            return held
        try:
            data = msgspec.json.encode(dict(sorted(held.items())))
            if found is not None:
                coordinator.set(PATH, data, found.version)
            elif not coordinator.create(PATH, data):
                continue
        except (VersionError, UnknownResult):
            coordinator.sync(PATH)
            continue
        return held
    raise CoordinatorError(f"znode {PATH} was changed by others {ATTEMPTS} times in a row; start the node again")


def _enter(config: Config, definition: Definition, held: dict[str, str]) -> None:
    """Enter a type. Where its policy is of other sites alone, nothing is kept here, unless the cluster says so."""
    policy = config.policy_of(definition.name, definition.bases)
    if policy is None or (policy not in config.policies and definition.name not in held):
        return
    have = held.setdefault(definition.name, policy)
    if have not in (policy, config.policy_of(definition.name)):
        raise ConfigError(
            f'{config.source}: bindings."{definition.name}": is {policy}, and the cluster keeps objects of '
            f"{definition.name} under {have}, where nobody would look for them; bind it to {have}, or use another "
            "cluster name",
            type=definition.name,
        )
