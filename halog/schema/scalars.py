"""This module reads and writes Avro's scalar bytes, strictly: encoders check the value, decoders check the bytes.

It never guesses. A bool is no int, an int no float, a str subclass no str; a naive datetime has no instant; a moment
that UTC's calendar does not hold could not be read back. A value that would come back as another type or with another
`repr` is refused (only an aware datetime may change its zone). Over-long varints, negative lengths, and lengths beyond
the data are refused before anything is allocated. An encoder raises `Misfit` and a decoder `MalformedValue` (or
IndexError, struct.error, ValueError, OverflowError, which the caller maps). Neither knows type or field names, so the
hot path pays for none.

Why not fastavro here: it accepts trailing bytes, 51-byte varints and unions out of range, and can be made to segfault.
These functions are faster for flat objects, and the tests hold them to fastavro's bytes.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

Encoder = Callable[[Any], bytes]
"""Checks a value and returns its bytes; raises `Misfit`."""
Decoder = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position, and the position behind it; raises `DECODE_ERRORS`."""


class Misfit(Exception):
    """A value does not fit; `path` is filled from the inside out."""

    def __init__(self, expected: str, value: Any) -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.path = ""


class MalformedValue(Exception):
    """The bytes are no value of the shape."""


DECODE_ERRORS: Final = (MalformedValue, IndexError, ValueError, OverflowError, struct.error)

_SHORT: Final = tuple(bytes((z,) if z < 128 else (z & 127 | 128, z >> 7)) for z in range(2_048))
"""Bytes of small numbers and of the lengths of most strings: a look-up takes a fifth of the time to make them."""
_DOUBLE: Final = struct.Struct("<d")
_UTC: Final = dt.UTC
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_DAY_MICROS: Final = 86_400_000_000
_MICRO: Final = dt.timedelta(microseconds=1)
_FIRST: Final = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MICRO
_LAST: Final = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // _MICRO


