"""This module says which mapper decides for which type (P6).

It goes by the configuration, the application's callables, and what the cluster holds of bindings. It never asks a
server. A type and its managed bases have one key space. So one mapper decides for a family, and it is told the topmost
base's name. A class that is bound to another policy than its base has a place of its own.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple

from halog.config import Config
from halog.config.mapper import LEAST_LOADED, callable_of, is_custom
from halog.config.multi_site import sites_named, sites_of
from halog.core.keys.mapping import BY_KEY, Layout, Place, PolicyMapping
from halog.errors import ConfigError, HalogError, MapperError, RecordFormatError, UnknownTypeError
from halog.schema import Definition
from halog.schema.codec import decoder
from halog.schema.definition import ID_BYTES
from halog.schema.scalars import DECODE_ERRORS, Decoder, read_long
from halog.schema.shapes import Scalar, Shape
from mappers import (
    AtCreateMapper,
    ConsistentHash,
    CustomMapper,
    Mapper,
    MisplacedError,
    earlier_of,
    least_loaded,
    version_of,
)
from mappers.custom import AnyFunction

_ABSENT: Final = object()


class MapperFunction(NamedTuple):
    """A `MapperFunction` is a custom mapper as its module has it."""

    function: AnyFunction
    version: int


class PolicyBinding(NamedTuple):
    """A `PolicyBinding` says how a type is bound. `key` is the entry of [bindings] that holds for it."""

    policy: str
    key: str


class Decider(NamedTuple):
    """A `Decider` has a mapper, and the partitions it knows by index."""

    mapper: Mapper
    names: tuple[str, ...]


class Owner(NamedTuple):
    """An `Owner` decides where objects of a type belong; while its policy's mapping changes, it knows who decided
    before, too (T8)."""

    policy: str
    mapper: Mapper
    names: tuple[str, ...]
    """The partitions the mapper knows, by index."""
    version: int = 0
    """Version of the mapping."""
    before: Decider | None = None
    """Who decided before: objects may still be where this one has them."""
    listed: str = BY_KEY
    """BY_KEY: the mapper names the object's partition. Else it only names where the key's entry in the directory is,
    and that entry names the object's partition."""
    layout: Layout | None = None
    """The newest layout. Where objects are listed, its own mapper says where new ones go."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return every partition where objects may be."""
        return self.names if self.before is None else tuple(dict.fromkeys((*self.names, *self.before.names)))

    def partition(self, type_name: str, routing_key: bytes) -> str:
        """Return the partition that a key, or its entry, belongs to. Raises MapperError where a custom mapper fails;
        then nothing was done."""
        return self._asked(self.mapper, self.names, type_name, routing_key)

    def place(self, type_name: str, routing_key: bytes) -> Place:
        """Return the same, and where the object may still be. Raises MapperError."""
        new = self.partition(type_name, routing_key)
        if self.before is None:
            return Place(new, self.version, listed=self.listed)
        old = self._asked(*self.before, type_name, routing_key)
        return Place(new, self.version, "" if old == new else old, self.listed)

    def _asked(self, mapper: Mapper, names: tuple[str, ...], type_name: str, routing_key: bytes) -> str:
        try:
            return names[mapper.partition(routing_key)]
        except MisplacedError as error:
            raise MapperError(f"{error}; nothing was done", type=type_name, policy=self.policy) from error


def import_module(config: Config, module: str) -> ModuleType:
    """Load one of `[application] modules`. Raises ConfigError."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise ConfigError(
            f"{config.source}: [application] modules names {module!r}, which cannot be imported: {e}; "
            "put it on the Python path"
        ) from e
    except (HalogError, KeyboardInterrupt):  # a HalogError names the class and the field itself
        raise
    except BaseException as e:  # whatever else the application raises there, an exit or a cancellation too
        where = [f for f in traceback.extract_tb(e.__traceback__) if not f.filename.startswith("<frozen")][-1]
        at = "" if isinstance(e, SyntaxError) else f" ({where.filename}, line {where.lineno})"  # it names its own
        raise ConfigError(
            f"{config.source}: [application] modules names {module!r}, which fails when it is imported: {_said(e)}{at}",
            module=module,
        ) from e


def _said(error: BaseException) -> str:
    """Return the class and text of an error; a class of the application's may have no text."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception as of_its_text:
        return f"{kind}, whose own text fails with {type(of_its_text).__name__}"


def function_of(config: Config, policy: str) -> MapperFunction:
    """Return the callable that a policy's `mapper` names. Raises ConfigError if it is not there, or has no proper
    version."""
    return _function(config, policy, callable_of(config.policies[policy].mapper))


