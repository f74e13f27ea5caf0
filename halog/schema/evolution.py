"""This module reads what an older definition wrote with the class declared now (U2, U3).

It never converts in place and never guesses. A change is read soundly, for every value the old definition allowed, or
refused with SchemaChangedError before the first object is read. These changes are read: an added field with a constant
default, a removed field, int to float, a decimal with more digits at the same scale, T to T | None, an enum with more
symbols, and these inside lists, maps and nested dataclasses. A reader is compiled from both shapes: old bytes go in and
new values come out. The key, partition_by and the bases decide where an object lives, so they cannot change.

int to float is what Avro calls promotion: beyond 2**53 the nearest float is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halog.errors import RecordFormatError, SchemaChangedError
from halog.schema.codec import decoder, list_decoder, maker, map_decoder, optional_decoder
from halog.schema.definition import Definition
from halog.schema.plain import from_plain
from halog.schema.scalars import DECODE_ERRORS, Decoder
from halog.schema.shapes import (
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
    to_json,
)
from halog.schema.special import enum_decoder

Reader = Callable[[bytes], dict[str, Any]]
_Plan = tuple[list[tuple[str | None, Decoder]], list[tuple[str, Callable[[], Any]]]]


class _Changed(Exception):
    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field
        self.why = why


def body_reader(name: str, type_id: bytes, fields: list[tuple[str, Decoder]]) -> Reader:
    """Return a reader of an object's bytes: the type id, then the fields, then nothing."""
    prefix = len(type_id)

    def read(data: bytes) -> dict[str, Any]:
        if data[:prefix] != type_id:
            raise RecordFormatError(f"{name}: bytes of type id {data[:prefix].hex()}, expected {type_id.hex()}")
        at = prefix
        values: dict[str, Any] = {}
        try:
            for field, decode in fields:
                values[field], at = decode(data, at)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{name}: bytes that are no {name}: {str(error)[:200]}") from error
        if at != len(data):
            raise RecordFormatError(f"{name}: {len(data) - at} bytes behind the last field")
        return values

    return read


def evolved_reader(stored: Definition, declared: Definition) -> Reader:
    """Return a reader of what `stored` wrote into the shape of `declared`; SchemaChangedError where that is not
    sound."""
    try:
        _check_identity(stored, declared)
        reads, fills = _record_plan(stored.record, declared.record, "")
    except _Changed as change:
        raise _error(stored, declared, change) from None
    names = [n for n, _ in reads if n is not None]
    raw = body_reader(declared.name, stored.type_id, [(n or f"-{i}", d) for i, (n, d) in enumerate(reads)])
    order = [f.name for f in declared.record.fields]

    def read(data: bytes) -> dict[str, Any]:
        found = raw(data)
        values = {name: found[name] for name in names}
        values.update((name, make()) for name, make in fills)
        return {name: values[name] for name in order}

    return read


def _error(stored: Definition, declared: Definition, change: _Changed) -> SchemaChangedError:
    field = f"{declared.name}.{change.field}" if change.field else declared.name
    return SchemaChangedError(
        f"{field}: {change.why}; stored definition {stored.text}; declared definition {declared.text}",
        type=declared.name,
        field=change.field,
        stored=stored.text,
        declared=declared.text,
        why=change.why,
    )


def _check_identity(stored: Definition, declared: Definition) -> None:
    for what in ("name", "bases", "key", "partition_by"):
        old, new = getattr(stored, what), getattr(declared, what)
        if old != new:
            raise _Changed("", f"{what} changed from {old!r} to {new!r}")
    for name in stored.key:
        if not _same_key_bytes(stored.shape(name), declared.shape(name)):
            raise _Changed(name, f"key field changed from {_text(stored.shape(name))} to {_text(declared.shape(name))}")


def _same_key_bytes(old: Shape, new: Shape) -> bool:
    """Does a key keep its bytes? Keys are looked up by their bytes. An enum may grow at its end."""
    if isinstance(old, EnumShape) and isinstance(new, EnumShape):
        return old.name == new.name and new.symbols[: len(old.symbols)] == old.symbols
    return old == new


def _record_plan(old: RecordShape, new: RecordShape, path: str) -> _Plan:
    """Return the old fields with the names to read them under (None: removed), and the new fields to fill."""
    wanted = {f.name: f for f in new.fields}
    reads: list[tuple[str | None, Decoder]] = []
    for field in old.fields:
        target = wanted.pop(field.name, None)
        if target is None:
            reads.append((None, decoder(field.shape, bound=False)))
        else:
            reads.append((field.name, _resolve(field.shape, target.shape, path + field.name)))
    return reads, [(f.name, _filler(f, path + f.name)) for f in wanted.values()]


def _filler(field: FieldShape, path: str) -> Callable[[], Any]:
    match field.default:
        case None:
            raise _Changed(path, "added without a default (or renamed)")
        case Default(computed=True):
            raise _Changed(
                path,
                "added with a default that code computes, so it could differ from node to node; give a constant, "
                "list or dict as default",
            )
        case Default(make=make) if make is not None:
            return make
        case Default(plain=plain):
            return lambda: from_plain(field.shape, plain, path)


def _text(shape: Shape) -> str:
    return str(to_json(shape))[:200]


def _resolve(old: Shape, new: Shape, path: str) -> Decoder:
    """Return the decoder from old bytes to a new value."""
    found = None if old == new else _widened(old, new, path)
    if old == new:
        return decoder(new)
    if found is None:
        raise _Changed(path, f"changed from {_text(old)} to {_text(new)}")
    return found


def _widened(old: Shape, new: Shape, path: str) -> Decoder | None:
    match old, new:
        case Scalar("int"), Scalar("float"):
            return _to_float(decoder(old))
        case DecimalShape(), DecimalShape() if old.scale == new.scale and old.precision <= new.precision:
            return decoder(old)
        case EnumShape(), EnumShape() if old.name == new.name:
            return _enum(old, new, path)
        case ListShape(a), ListShape(b):
            return list_decoder(_resolve(a, b, path + "[]"))
        case MapShape(a), MapShape(b):
            return map_decoder(_resolve(a, b, path + "[]"))
        case OptionalShape(a), OptionalShape(b):
            return optional_decoder(_resolve(a, b, path))
        case (
            (Scalar() | DecimalShape() | EnumShape() | ListShape() | MapShape() | RefShape() | RecordShape()),
            (OptionalShape(b)),
        ):
            return _resolve(old, b, path)
        case RecordShape(), RecordShape() if old.name == new.name:
            return _record(old, new, path)
        case _:
            return None


def _to_float(inner: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[float, int]:
        value, at = inner(data, at)
        return float(value), at

    return decode


def _enum(old: EnumShape, new: EnumShape, path: str) -> Decoder:
    gone = [s for s in old.symbols if s not in new.symbols]
    if gone:
        raise _Changed(path, f"enum symbol {gone[0]} is in the definition that writes, and not in the one that reads")
    return enum_decoder([s if new.cls is None else new.cls[s] for s in old.symbols])


def _record(old: RecordShape, new: RecordShape, path: str) -> Decoder:
    reads, fills = _record_plan(old, new, path + ".")
    make = maker(new, True)
    order = [f.name for f in new.fields]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for name, read in reads:
            value, at = read(data, at)
            if name is not None:
                values[name] = value
        values.update((name, fill()) for name, fill in fills)
        return make({name: values[name] for name in order}), at

    return decode