def write_long(value: int) -> bytes:
    """Return a zigzag varint. `value` is an int; its range is checked here."""
    z = (value << 1) ^ (value >> 63)
    if z < 2_048:
        return _SHORT[z]
    if z < 16_384:
        return bytes((z & 127 | 128, z >> 7))
    if z < 2_097_152:
        return bytes((z & 127 | 128, z >> 7 & 127 | 128, z >> 14))
    if z >> 64:
        raise Misfit("an int of at most 64 bits", value)
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read what `write_long` wrote; refuse more than 64 bits and padded varints."""
    z = data[at]
    at += 1
    if z > 127:
        z, at = _read_rest(data, at, z & 127)
    return (z >> 1) ^ -(z & 1), at


def _read_rest(data: bytes, at: int, z: int) -> tuple[int, int]:
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        z |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 or z >> 64:
                break
            return z, at
    raise MalformedValue("a varint that is padded or beyond 64 bits")


def read_chunk(data: bytes, at: int) -> tuple[bytes, int]:
    """Read length-prefixed bytes; check the length against the bytes that follow."""
    n = data[at]
    at += 1
    if n & 129:  # more than one byte, or negative
        n, at = read_long(data, at - 1)
        n <<= 1
    end = at + (n >> 1)
    if n < 0 or end > len(data):
        raise MalformedValue("a length beyond the data")
    return data[at:end], end


def encode_int(value: Any) -> bytes:
    """Write an Avro long."""
    if type(value) is not int:
        raise Misfit("int", value)
    return write_long(value)


def encode_bool(value: Any) -> bytes:
    """Write an Avro boolean."""
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise Misfit("bool", value)


def decode_bool(data: bytes, at: int) -> tuple[bool, int]:
    """Read an Avro boolean; take only 0 and 1."""
    if data[at] > 1:
        raise MalformedValue("a boolean that is neither 0 nor 1")
    return data[at] == 1, at + 1


def encode_float(value: Any) -> bytes:
    """Write an Avro double. Refuse an int, though Python's typing allows one for a float: it would come back as another
    type."""
    if type(value) is not float:
        raise Misfit("float", value)
    return _DOUBLE.pack(value)


def decode_float(data: bytes, at: int) -> tuple[float, int]:
    """Read an Avro double."""
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def encode_str(value: Any) -> bytes:
    """Write an Avro string."""
    if type(value) is not str:
        raise Misfit("str", value)
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise Misfit("str without lone surrogates", value) from None
    return write_long(len(raw)) + raw


def decode_str(data: bytes, at: int) -> tuple[str, int]:
    """Read an Avro string, which must be UTF-8."""
    raw, at = read_chunk(data, at)
    return raw.decode(), at


def encode_bytes(value: Any) -> bytes:
    """Write Avro bytes. Refuse a bytearray, which could change after it was checked."""
    if type(value) is not bytes:
        raise Misfit("bytes", value)
    return write_long(len(value)) + value


def encode_date(value: Any) -> bytes:
    """Write the days since 1970-01-01."""
    if type(value) is not dt.date:
        raise Misfit("date", value)
    return write_long(value.toordinal() - _EPOCH_DAY)


def decode_date(data: bytes, at: int) -> tuple[dt.date, int]:
    """Read the days since 1970-01-01."""
    days, at = read_long(data, at)
    return dt.date.fromordinal(days + _EPOCH_DAY), at


def encode_time(value: Any) -> bytes:
    """Write the microseconds since midnight. Only naive times are taken: a time zone without a date has no offset, and
    without a zone `fold` means nothing."""
    if type(value) is not dt.time or value.tzinfo is not None:
        raise Misfit("time without a time zone", value)
    if value.fold:
        raise Misfit("time with fold=0", value)
    return write_long(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)


def decode_time(data: bytes, at: int) -> tuple[dt.time, int]:
    """Read the microseconds since midnight."""
    micros, at = read_long(data, at)
    if not 0 <= micros < _DAY_MICROS:
        raise MalformedValue("a time outside the day")
    seconds, micros = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    return dt.time(minutes // 60, minutes % 60, seconds, micros), at


def encode_datetime(value: Any) -> bytes:
    """Write the microseconds since 1970 UTC. Only aware datetimes are taken: a naive one means another instant on
    another machine. A zone may have moments before year 1 or after year 9999 of UTC, which could not be read back."""
    if type(value) is not dt.datetime:
        raise Misfit("datetime with a time zone", value)
    try:
        if value.utcoffset() is None:
            raise Misfit("datetime with a time zone", value)
        micros = (value - _EPOCH) // _MICRO
    except Misfit:
        raise
    except Exception:  # its zone may be any class
        raise Misfit("datetime whose time zone says its offset", value) from None
    if not _FIRST <= micros <= _LAST:
        raise Misfit("datetime that is within year 1 to 9999 in UTC", value)
    return write_long(micros)


def decode_datetime(data: bytes, at: int) -> tuple[dt.datetime, int]:
    """Read the microseconds since 1970, in UTC."""
    micros, at = read_long(data, at)
    return _EPOCH + dt.timedelta(microseconds=micros), at


def encode_uuid(value: Any) -> bytes:
    """Write Avro's uuid: the text of 36 characters, which every Avro reader understands."""
    if type(value) is not uuid.UUID:
        raise Misfit("UUID", value)
    return b"\x48" + str(value).encode()


def decode_uuid(data: bytes, at: int) -> tuple[uuid.UUID, int]:
    """Read Avro's uuid; take only the canonical text."""
    text, at = decode_str(data, at)
    value = uuid.UUID(text)
    if str(value) != text:
        raise MalformedValue("a UUID not in its canonical form")
    return value, at


def encode_none(value: Any) -> bytes:
    """Write Avro null, which has no bytes."""
    if value is not None:
        raise Misfit("None", value)
    return b""


def decode_none(_data: bytes, at: int) -> tuple[None, int]:
    """Read Avro null, which has no bytes."""
    return None, at


SCALAR_CODECS: Final[Mapping[str, tuple[Encoder, Decoder]]] = {
    "bool": (encode_bool, decode_bool),
    "int": (encode_int, read_long),
    "float": (encode_float, decode_float),
    "str": (encode_str, decode_str),
    "bytes": (encode_bytes, read_chunk),
    "date": (encode_date, decode_date),
    "time": (encode_time, decode_time),
    "datetime": (encode_datetime, decode_datetime),
    "uuid": (encode_uuid, decode_uuid),
    "none": (encode_none, decode_none),
}