def function_at(config: Config, policy: str, layout: Layout) -> MapperFunction:
    """Return the callable of a layout, in its version. Raises ConfigError if this process's code does not have it."""
    found = _function(config, policy, callable_of(layout.mapper))
    known = earlier_of(found.function)
    if layout.mapper_version not in known:
        have = ", ".join(str(version) for version in known)
        raise ConfigError(
            f"{config.source}: policies.{policy}: the cluster goes by version {layout.mapper_version} of mapper "
            f"{layout.mapper}, and this code has {have}: deploy code that has it, as the newest version or as an "
            "`earlier` one",
            policy=policy,
        )
    return MapperFunction(known[layout.mapper_version], layout.mapper_version)


def at_create(config: Config, policy: str, layout: Layout) -> AtCreateMapper:
    """Return the mapper that says where new objects of a policy go, for a layout whose mapper is asked at create.
    Raises ConfigError as `function_at`."""
    names = layout.partition_names(policy)
    if layout.mapper == LEAST_LOADED:
        return AtCreateMapper(LEAST_LOADED, least_loaded, names)
    function, version = function_at(config, policy, layout)
    return AtCreateMapper(f"{layout.mapper} (version {version})", function, names)


def layout_of(config: Config, policy: str) -> Layout:
    """Return what a configuration says of a policy's mapping. Raises ConfigError for a custom mapper that is not
    there."""
    p = config.policies[policy]
    version = function_of(config, policy).version if callable_of(p.mapper) else 0
    return Layout(p.mapper, p.partitions, p.ring_size, version, tuple(p.static))


def _function(config: Config, policy: str, where: str) -> MapperFunction:
    module_name, _, path = where.partition(":")
    if module_name not in config.application.modules:
        raise ConfigError(
            f"{config.source}: policies.{policy}: module {module_name!r} of mapper {where} is not in [application] "
            "modules; nothing else is ever imported",
            policy=policy,
        )
    found: Any = import_module(config, module_name)
    try:
        at = f"module {module_name}"
        for part in path.split("."):
            if (found := getattr(found, part, _ABSENT)) is _ABSENT:
                raise ValueError(f"{at} has no attribute {part!r}")
            at = part
            if isinstance(found, ModuleType):
                raise ValueError(f"{part} is a module; name a callable of {module_name} itself")
        if not callable(found):
            raise ValueError(f"it is a {type(found).__name__}, which cannot be called")
        return MapperFunction(found, version_of(found))
    except ValueError as error:
        raise ConfigError(f"{config.source}: policies.{policy}.mapper: {where}: {error}", policy=policy) from error


def values_of(definition: Definition) -> Callable[[bytes], tuple[Any, ...]]:
    """Return a function that reads the `partition_by` values from a routing key. It reads an Enum as its name: tools
    see what nodes see."""
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


def _passing(shape: Shape) -> Decoder:
    """Return what finds the end of a key's part. Dates and times are not decoded: a key may hold one that no calendar
    has."""
    passed = isinstance(shape, Scalar) and shape.kind in ("date", "datetime")
    return read_long if passed else decoder(shape, bound=False)


def routing_of(definition: Definition) -> Callable[[bytes], bytes]:
    """Return a function that finds the routing key in an index key: the bytes of the `partition_by` values, one behind
    the other."""
    if definition.partition_by == definition.key:
        return lambda index_key: index_key[ID_BYTES:]
    decoders = [_passing(definition.shape(name)) for name in definition.key]
    at = [definition.key.index(name) for name in definition.partition_by]

    def routing_key(index_key: bytes) -> bytes:
        parts, end = [], ID_BYTES
        try:
            for decode in decoders:
                begin = end
                _, end = decode(index_key, begin)
                parts.append(index_key[begin:end])
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{definition.name}: a malformed index key {index_key.hex()[:100]}") from error
        return b"".join([parts[i] for i in at])

    return routing_key


def _unknown(type_id: bytes) -> Definition:
    raise UnknownTypeError(f"type id {type_id.hex()} is not known here", type_id=type_id.hex())


