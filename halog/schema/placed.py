"""This module shows a new object to a mapper that decides at create (P6): read from its bytes by its definition alone.

So nodes, tools and a partition that is being emptied show it the same, and the mapper cannot change the object.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from halog.core.bounded import make_room
from halog.schema.codec import decoder
from halog.schema.definition import Definition
from halog.schema.evolution import Reader, body_reader
from mappers import NewObject

KEPT: Final = 1_000
"""Definitions whose readers are kept."""

_readers: dict[bytes, Reader] = {}
"""Readers by type id."""


def new_object(definition: Definition, value: bytes) -> NewObject:
    """Return the object of these bytes. RecordFormatError if they are not of the definition."""
    read = _readers.get(definition.type_id)
    if read is None:
        fields = [(f.name, decoder(f.shape, bound=False)) for f in definition.record.fields]
        read = _readers[definition.type_id] = body_reader(definition.name, definition.type_id, fields)
        make_room(_readers, KEPT)
    values = read(value)
    key = tuple(values[name] for name in definition.key)
    return NewObject(definition.name, key, MappingProxyType(values))
