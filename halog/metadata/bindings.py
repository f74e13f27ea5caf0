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
from halog.errors import ConfigError, CoordinatorError
from halog.metadata.cas import attempts
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator
from halog.schema import Definition

PATH = "bindings"
ATTEMPTS = 50
"""Nodes that start together enter the same types: each attempt that fails means that another node's went through."""

_BINDINGS = ZnodeFormat(msgspec.json.Decoder(dict[str, str]).decode, "does not hold the bindings")


def read(coordinator: Coordinator) -> dict[str, str]:
    """Return {type: policy}; empty in a cluster that has none."""
    return _BINDINGS.read(coordinator, PATH) or {}


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
    for attempt in attempts(coordinator, PATH, ATTEMPTS):
        before = None if attempt.found is None else _BINDINGS.decode(PATH, attempt.found.data)
        held = dict(before or {})
        if before is None:
            entered = {name: config.policy_of(name) for name in stored()}
            held = {
                name: policy for name, policy in entered.items() if policy is not None and policy in config.policies
            }
        for definition in declared:
            _enter(config, definition, held)
        if held == before or attempt.write(msgspec.json.encode(dict(sorted(held.items())))):
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
