"""This module converts to and from plain values: what JSON can hold, for tools that import no application code and for
defaults in definitions.

It never loses a value. A value that JSON cannot express becomes text that `from_plain` reads back (bytes as hex,
decimals, dates and UUIDs as text, not-a-number and infinities by name). Input is read whole or refused: no digit, field
or type is ignored. Enums and records are bound (the application's classes) or unbound (symbol and dict).
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from halog.errors import FieldTypeError
from halog.schema.reference import Ref
from halog.schema.shapes import (
    DecimalShape,
    EnumShape,
    FieldShape,
    ListShape,
    MapShape,
    OptionalShape,
    RecordShape,
    RefShape,
    Scalar,
    Shape,
)

_TOO_FINE: Final = re.compile(r"[.,][0-9]{7}")


def _in_micros(text: str) -> str:
    """Refuse a text with more than six digits of a second: Python would ignore the others."""
    if _TOO_FINE.search(text):
        raise ValueError(f"{text[:80]!r} is finer than a microsecond")
    return text


_TEXT: Final[dict[str, tuple[Callable[[Any], Any], Callable[[str], Any]]]] = {
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time.isoformat, lambda text: dt.time.fromisoformat(_in_micros(text))),
    "datetime": (
        lambda v: v.astimezone(dt.UTC).isoformat(),
        lambda text: dt.datetime.fromisoformat(_in_micros(text)),
    ),
    "uuid": (str, uuid.UUID),
}
_FLOAT_NAMES: Final = ("NaN", "Infinity", "-Infinity")


def to_plain(shape: Shape, value: Any, *, fixed: bool = False) -> Any:
    """Return a value of the shape as JSON can hold it. `fixed`: write decimals with all digits of their scale, as
    definitions hold defaults (their ids must not depend on how a default is written)."""
    match shape:
        case Scalar("float"):
            return _float_to_plain(float(value))
        case Scalar(kind):
            return _TEXT[kind][0](value) if kind in _TEXT else value
        case DecimalShape(scale=scale):
            return format(value, f".{scale}f") if fixed else str(value)
        case EnumShape():
            return value.name if isinstance(value, enum.Enum) else value
        case ListShape(of):
            return [to_plain(of, v, fixed=fixed) for v in value]
        case MapShape(of):
            return {k: to_plain(of, v, fixed=fixed) for k, v in value.items()}
        case OptionalShape(of):
            return None if value is None else to_plain(of, value, fixed=fixed)
        case RefShape():
            return {"ref": value.raw.hex(), "type": value.type_name, "key": value.key.hex()}
        case RecordShape(fields=fields):
            at = value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
            return {f.name: to_plain(f.shape, at(f.name), fixed=fixed) for f in fields}


def _float_to_plain(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def from_plain(shape: Shape, value: Any, where: str = "value") -> Any:
    """Return the unbound value that `to_plain` wrote. FieldTypeError names `where` if it does not fit."""
    try:
        return _from_plain(shape, value, where)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, InvalidOperation, struct.error) as error:
        raise FieldTypeError(f"{where}: {error}", field=where) from error


def _from_plain(shape: Shape, value: Any, where: str) -> Any:
    match shape:
        case Scalar("float"):
            return _float_from_plain(value)
        case Scalar(kind):
            return _TEXT[kind][1](value) if kind in _TEXT else value
        case DecimalShape():
            return Decimal(value) if isinstance(value, str) else value
        case ListShape(of):
            return [from_plain(of, v, f"{where}[{i}]") for i, v in enumerate(_array(value))]
        case MapShape(of):
            return {k: from_plain(of, v, f"{where}[{k!r}]"[:80]) for k, v in value.items()}
        case OptionalShape(of):
            return None if value is None else from_plain(of, value, where)
        case RefShape():
            return Ref.from_raw(bytes.fromhex(value["ref"]), value["type"], bytes.fromhex(value["key"]))
        case RecordShape(fields=fields):
            _check_known(value, fields)
            return {f.name: from_plain(f.shape, value[f.name], f"{where}.{f.name}") for f in fields}
        case _:
            return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected an array, got {type(value).__name__}")
    return value


def _check_known(value: Any, fields: Sequence[FieldShape]) -> None:
    if odd := sorted(value.keys() - {f.name for f in fields}):
        raise ValueError(f"unknown field {odd[0]!r}")


def _float_from_plain(value: Any) -> Any:
    """Return JSON's number as a float, an int included if the float equals it. Anything else is left to the encoder."""
    if isinstance(value, str):
        return float(value) if value in _FLOAT_NAMES else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number beyond those that a float can hold")
    return float(value) if type(value) is int and abs(value) <= 1 << 53 else value


def from_text(shape: Shape, text: str, where: str = "key") -> Any:
    """Return a key's value from the command line's text; the shape is one that a key may have."""
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
