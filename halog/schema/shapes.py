"""This module holds shapes: what a value may look like, independent of Python classes and of bytes.

A shape is read from an annotation (`annotations`) or from a stored definition (`definition`); codecs, Avro schemas and
evolution rules are all derived from it. The module never looks at a value. Shapes are one small algebra (scalars,
decimal, enum, list, map, optional, reference, record), closed under nesting and without recursion. So every walk over a
shape ends, and its depth bounds the depth of every value.

Equality of shapes is equality of what is stored: the Python class behind an enum or record does not take part.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_DEPTH: Final = 32
"""Deeper nesting is refused: no real class needs it, and attacks use it."""
MAX_FIELDS: Final = 1_000
"""Most fields of one type, those of nested records included; it bounds the work one definition can cause."""

SCALARS: Final[Mapping[str, Any]] = {
    "bool": "boolean",
    "int": "long",
    "float": "double",
    "str": "string",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "datetime": {"type": "long", "logicalType": "timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "none": "null",
}
"""Scalar kinds and their Avro types. `none` is only a method's result, never a field: it takes no bytes."""

REF_NAME: Final = "halog.Ref"
REF_NAMES: Final = frozenset({REF_NAME, "halog.RefId"})
REF_AVRO: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": REF_NAME,
    "fields": [
        {"name": "ref", "type": {"type": "fixed", "name": "halog.RefId", "size": 24}},
        {"name": "type", "type": "string"},
        {"name": "key", "type": "bytes"},
    ],
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Describes a value of one of the kinds of `SCALARS`."""

    kind: str


@dataclass(frozen=True, slots=True)
class DecimalShape:
    """Describes a decimal of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class EnumShape:
    """Describes one of `symbols`; stored by name, so that members' values may change."""

    name: str
    symbols: tuple[str, ...]
    cls: type[enum.Enum] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ListShape:
    """Describes any number of values of one shape."""

    items: Shape


@dataclass(frozen=True, slots=True)
class MapShape:
    """Describes values of one shape by string."""

    values: Shape


@dataclass(frozen=True, slots=True)
class OptionalShape:
    """Describes a value or None."""

    of: Shape


@dataclass(frozen=True, slots=True)
class RefShape:
    """Describes a reference to a managed object of type `target` or a subtype."""

    target: str


@dataclass(frozen=True, slots=True)
class Default:
    """Holds a field's default: `plain` (JSON) if it is a constant; `computed` if code makes it anew every time.

    `make` returns the Python value and is known only where the class is.
    """

    plain: Any = None
    computed: bool = False
    make: Callable[[], Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FieldShape:
    """Describes a named field of a record."""

    name: str
    shape: Shape
    default: Default | None = None


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Describes named fields in order: a managed type itself, or a plain dataclass nested in one."""

    name: str
    fields: tuple[FieldShape, ...]
    cls: type[Any] | None = field(default=None, compare=False)


Shape = Scalar | DecimalShape | EnumShape | ListShape | MapShape | OptionalShape | RefShape | RecordShape


def children(shape: Shape) -> tuple[Shape, ...]:
    """Return the shapes directly inside."""
    match shape:
        case ListShape(of) | MapShape(of) | OptionalShape(of):
            return (of,)
        case RecordShape():
            return tuple(f.shape for f in shape.fields)
        case _:
            return ()


def walk(shape: Shape) -> Iterator[Shape]:
    """Yield the shape and everything inside it, outermost first."""
    yield shape
    for child in children(shape):
        yield from walk(child)


def depth(shape: Shape) -> int:
    """Return the levels of nesting; a scalar has 1."""
    return 1 + max((depth(c) for c in children(shape)), default=0)


def count_fields(shape: Shape) -> int:
    """Return the number of fields of all records inside, counted as often as they occur."""
    return sum(len(s.fields) for s in walk(shape) if isinstance(s, RecordShape))


def is_mutable(shape: Shape) -> bool:
    """Say whether a value of this shape can be changed in place."""
    match shape:
        case ListShape() | MapShape():
            return True
        case RecordShape(cls=cls):
            frozen = cls is not None and cls.__dataclass_params__.frozen
            return not frozen or any(is_mutable(c) for c in children(shape))
        case _:
            return any(is_mutable(c) for c in children(shape))


def to_json(shape: Shape) -> Any:
    """Return the shape as a stored definition writes it."""
    match shape:
        case Scalar(kind):
            return kind
        case DecimalShape(precision, scale):
            return {"decimal": {"precision": precision, "scale": scale}}
        case EnumShape(name, symbols):
            return {"enum": {"name": name, "symbols": list(symbols)}}
        case ListShape(of):
            return {"list": to_json(of)}
        case MapShape(of):
            return {"map": to_json(of)}
        case OptionalShape(of):
            return {"optional": to_json(of)}
        case RefShape(target):
            return {"ref": target}
        case RecordShape(name, fields):
            return {"record": {"name": name, "fields": [field_to_json(f) for f in fields]}}


def field_to_json(item: FieldShape) -> dict[str, Any]:
    """Return a record's field as a stored definition writes it."""
    out = {"name": item.name, "type": to_json(item.shape)}
    if item.default is not None:
        out["default"] = {"computed": True} if item.default.computed else {"value": item.default.plain}
    return out


def to_avro(shape: Shape) -> Any:
    """Return the Avro schema. A named type is spelled out once in each Avro namespace where it is used: a name without
    a dot means another type in another namespace, and a dotted name (`Outer.Inner`) puts all inside into one."""
    return _to_avro(shape, {}, "")


def _to_avro(shape: Shape, named: dict[str, Shape], namespace: str) -> Any:
    match shape:
        case Scalar(kind):
            return SCALARS[kind]
        case DecimalShape(precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case ListShape(of):
            return {"type": "array", "items": _to_avro(of, named, namespace)}
        case MapShape(of):
            return {"type": "map", "values": _to_avro(of, named, namespace)}
        case OptionalShape(of):
            return ["null", _to_avro(of, named, namespace)]
        case RefShape():
            if REF_NAME in named:
                return REF_NAME
            named[REF_NAME] = shape
            return REF_AVRO
        case EnumShape() | RecordShape():
            return _named_avro(shape, named, namespace)


def _named_avro(shape: EnumShape | RecordShape, named: dict[str, Shape], namespace: str) -> Any:
    name = shape.name
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    while full in REF_NAMES or named.get(full, shape) != shape:  # Avro would take two types for one
        name, full = name + "_", full + "_"
    if full in named:
        return name
    named[full] = shape
    match shape:
        case EnumShape(symbols=symbols):
            return {"type": "enum", "name": name, "symbols": list(symbols)}
        case RecordShape(fields=fields):
            inside = full.rpartition(".")[0]
            avro = [{"name": f.name, "type": _to_avro(f.shape, named, inside)} for f in fields]
            return {"type": "record", "name": name, "fields": avro}
