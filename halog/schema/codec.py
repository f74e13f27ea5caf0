"""This module compiles a shape to closures that write and read its Avro bytes.

It never evaluates generated text: composition of closures is the whole compiler. Two dialects share it. *Bound*: enums
and records are the application's classes. *Unbound*: an enum is its symbol and a record a dict, for tools that import
no application code. Each closure checks what it writes and what it reads. So a value that encodes always decodes to one
of the same type and `repr` (except for the zone of a datetime), and bytes that decode were written by some value of the
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import getattr_static
from operator import attrgetter, itemgetter
from typing import Any

from halog.errors import HalogError
from halog.schema.lent import ENDED, EndedDict, EndedList
from halog.schema.scalars import (
    SCALAR_CODECS,
    Decoder,
    Encoder,
    MalformedValue,
    Misfit,
    encode_str,
    read_chunk,
    read_long,
    write_long,
)
from halog.schema.shapes import (
    DecimalShape,
    EnumShape,
    ListShape,
    MapShape,
    OptionalShape,
    RecordShape,
    RefShape,
    Scalar,
    Shape,
)
from halog.schema.special import (
    Accepts,
    decimal_decoder,
    decimal_encoder,
    decode_ref,
    enum_decoder,
    enum_encoder,
    ref_encoder,
)


def same_name(type_name: str, target: str) -> bool:
    """Accept a reference by its exact type name: the `Accepts` of callers that know no subtypes."""
    return type_name == target


def encoder(shape: Shape, accepts: Accepts = same_name, *, bound: bool = True) -> Encoder:
    """Return the closure that checks a value and writes its bytes; it raises `Misfit`."""
    match shape:
        case Scalar(kind):
            return SCALAR_CODECS[kind][0]
        case DecimalShape():
            return decimal_encoder(shape)
        case EnumShape():
            return enum_encoder(shape, bound)
        case ListShape(of):
            return _list_encoder(encoder(of, accepts, bound=bound))
        case MapShape(of):
            return _map_encoder(encoder(of, accepts, bound=bound))
        case OptionalShape(of):
            return _optional_encoder(encoder(of, accepts, bound=bound))
        case RefShape(target):
            return ref_encoder(target, accepts)
        case RecordShape():
            return _record_encoder(shape, accepts, bound)


def key_encoder(shape: Shape, *, bound: bool = True) -> Encoder:
    """Return the encoder for a part of a key. Equal numbers get the same bytes, so that they are one key."""
    return decimal_encoder(shape, key=True) if isinstance(shape, DecimalShape) else encoder(shape, bound=bound)


def decoder(shape: Shape, *, bound: bool = True) -> Decoder:
    """Return the closure that checks bytes and reads their value; it raises one of `DECODE_ERRORS`."""
    match shape:
        case Scalar(kind):
            return SCALAR_CODECS[kind][1]
        case DecimalShape():
            return decimal_decoder(shape)
        case EnumShape(symbols=symbols, cls=cls):
            return enum_decoder([cls[s] if bound and cls is not None else s for s in symbols])
        case ListShape(of):
            return list_decoder(decoder(of, bound=bound))
        case MapShape(of):
            return map_decoder(decoder(of, bound=bound))
        case OptionalShape(of):
            return optional_decoder(decoder(of, bound=bound))
        case RefShape():
            return decode_ref
        case RecordShape(fields=fields):
            return record_decoder([(f.name, decoder(f.shape, bound=bound)) for f in fields], maker(shape, bound))


def misfit_at(encoders: Sequence[tuple[str, Encoder]], values: Sequence[Any]) -> Misfit:
    """Find out which of the values does not fit. This is the slow path, run after the fast one failed. A value of an
    application's class may run code of its own, which may raise anything."""
    for (name, encode), value in zip(encoders, values, strict=True):
        try:
            encode(value)
        except Misfit as misfit:
            misfit.path = name + misfit.path
            return misfit
        except HalogError:  # that code has called halog
            raise
        except Exception as error:
            raised = Misfit(f"a value that raises no {type(error).__name__} while it is encoded", value)
            raised.path = name
            return raised
    return Misfit("values that stay the same while they are encoded", values)


# ------------------------------------------------------------------------------------------------------- containers


def _list_encoder(item: Encoder) -> Encoder:
    def encode(value: Any) -> bytes:
        if type(value) is not list and type(value) is not EndedList:
            raise Misfit("list", value)
        if not value:
            return b"\x00"
        try:
            return b"".join([write_long(len(value)), *map(item, value), b"\x00"])
        except Misfit:
            raise misfit_at([(f"[{i}]", item) for i in range(len(value))], value) from None

    return encode