class Places:
    """Knows who decides for each type, for one node or tool.

    `definition_of` returns a type's definition, or None. `held` is what the cluster holds of bindings (`bindings.py`),
    `mappings` what it holds of policies' mappings (`mapping_cache.py`); both win over the configuration.
    """

    def __init__(
        self,
        config: Config,
        definition_of: Callable[[str], Definition | None],
        held: Mapping[str, str] | None = None,
        mappings: Mapping[str, PolicyMapping] | None = None,
        definition: Callable[[bytes], Definition] = _unknown,
    ) -> None:
        """Take what decides where keys belong. `definition` finds the stored definition of a type id. Objects of types
        that are not declared here are mapped, too."""
        self.config = config
        self.held = {} if held is None else held
        self.mappings = mappings or {}
        self.definition_of = definition_of
        self.definition = definition

    def bound(self, type_name: str) -> PolicyBinding | None:
        """Return how a type is bound: as the cluster holds it, else by its own name, its nearest base's, or "*". None:
        to no policy that has anything at this site. Raises ConfigError where [bindings] has no entry for what the
        cluster holds."""
        key, entries = self._entry(type_name), self.config.bindings
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
        return PolicyBinding(held, older) if held in self.config.policies else None

    def _entry(self, type_name: str) -> str | None:
        definition = self.definition_of(type_name)
        bases = () if definition is None else definition.bases
        return next((n for n in (type_name, *bases, "*") if n in self.config.bindings), None)

    def policy_of(self, type_name: str) -> str | None:
        """Return the policy a type is bound to, or None."""
        bound = self.bound(type_name)
        return None if bound is None else bound.policy

    def owner(self, type_name: str, mappings: Mapping[str, PolicyMapping] | None = None) -> Owner:
        """Return who decides for a type, by these mappings or by what is known here of mappings. Raises
        UnknownTypeError if the type is bound to no policy, ConfigError for a mapper that is not there."""
        policy = self.policy_of(type_name)
        if policy is None:
            raise self.unbound(type_name)
        return self.owner_by(policy, type_name, (mappings or {}).get(policy) or self.mapping(policy))

    def policies_of(self, type_names: Iterable[str]) -> list[str]:
        """Return the policies of a family, or of several. Raises UnknownTypeError if there is none, and for a type that
        is kept at another site alone: the rest would not be all there is."""
        names = list(type_names)
        found = [self.policy_of(name) for name in names]
        away = next((n for n, policy in zip(names, found, strict=True) if policy is None and self._elsewhere(n)), "")
        policies = list(dict.fromkeys(p for p in found if p is not None))
        if away or not policies:
            raise self.unbound(away or names[0])
        return policies

    def _elsewhere(self, type_name: str) -> str:
        """Return the policy that a type is bound to, whichever site has it; "" if there is none."""
        key = self._entry(type_name)
        return "" if key is None else self.held.get(type_name, self.config.bindings[key])

    def unbound(self, type_name: str) -> UnknownTypeError:
        """Return the error for a type that has no policy at this site. The error has a `policy` if another site has
        one."""
        policy, tree = self._elsewhere(type_name), self.config.all_sites
        if not policy:
            why = "no policy; add it to [bindings]"
            return UnknownTypeError(f"{self.config.source}: type {type_name} is bound to {why}", type=type_name)
        sites = sites_named(sites_of(tree, tree.hosts_of(policy)) if policy in tree.policies else ())
        return UnknownTypeError(
            f"{self.config.source}: type {type_name} is bound to policy {policy}, whose nodes are at {sites}: it "
            f"is used there, not at {self.config.site.name}",
            type=type_name,
            policy=policy,
        )

    def owner_by(self, policy: str, type_name: str, mapping: PolicyMapping) -> Owner:
        """Return who would decide for a type of this policy by that mapping. Raises ConfigError, UnknownTypeError as
        `owner`."""
        new = self._decider(policy, type_name, mapping.newest)
        before = None if mapping.next is None else self._decider(policy, type_name, mapping.now)
        return Owner(policy, *new, mapping.version, before, mapping.kind, mapping.newest)

    def mapping(self, policy: str) -> PolicyMapping:
        """Return a policy's mapping as the cluster holds it, else as configured."""
        return self.mappings.get(policy) or PolicyMapping(layout_of(self.config, policy))

    def _decider(self, policy: str, type_name: str, layout: Layout) -> Decider:
        names = layout.partition_names(policy)
        if not is_custom(layout.mapper):
            return Decider(ConsistentHash(layout.partitions, layout.ring_size), names)
        definition = self.definition_of(type_name)
        if definition is None:
            raise UnknownTypeError(
                f"type {type_name} is not known here, so that mapper {layout.mapper} cannot be given its key",
                type=type_name,
            )
        function, version = function_at(self.config, policy, layout)
        name = f"{layout.mapper} (version {version})"
        return Decider(CustomMapper(name, function, definition.root, names, values_of(definition)), names)
