"""Which mapper decides for which type: from the configuration, the application's callables, and what the cluster holds
of bindings (P6).

Never asks a server. The theory: a type and its managed bases have one key space, so what decides for a family is one
mapper, told the topmost base's name; a class that is bound to another policy than its base has a place of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from halog.config import Config
from halog.config.mapper import is_custom
from halog.errors import ConfigError, MapperError, UnknownTypeError
from halog.schema import Definition
from halog.schema.codec import decoder
from halog.schema.scalars import DECODE_ERRORS
from mappers import ConsistentHash, CustomMapper, Mapper, MisplacedError, version_of
from mappers.custom import Function


class Named(NamedTuple):
    """A custom mapper as its module has it."""

    function: Function
    version: int


class Bound(NamedTuple):
    """How a type is bound. `key`: the entry of [bindings] that holds for it."""

    policy: str
    key: str


class Owner(NamedTuple):
    """Who decides for a type."""

    policy: str
    mapper: Mapper
    names: tuple[str, ...]
    """The policy's partitions, by index."""

    def partition(self, type_name: str, routing_key: bytes) -> str:
        """The partition of a key. MapperError where a custom mapper fails; then nothing was done."""
        try:
            return self.names[self.mapper.partition(routing_key)]
        except MisplacedError as error:
            raise MapperError(f"{error}; nothing was done", type=type_name, policy=self.policy) from error


def import_module(config: Config, module: str) -> ModuleType:
    """One of `[application] modules`. ConfigError."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise ConfigError(
            f"{config.source}: [application] modules names {module!r}, which cannot be imported: {e}; "
            "put it on the Python path"
        ) from e


def function_of(config: Config, policy: str) -> Named:
    """The callable that a policy's `mapper` names. ConfigError if it is not there, or has no proper version."""
    where = config.policies[policy].mapper
    module_name, _, path = where.partition(":")
    found: Any = import_module(config, module_name)
    try:
        for part in path.split("."):
            found = getattr(found, part)
            if isinstance(found, ModuleType):
                raise ValueError(f"{part} is a module; name a callable of {module_name} itself")
        if not callable(found):
            raise ValueError(f"it is a {type(found).__name__}, which cannot be called")
        return Named(found, version_of(found))
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"{config.source}: policies.{policy}.mapper: {where}: {error}", policy=policy) from error


def values_of(definition: Definition) -> Callable[[bytes], tuple[Any, ...]]:
    """What reads the `partition_by` values from a routing key; an Enum as its name: tools see what nodes see."""
    decoders = [decoder(definition.shape(name), bound=False) for name in definition.partition_by]

    def values(routing_key: bytes) -> tuple[Any, ...]:
        found, at = [], 0
        try:
            for decode in decoders:
                value, at = decode(routing_key, at)
                found.append(value)
        except DECODE_ERRORS as error:
            raise MisplacedError(f"{definition.name}: a malformed routing key {routing_key.hex()[:100]}") from error
        return tuple(found)

    return values


class Places:
    """Of one node or tool. `definition_of`: a type's definition, or None; `held`: what the cluster holds of bindings,
    which wins (`bindings.py`)."""

    def __init__(
        self, config: Config, definition_of: Callable[[str], Definition | None], held: Mapping[str, str] | None = None
    ) -> None:
        self.config, self.held = config, held or {}
        self._definition_of = definition_of

    def bound(self, type_name: str) -> Bound | None:
        """How a type is bound: as the cluster holds it, else by its own name, its nearest base's, or "*"; None: to no
        policy. ConfigError where [bindings] has no entry for what the cluster holds."""
        definition, entries = self._definition_of(type_name), self.config.bindings
        bases = () if definition is None else definition.bases
        key = next((n for n in (type_name, *bases, "*") if n in entries), None)
        here = None if key is None else entries[key]
        held = self.held.get(type_name, here)
        if held is None:
            return None
        older = next((n for n in (key, type_name, "*") if n is not None and entries.get(n) == held), None)
        if older is None:
            raise ConfigError(
                f'{self.config.source}: bindings."{type_name}": is {here or "absent"}, and the cluster keeps objects '
                f"of {type_name} under {held}; bind it to {held}",
                type=type_name,
            )
        return Bound(held, older)

    def policy_of(self, type_name: str) -> str | None:
        """The policy a type is bound to, or None."""
        bound = self.bound(type_name)
        return None if bound is None else bound.policy

    def owner(self, type_name: str) -> Owner:
        """Who decides for a type. UnknownTypeError if it is bound to no policy, ConfigError for a mapper that is not
        there."""
        policy = self.policy_of(type_name)
        if policy is None:
            raise UnknownTypeError(
                f"{self.config.source}: type {type_name} is bound to no policy; add it to [bindings]", type=type_name
            )
        return Owner(policy, self._mapper(policy, type_name), self.config.partition_names(policy))

    def _mapper(self, policy_name: str, type_name: str) -> Mapper:
        policy = self.config.policies[policy_name]
        if not is_custom(policy.mapper):
            return ConsistentHash(policy.partitions, policy.ring_size)
        definition = self._definition_of(type_name)
        if definition is None:
            raise UnknownTypeError(
                f"type {type_name} is not known here, so that mapper {policy.mapper} cannot be given its key",
                type=type_name,
            )
        function, version = function_of(self.config, policy_name)
        return CustomMapper(
            f"{policy.mapper} (version {version})",
            function,
            definition.root,
            self.config.partition_names(policy_name),
            values_of(definition),
        )
