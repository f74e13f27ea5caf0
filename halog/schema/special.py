"""This module holds codecs of enums, references and decimals: Avro types with a meaning on top, checked on the way in
and out.

It never rounds, and never takes a decimal context from the thread it happens to run in.

A decimal's number is what Avro says, so every reader of Avro has it. The bytes in front of it say how many digits were
written behind the point (`decimal_encoder`), so that it comes back with the same `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from halog.schema.reference import REF_BYTES, Ref
from halog.schema.scalars import (
    Decoder,
    Encoder,
    MalformedValue,
    Misfit,
    encode_bytes,
    encode_str,
    read_chunk,
    read_long,
    write_long,
)
from halog.schema.shapes import DecimalShape, EnumShape

Accepts = Callable[[str, str], bool]
"""(type name, target) -> may a reference to the first stand where the second is declared?"""


def enum_encoder(shape: EnumShape, bound: bool) -> Encoder:
    """Return an encoder that writes the symbol's index, from the member (bound) or the symbol itself."""
    index = {symbol: write_long(i) for i, symbol in enumerate(shape.symbols)}
    cls: type[Any] = shape.cls if bound and shape.cls is not None else str

    def encode(value: Any) -> bytes:
        if type(value) is not cls:
            raise Misfit(shape.name, value)
        raw = index.get(value if cls is str else value._name_)
        if raw is None:
            raise Misfit(f"one of {', '.join(shape.symbols)}"[:120], value)
        return raw

    return encode


def enum_decoder(members: Sequence[Any]) -> Decoder:
    """Return a decoder that reads the member at the written index."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if index < 0:
            raise MalformedValue("a negative enum index")
        return members[index], at

    return decode


def ref_encoder(target: str, accepts: Accepts) -> Encoder:
    """Return an encoder of references to an object of type `target` or a subtype."""

    def encode(value: Any) -> bytes:
        if type(value) is not Ref or not (value.type_name == target or accepts(value.type_name, target)):
            raise Misfit(f"Ref[{target}]", value)
        if not (type(value.location) is type(value.installation) is type(value.counter) is int):
            raise Misfit(f"Ref[{target}] of three unsigned 64-bit ints, a type name and key bytes", value)
        try:
            return value.raw + encode_str(value.type_name) + encode_bytes(value.key)
        except Exception:
            raise Misfit(f"Ref[{target}] of three unsigned 64-bit ints, a type name and key bytes", value) from None

    return encode


def decode_ref(data: bytes, at: int) -> tuple[Ref[Any], int]:
    """Read what `ref_encoder` wrote. The type may be a newer one than this process knows."""
    raw = data[at : at + REF_BYTES]
    if len(raw) < REF_BYTES:
        raise MalformedValue("a reference cut short")
    name, at = read_chunk(data, at + REF_BYTES)
    key, at = read_chunk(data, at)
    return Ref.from_raw(raw, name.decode(), key), at


def _exact(precision: int) -> Context:
    """Return a decimal context that refuses to round, whatever the thread's own context says."""
    return Context(prec=precision, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])


MINUS: Final = 32
"""At least so many more bytes say that a zero has a minus sign (`_minus`)."""
_LONGEST: Final = 96


def _minus(scale: int) -> int:
    """Return how many more bytes say that a zero has a minus sign. A zero's exponent takes fewer: `Decimal("0")` has
    one byte for each digit of the scale."""
    return max(MINUS, scale + 2)


def decimal_encoder(shape: DecimalShape, *, key: bool = False) -> Encoder:
    """Return an encoder that writes the number as an integer of units of the scale; it refuses to round.

    In front of its shortest form the sign is repeated: one byte for each power of ten by which the value's exponent is
    above the scale's. `Decimal("2.50")` at scale 9 is 2,500,000,000 with 7 more bytes. All bytes of a zero are zero.
    `key`: leave these bytes out, since equal numbers are one key.
    """
    scale, ctx, minus = shape.scale, _exact(shape.precision), _minus(shape.scale)
    step = Decimal((0, (1,), -scale))
    expected = f"Decimal of at most {shape.precision} digits, {scale} of them behind the point"

    def encode(value: Any) -> bytes:
        if type(value) is not Decimal:
            raise Misfit("Decimal", value)
        try:
            n = int(value.quantize(step, context=ctx).scaleb(scale, ctx))
        except (ArithmeticError, ValueError):
            raise Misfit(expected, value) from None
        size = (n if n >= 0 else ~n).bit_length() // 8 + 1
        if not key:
            sign, _, exponent = value.as_tuple()
            more = int(exponent) + scale
            if more < 0 or (not n and more >= minus - 1):
                raise Misfit(expected, value)
            size += more + (minus if sign and not n else 0)
        return write_long(size) + n.to_bytes(size, "big", signed=True)

    return encode


def decimal_decoder(shape: DecimalShape) -> Decoder:
    """Return a decoder of what `decimal_encoder` wrote; it refuses more digits than declared."""
    scale, ctx, bound = shape.scale, _exact(shape.precision), 10**shape.precision
    minus = _minus(scale)

    def decode(data: bytes, at: int) -> tuple[Decimal, int]:
        raw, at = read_chunk(data, at)
        n = int.from_bytes(raw, "big", signed=True) if 0 < len(raw) <= _LONGEST else bound
        if not -bound < n < bound:
            raise MalformedValue("a decimal beyond its precision")
        more = len(raw) - (n if n >= 0 else ~n).bit_length() // 8 - 1
        if not more:
            return Decimal(n).scaleb(-scale, ctx), at
        if not n:
            return Decimal((more >= minus, (0,), more % minus - scale)), at
        whole, rest = divmod(n, 10**more)
        if rest:
            raise MalformedValue("a decimal with more digits behind the point than it says")
        return Decimal(whole).scaleb(more - scale, ctx), at

    return decode
