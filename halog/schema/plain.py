"""Plain values: what JSON can hold, for tools that import no application code and for defaults in definitions.

It never loses a value: what JSON has no word for becomes text that `from_plain` reads back (bytes as hex, decimals,
dates and UUIDs as text, not-a-number and infinities by name). Enums and records are taken bound (the application's
classes) or unbound (symbol and dict).
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from halog.errors import FieldTypeError
from halog.schema.reference import Ref
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

_TEXT: Final[dict[str, tuple[Callable[[Any], Any], Callable[[str], Any]]]] = {
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time.isoformat, dt.time.fromisoformat),
    "datetime": (lambda v: v.astimezone(dt.UTC).isoformat(), dt.datetime.fromisoformat),
    "uuid": (str, uuid.UUID),
}
_FLOAT_NAMES: Final = ("NaN", "Infinity", "-Infinity")


def to_plain(shape: Shape, value: Any) -> Any:
    """A value of the shape as JSON can hold it."""
    match shape:
        case Scalar("float"):
            return _float_to_plain(float(value))
        case Scalar(kind):
            return _TEXT[kind][0](value) if kind in _TEXT else value
        case DecimalShape(scale=scale):
            return format(value, f".{scale}f")
        case EnumShape():
            return value.name if isinstance(value, enum.Enum) else value
        case ListShape(of):
            return [to_plain(of, v) for v in value]
        case MapShape(of):
            return {k: to_plain(of, v) for k, v in value.items()}
        case OptionalShape(of):
            return None if value is None else to_plain(of, value)
        case RefShape():
            return {"ref": value.raw.hex(), "type": value.type_name, "key": value.key.hex()}
        case RecordShape(fields=fields):
            at = value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
            return {f.name: to_plain(f.shape, at(f.name)) for f in fields}


def _float_to_plain(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def from_plain(shape: Shape, value: Any, where: str = "value") -> Any:
    """The unbound value that `to_plain` wrote. What does not fit raises FieldTypeError naming `where`."""
    try:
        return _from_plain(shape, value, where)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, InvalidOperation, struct.error) as error:
        raise FieldTypeError(f"{where}: {error}", field=where) from error


def _from_plain(shape: Shape, value: Any, where: str) -> Any:
    match shape:
        case Scalar("float"):
            return float(value) if not isinstance(value, str) or value in _FLOAT_NAMES else value
        case Scalar(kind):
            return _TEXT[kind][1](value) if kind in _TEXT else value
        case DecimalShape():
            return Decimal(value) if isinstance(value, str) else value
        case ListShape(of):
            return [from_plain(of, v, f"{where}[{i}]") for i, v in enumerate(value)]
        case MapShape(of):
            return {k: from_plain(of, v, f"{where}[{k!r}]"[:80]) for k, v in value.items()}
        case OptionalShape(of):
            return None if value is None else from_plain(of, value, where)
        case RefShape():
            return Ref.from_raw(bytes.fromhex(value["ref"]), value["type"], bytes.fromhex(value["key"]))
        case RecordShape(fields=fields):
            return {f.name: from_plain(f.shape, value[f.name], f"{where}.{f.name}") for f in fields}
        case _:
            return value


def from_text(shape: Shape, text: str, where: str = "key") -> Any:
    """A key's value from the command line's text; the shape is one a key may have."""
    match shape:
        case Scalar("int"):
            try:
                return int(text)
            except ValueError:
                raise FieldTypeError(f"{where}: expected an int, got {text[:80]!r}", field=where) from None
        case Scalar("bool"):
            if text.lower() not in ("true", "false"):
                raise FieldTypeError(f"{where}: expected true or false, got {text[:80]!r}", field=where)
            return text.lower() == "true"
        case _:
            return from_plain(shape, text, where)
