"""Where an object belongs, asked on an executor: the very mappers the nodes ask (P6).

Bindings, bases and custom mappers come together in `halog.runtime.mapping.Places`; here its answer is made into one
function for each stored definition, from an index key to a partition's name. The routing key is cut out of the index
key, never written anew. A custom mapper's module is imported where it is asked: in the executors' processes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halog.config import Config
from halog.core.directory import DIRECTORY
from halog.errors import MapperError
from halog.runtime.mapping import Owner, Places, routing_of
from halog.schema import Definition
from halog.schema.definition import ID_BYTES
from mappers import ConsistentHash, MisplacedError, stable_hash

Place = Callable[[bytes], str]
"""Index key → the name of the partition it belongs to."""


class Mapping(msgspec.Struct, frozen=True):
    """What decides: the configuration that is to hold, the newest definitions by type name, the cluster's bindings."""

    config: Config
    current: dict[str, str]
    held: dict[str, str]


class Placer:
    """One function for each definition, made when it is first met."""

    def __init__(self, mapping: Mapping, stored_as: Callable[[bytes], Definition]) -> None:
        current = mapping.current
        self._places = Places(
            mapping.config, lambda name: Definition.parse(current[name]) if name in current else None, mapping.held
        )
        self._stored_as = stored_as
        self._made: dict[bytes, tuple[str, Place]] = {}
        self._stays: dict[bytes, frozenset[str]] = {}

    def stays(self, type_id: bytes, partition: str) -> bool:
        """Are objects of this type where they belong wherever they are, in this partition? So it is where the mapper is
        no function of the key; the entries of key directories are carried by the nodes alone. As `of`."""
        if type_id == DIRECTORY:
            return True
        found = self._stays.get(type_id)
        if found is None:
            owner = self._places.owner(self._stored_as(type_id).name)
            found = self._stays[type_id] = frozenset(owner.names if owner.listed else ())
        return partition in found

    def of(self, type_id: bytes) -> tuple[str, Place]:
        """The type's name, and where its keys belong. UnknownTypeError, ConfigError; `Place` raises MapperError."""
        made = self._made.get(type_id)
        if made is None:
            definition = self._stored_as(type_id)
            made = self._made[type_id] = (definition.name, _place(definition, self._places.owner(definition.name)))
        return made


def _place(definition: Definition, owner: Owner) -> Place:
    routing, names, mapper = routing_of(definition), owner.names, owner.mapper
    if isinstance(mapper, ConsistentHash):  # most objects there are: the ring's table at hand, and no call too many
        ring_size, owners = mapper.ring_size, [names[i] for i in mapper.slots()]
        if definition.partition_by == definition.key:
            return lambda key: owners[stable_hash(key[ID_BYTES:]) % ring_size]
        return lambda key: owners[stable_hash(routing(key)) % ring_size]
    partition, name = mapper.partition, definition.name

    def place(key: bytes) -> str:
        try:
            return names[partition(routing(key))]
        except MisplacedError as error:
            raise MapperError(f"{error}; nothing was done", type=name, policy=owner.policy) from error

    return place
