"""This module says where an object belongs, on an executor, by the very mappers that the nodes ask (P6).

Bindings, bases and custom mappers come together in `halog.runtime.keys.key_owners.Places`. Here its answer becomes one
function for each stored definition, from index keys to partitions, as arrays. The routing key is cut out of the index
key, never written anew. A custom mapper's module is imported where it is asked: in the executors' processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halog.config import Config
from halog.core.keys.directory import DIRECTORY
from halog.errors import MapperError
from halog.runtime.keys.key_owners import Owner, Places, routing_of
from halog.schema import Definition
from halog.schema.definition import ID_BYTES
from mappers import ConsistentHash, MisplacedError, stable_hashes
from spark_jobs.packing import Indices

LONGEST: Final = 2**31 - 1
"""The longest key, for Arrow: without an end its version 26 miscounts the bytes of a slice."""


class TypePlacement(NamedTuple):
    """A `TypePlacement` says where the objects of one definition belong."""

    type_name: str
    names: Sequence[str]
    """The names of partitions."""
    places: Callable[[pa.Array], Indices]
    """Takes index keys, and returns for each the index of its partition in `names`. MapperError."""

    def place_of(self, name: str) -> int:
        """Return the index of a partition; -1: nothing belongs there."""
        return self.names.index(name) if name in self.names else -1


class PlacementBasis(msgspec.Struct, frozen=True):
    """A `PlacementBasis` is what decides: the configuration that is to hold, the newest definitions by type name, the
    cluster's bindings."""

    config: Config
    current: dict[str, str]
    held: dict[str, str]


class Placer:
    """A `Placer` has one function for each definition, made when it is first met."""

    def __init__(self, mapping: PlacementBasis, stored_as: Callable[[bytes], Definition]) -> None:
        current = mapping.current
        self._places = Places(
            mapping.config, lambda name: Definition.parse(current[name]) if name in current else None, mapping.held
        )
        self._stored_as = stored_as
        self._made: dict[bytes, TypePlacement] = {}
        self._stays: dict[bytes, frozenset[str]] = {}

    def stays(self, type_id: bytes, partition: str) -> bool:
        """Say whether objects of this type belong in this partition whenever they are there. Errors as in `of`.

        That is so where the mapper is no function of the key. Only the nodes move the entries of key directories.
        """
        if type_id == DIRECTORY:
            return True
        found = self._stays.get(type_id)
        if found is None:
            owner = self._places.owner(self._stored_as(type_id).name)
            found = self._stays[type_id] = frozenset(owner.names if owner.listed else ())
        return partition in found

    def of(self, type_id: bytes) -> TypePlacement:
        """Return where its keys belong. UnknownTypeError, ConfigError."""
        made = self._made.get(type_id)
        if made is None:
            definition = self._stored_as(type_id)
            owner = self._places.owner(definition.name)
            made = self._made[type_id] = TypePlacement(definition.name, owner.names, _placing(definition, owner))
        return made


def _placing(definition: Definition, owner: Owner) -> Callable[[pa.Array], Indices]:
    routing, mapper = routing_of(definition), owner.mapper
    if isinstance(mapper, ConsistentHash):  # the usual case: nothing but the hash is computed one by one
        owners = np.asarray(mapper.slots(), np.int64)
        ring_size = np.uint64(mapper.ring_size)
        whole = definition.partition_by == definition.key

        def of_ring(keys: pa.Array) -> Indices:
            cut = pc.binary_slice(keys, ID_BYTES, LONGEST).to_pylist() if whole else map(routing, keys.to_pylist())
            hashes = np.frombuffer(stable_hashes(cut), ">u8").astype(np.uint64)
            return owners[(hashes % ring_size).astype(np.int64)]

        return of_ring

    def of_mapper(keys: pa.Array) -> Indices:
        try:
            return np.fromiter((mapper.partition(routing(key)) for key in keys.to_pylist()), np.int64, len(keys))
        except MisplacedError as error:
            raise MapperError(f"{error}; nothing was done", type=definition.name, policy=owner.policy) from error

    return of_mapper
