"""This module reads and writes objects of foreign types by their stored definition alone, for tools that import no
application code.

It never touches a class. A definition says everything about the bytes; values go out and come in as plain JSON values
(`plain`), with the same checks as for declared classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halog.errors import FieldTypeError, RecordFormatError
from halog.schema.codec import decoder, encoder, key_encoder, misfit_at
from halog.schema.definition import Definition
from halog.schema.evolution import body_reader
from halog.schema.methods import field_type_error
from halog.schema.plain import from_plain, from_text, to_plain
from halog.schema.scalars import DECODE_ERRORS, Misfit
from halog.schema.shapes import to_avro


class ForeignType:
    """A `ForeignType` reads and writes objects of one definition as plain values."""

    def __init__(self, definition: Definition) -> None:
        self.parsed = definition
        self.name = definition.name
        self.type_id = definition.type_id
        self.family_id = definition.family_id
        self.avro = to_avro(definition.record)
        self._fields = definition.record.fields
        self._key = [(name, definition.shape(name)) for name in definition.key]
        self._encoders = [(f.name, encoder(f.shape, lambda _n, _t: True, bound=False)) for f in self._fields]
        self._key_encoders = [(name, key_encoder(shape, bound=False)) for name, shape in self._key]
        readers = [(f.name, decoder(f.shape, bound=False)) for f in self._fields]
        self._read = body_reader(definition.name, definition.type_id, readers)

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return an object's bytes as plain values."""
        values = self._read(data)
        return {f.name: to_plain(f.shape, values[f.name]) for f in self._fields}

    def encode(self, plain: Mapping[str, Any]) -> bytes:
        """Return the bytes of plain values: the inverse of `decode`, checked like a declared class's fields."""
        if plain.keys() != {f.name for f in self._fields}:
            odd = sorted(plain.keys() ^ {f.name for f in self._fields})
            raise FieldTypeError(f"{self.name}: missing or unknown field {odd[0]!r}", type=self.name, field=odd[0])
        values = [from_plain(f.shape, plain[f.name], f"{self.name}.{f.name}") for f in self._fields]
        return self.type_id + self._join(self._encoders, values)

    def key_from_text(self, parts: Sequence[str]) -> tuple[Any, ...]:
        """Return the key that the command line's words name."""
        if len(parts) != len(self._key):
            names = ", ".join(name for name, _ in self._key)
            raise FieldTypeError(f"{self.name}: the key is ({names}), got {len(parts)} values", type=self.name)
        return tuple(from_text(s, p, f"{self.name}.{n}") for (n, s), p in zip(self._key, parts, strict=True))

    def index_key(self, key: Sequence[Any]) -> bytes:
        """Return the key's bytes with the family id; see `TypeInfo.index_key`."""
        return self.family_id + self._join(self._key_encoders, key)

    def routing_key(self, key: Sequence[Any]) -> bytes:
        """Return the bytes that decide the partition; see `TypeInfo.routing_key`."""
        at = [self.parsed.key.index(name) for name in self.parsed.partition_by]
        return self._join([self._key_encoders[i] for i in at], [key[i] for i in at])

    def decode_index_key(self, raw: bytes) -> dict[str, Any]:
        """Return an index key as plain values by field name."""
        out: dict[str, Any] = {}
        at = len(self.family_id)
        try:
            for name, shape in self._key:
                value, at = decoder(shape, bound=False)(raw, at)
                out[name] = to_plain(shape, value)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{self.name}: a malformed index key: {str(error)[:200]}") from error
        if at != len(raw) or raw[: len(self.family_id)] != self.family_id:
            raise RecordFormatError(f"{self.name}: an index key of another type")
        return out

    def _join(self, encoders: Sequence[tuple[str, Any]], values: Sequence[Any]) -> bytes:
        try:
            return b"".join([e(v) for (_, e), v in zip(encoders, values, strict=True)])
        except Misfit:
            raise field_type_error(self.name, misfit_at(encoders, values)) from None


def decode_foreign(definition: str | bytes | Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return an object's bytes as plain values. For many objects of one type, `Registry.schema_for_foreign` parses
    once."""
    return ForeignType(Definition.parse(definition)).decode(data)