def list_decoder(item: Decoder) -> Decoder:
    """Return a decoder of lists. Each item takes at least one byte, so a count beyond the bytes left is refused."""

    def decode(data: bytes, at: int) -> tuple[list[Any], int]:
        out: list[Any] = []
        while True:
            count, at = _block(data, at)
            if not count:
                return out, at
            for _ in range(count):
                value, at = item(data, at)
                out.append(value)

    return decode


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Read the item count of an array or map block. Behind a negative one stands the block's size (Avro's skip aid)."""
    count, at = read_long(data, at)
    if count < 0:
        count = -count
        size, at = read_long(data, at)
        if not count <= size <= len(data) - at:
            raise MalformedValue("a block size that cannot be")
    if count > len(data) - at:
        raise MalformedValue("more items than bytes")
    return count, at


def _map_encoder(item: Encoder) -> Encoder:
    def encode(value: Any) -> bytes:
        if type(value) is not dict and type(value) is not EndedDict:
            raise Misfit("dict", value)
        if not value:
            return b"\x00"
        try:
            pairs = [encode_str(k) + item(v) for k, v in value.items()]
        except Misfit:
            keys = [(f" key {k!r}"[:40], encode_str) for k in value]
            items = [(f"[{k!r}]"[:40], item) for k in value]
            raise misfit_at([*keys, *items], [*value.keys(), *value.values()]) from None
        return b"".join([write_long(len(pairs)), *pairs, b"\x00"])

    return encode


def map_decoder(item: Decoder) -> Decoder:
    """Return a decoder of maps with string keys, each once."""

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        seen = 0
        while True:
            count, at = _block(data, at)
            if not count:
                break
            seen += count
            for _ in range(count):
                raw, at = read_chunk(data, at)
                out[raw.decode()], at = item(data, at)
        if len(out) != seen:
            raise MalformedValue("a map with a key twice")
        return out, at

    return decode


def _optional_encoder(inner: Encoder) -> Encoder:
    def encode(value: Any) -> bytes:
        if value is None:
            return b"\x00"
        try:
            return b"\x02" + inner(value)
        except Misfit as misfit:
            if not misfit.path:
                misfit.expected += " or None"
            raise

    return encode


def optional_decoder(inner: Decoder) -> Decoder:
    """Return a decoder of Avro's union of null and one other; any other branch number is refused."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        branch = data[at]
        if branch == 2:
            return inner(data, at + 1)
        if branch == 0:
            return None, at + 1
        raise MalformedValue("a union branch that does not exist")

    return decode


# ---------------------------------------------------------------------------------------------------------- records


def _record_encoder(shape: RecordShape, accepts: Accepts, bound: bool) -> Encoder:
    pairs = [(f".{f.name}", encoder(f.shape, accepts, bound=bound)) for f in shape.fields]
    encoders = [e for _, e in pairs]
    names = [f.name for f in shape.fields]
    cls = shape.cls if bound and shape.cls is not None else dict
    values_of = values_getter(names) if cls is not dict else _items_getter(names)
    inside = _names_inside(cls, names)

    def encode(value: Any) -> bytes:
        if (type(value) is not cls and type(value) is not ENDED.get(cls)) or (cls is dict and len(value) != len(names)):
            raise Misfit(shape.name, value)
        if inside is not None and len(value.__dict__) > inside:
            _check_nothing_else(shape.name, names, value)
        try:
            values = values_of(value)
        except (AttributeError, KeyError):
            raise Misfit(f"a complete {shape.name}", value) from None
        try:
            return b"".join([e(v) for e, v in zip(encoders, values)])
        except Misfit:
            raise misfit_at(pairs, values) from None

    return encode


def _names_inside(cls: type[Any], names: Sequence[str]) -> int | None:
    """Return how many of the fields are in an instance's `__dict__`; None: it has no `__dict__`."""
    if not getattr(cls, "__dictoffset__", 0):
        return None
    return sum(not hasattr(getattr_static(cls, name, None), "__set__") for name in names)


def _check_nothing_else(name: str, fields: Sequence[str], value: Any) -> None:
    """Raise Misfit for an attribute that is no field: it would be lost. As in managed objects, an attribute that begins
    with _ is allowed, and so is one that the class has (a cached property), which is made again."""
    for found in value.__dict__:
        if found not in fields and not found.startswith("_") and not hasattr(type(value), found):
            raise Misfit(f"a {name} without an attribute {found!r}, which is no field and would be lost", value)


def values_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that takes the named attributes of an object as a tuple, even if it is only one."""
    if len(names) > 1:
        return attrgetter(*names)
    only = attrgetter(names[0])
    return lambda obj: (only(obj),)


def _items_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda mapping: (mapping[names[0]],)


def maker(shape: RecordShape, bound: bool) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes a record of the dialect from its values, without running `__init__`."""
    cls = shape.cls
    if not bound or cls is None:
        return lambda values: values
    new, put = object.__new__, object.__setattr__

    def with_dict(values: dict[str, Any]) -> Any:
        obj = new(cls)
        obj.__dict__.update(values)
        return obj

    def with_slots(values: dict[str, Any]) -> Any:
        obj = new(cls)
        for name, value in values.items():
            put(obj, name, value)
        return obj

    return with_slots if any(vars(c).get("__slots__") for c in cls.__mro__) else with_dict


def record_decoder(fields: Sequence[tuple[str, Decoder]], make: Callable[[dict[str, Any]], Any]) -> Decoder:
    """Return a decoder that reads the fields in order and calls `make`."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for name, field in fields:
            values[name], at = field(data, at)
        return make(values), at

    return decode
