"""This module holds definitions: what a managed type is, as stored and compared (protocol.md, "schemas" topic).

It never holds or imports application code. A definition that comes from outside is checked for size, depth, counts and
names before anything is built from it. The type id is 8 bytes of SHA-256 over halog's own canonical JSON. Avro's own
fingerprint ignores logical types and defaults, so a decimal of scale 2 would be read at scale 4 without an error. Equal
ids mean: the same bytes mean the same values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from halog.errors import DeclarationError, RecordFormatError
from halog.schema.names import check_name
from halog.schema.shapes import (
    MAX_DEPTH,
    MAX_FIELDS,
    SCALARS,
    DecimalShape,
    Default,
    EnumShape,
    FieldShape,
    ListShape,
    MapShape,
    OptionalShape,
    RecordShape,
    RefShape,
    Scalar,
    Shape,
    count_fields,
    depth,
    field_to_json,
    walk,
)

ID_BYTES: Final = 8
MAX_DEFINITION_BYTES: Final = 512 * 1024
"""A thousand fields with long names and defaults fit; a definition larger than this is an attack or an accident."""
KEY_SCALARS: Final = frozenset({"str", "int", "bytes", "bool", "date", "datetime", "uuid"})
"""Scalars that may identify an object, since each value has one stored form: no float (-0.0, NaN), no container, no
None."""


def is_id_of(type_id: bytes, stored: bytes) -> bool:
    """Say whether this is the type id of these bytes of a stored definition, whatever they say."""
    return hashlib.sha256(stored).digest()[:ID_BYTES] == type_id


def short_id(text: str) -> bytes:
    """Return the first 8 bytes of SHA-256."""
    return hashlib.sha256(text.encode()).digest()[:ID_BYTES]


@dataclass(frozen=True)
class Definition:
    """Holds a type: its name, managed bases (nearest first), version, key, partition_by and fields."""

    name: str
    bases: tuple[str, ...]
    version: int | None
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    record: RecordShape

    def __post_init__(self) -> None:
        for name in (self.name, *self.bases):
            check_name(name, "type")
        self._check_fields()
        self._check_key()
        _check_named(self.record)
        if len(self.text) > MAX_DEFINITION_BYTES:  # it is ASCII
            raise DeclarationError(
                f"{self.name}: its definition has {len(self.text):,} bytes, more than {MAX_DEFINITION_BYTES:,}: "
                "is a default very long?",
                type=self.name,
            )

    def _check_fields(self) -> None:
        if count_fields(self.record) > MAX_FIELDS:
            raise DeclarationError(f"{self.name}: more than {MAX_FIELDS} fields, nested ones included", type=self.name)
        if depth(self.record) > MAX_DEPTH:
            raise DeclarationError(f"{self.name}: nested deeper than {MAX_DEPTH}", type=self.name)

    def _check_key(self) -> None:
        shapes = {f.name: f.shape for f in self.record.fields}
        if not self.key or len(set(self.key)) != len(self.key):
            raise DeclarationError(f"{self.name}: the key must name one or more different fields", type=self.name)
        for name in self.key:
            if name not in shapes:
                raise DeclarationError(f"{self.name}: key field {name!r} is not a field", type=self.name, field=name)
            if not _may_be_key(shapes[name]):
                raise DeclarationError(
                    f"{self.name}.{name}: a key field must be str, int, bytes, bool, Enum, date, datetime, Decimal or "
                    "UUID; a float has several forms of one value, and a container or None identifies nothing",
                    type=self.name,
                    field=name,
                )
        extra = [n for n in self.partition_by if n not in self.key]
        if extra or not self.partition_by or len(set(self.partition_by)) != len(self.partition_by):
            why = f"{extra[0]!r} is not in it" if extra else "one or more different ones"
            raise DeclarationError(f"{self.name}: partition_by must name fields of the key: {why}", type=self.name)

    @cached_property
    def text(self) -> str:
        """Return the definition as canonical JSON."""
        return json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    def as_json(self) -> dict[str, Any]:
        """Return the definition as JSON values."""
        return {
            "name": self.name,
            "bases": list(self.bases),
            "version": self.version,
            "key": list(self.key),
            "partition_by": list(self.partition_by),
            "fields": [field_to_json(f) for f in self.record.fields],
        }

    @cached_property
    def type_id(self) -> bytes:
        """Return the 8 bytes that identify this definition."""
        return short_id(self.text)

    @property
    def root(self) -> str:
        """Return the name of the topmost managed base, which is the family's name."""
        return self.bases[-1] if self.bases else self.name

    @cached_property
    def family_id(self) -> bytes:
        """Return the 8 bytes that identify the key space of bases and subclasses."""
        return short_id(self.root)

    def shape(self, field: str) -> Shape:
        """Return the shape of a field."""
        return next(f.shape for f in self.record.fields if f.name == field)

    @staticmethod
    def parse(raw: str | bytes | Mapping[str, Any], type_id: bytes | None = None) -> Definition:
        """Read a definition from outside and check it, also against the id it was stored under. RecordFormatError if it
        is wrong."""
        try:
            found = _parse(raw)
            if type_id not in (None, found.type_id):
                raise ValueError(f"type id {found.type_id.hex()}, stored under {type_id!r}")
            return found
        except (DeclarationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RecordFormatError(f"not a type definition: {str(error)[:200] or type(error).__name__}") from error


def _may_be_key(shape: Shape) -> bool:
    return isinstance(shape, EnumShape | DecimalShape) or (isinstance(shape, Scalar) and shape.kind in KEY_SCALARS)


def _check_named(record: RecordShape) -> None:
    """Refuse two different nested types of one name: Avro names a record or enum once per schema."""
    seen: dict[str, Shape] = {}
    for shape in walk(record):
        if isinstance(shape, RecordShape | EnumShape) and seen.setdefault(shape.name, shape) != shape:
            raise DeclarationError(f"{record.name}: two different types named {shape.name!r} nested in it")


def _parse(raw: str | bytes | Mapping[str, Any]) -> Definition:
    if isinstance(raw, str | bytes):
        if len(raw) > MAX_DEFINITION_BYTES:
            raise ValueError(f"larger than {MAX_DEFINITION_BYTES} bytes")
        return _parse_json(json.loads(raw))
    return _parse_json(raw)


def _parse_json(raw: Any) -> Definition:
    _expect(raw, {"name", "bases", "version", "key", "partition_by", "fields"})
    version = raw["version"]
    if version is not None and type(version) is not int:
        raise ValueError("version must be an int or null")
    record = RecordShape(_name(raw["name"]), _fields(raw["fields"], 1))
    return Definition(
        record.name, _names(raw["bases"]), version, _names(raw["key"]), _names(raw["partition_by"]), record
    )


def _expect(raw: Any, keys: set[str], optional: frozenset[str] = frozenset()) -> None:
    if not isinstance(raw, Mapping) or not keys <= raw.keys() <= keys | optional:
        raise ValueError(f"expected an object with {', '.join(sorted(keys))}")


def _name(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError("a name must be a string")
    return check_name(raw, "name")


def _names(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_FIELDS:
        raise ValueError("expected a list of names")
    names = tuple(_name(n) for n in raw)
    if len(set(names)) != len(names):
        raise ValueError("a name twice")
    return names


def _fields(raw: Any, level: int) -> tuple[FieldShape, ...]:
    if not isinstance(raw, list) or not 0 < len(raw) <= MAX_FIELDS:
        raise ValueError(f"expected 1 to {MAX_FIELDS} fields")
    fields = tuple(_field(item, level) for item in raw)
    if len({f.name for f in fields}) != len(fields):
        raise ValueError("a field twice")
    return fields


def _field(raw: Any, level: int) -> FieldShape:
    _expect(raw, {"name", "type"}, frozenset({"default"}))
    name = _name(raw["name"])
    if "." in name:
        raise ValueError("a field name holds a dot")
    default = None
    if "default" in raw:
        given = raw["default"]
        if given != {"computed": True}:
            _expect(given, {"value"})
        default = Default(given.get("value"), computed="computed" in given)
    return FieldShape(name, _shape(raw["type"], level + 1), default)


def _shape(raw: Any, level: int) -> Shape:
    if level > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(raw, str):
        if raw not in SCALARS or raw == "none":
            raise ValueError(f"unknown type {raw[:40]!r}")
        return Scalar(raw)
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise ValueError("a type is a name or an object with one entry")
    ((kind, body),) = raw.items()
    return _compound(kind, body, level)


def _compound(kind: str, body: Any, level: int) -> Shape:
    match kind:
        case "list":
            return ListShape(_shape(body, level + 1))
        case "map":
            return MapShape(_shape(body, level + 1))
        case "optional":
            inner = _shape(body, level + 1)
            if isinstance(inner, OptionalShape):
                raise ValueError("an optional of an optional")
            return OptionalShape(inner)
        case "ref":
            return RefShape(_name(body))
        case "decimal":
            return _decimal(body)
        case "enum":
            _expect(body, {"name", "symbols"})
            symbols = _names(body["symbols"])
            if not symbols:
                raise ValueError("an enum without symbols")
            return EnumShape(_name(body["name"]), symbols)
        case "record":
            _expect(body, {"name", "fields"})
            return RecordShape(_name(body["name"]), _fields(body["fields"], level))
        case _:
            raise ValueError(f"unknown type {str(kind)[:40]!r}")


def _decimal(body: Any) -> DecimalShape:
    _expect(body, {"precision", "scale"})
    precision, scale = body["precision"], body["scale"]
    if type(precision) is not int or type(scale) is not int or not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise ValueError("a decimal beyond 38 digits")
    return DecimalShape(precision, scale)
