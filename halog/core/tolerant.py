"""Says how JSON of a later version of halog is read and written back: a field that this version does not know is kept,
and stands in what this version writes (U1).

Several versions of halog share the znodes of one cluster. Whoever changes a znode by compare-and-set writes all of it:
without this, an old node would erase what a newer one has written there.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType, inspect as shapes

T = TypeVar("T")

UNKNOWN: Final = "~unknown"
"""Under this name a struct keeps what it does not know, while it is in memory. No field of JSON has it."""
_MARK: Final = b'"~unknown":{'


class TolerantStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `TolerantStruct` keeps the fields that a later version of halog has written. `msgspec.structs.replace` keeps
    them too; a struct that is made anew has none."""

    unknown: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name=UNKNOWN)
    """By name; UNSET: there are none."""


S = TypeVar("S", bound=TolerantStruct)


def carrying(now: S, before: TolerantStruct | None) -> S:
    """Return a struct that was made anew with the fields that were kept in the one whose place it takes."""
    return now if before is None else msgspec.structs.replace(now, unknown=before.unknown)


class TolerantDecoder(Generic[T]):
    """A `TolerantDecoder` reads one type from JSON. Structs in it that are a `TolerantStruct` keep what they do not
    know."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, data: bytes) -> T:
        """Return the value; msgspec.MsgspecError if this is no such JSON, whatever version wrote it."""
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as refused:
            kept = _kept(msgspec.json.decode(data), shapes.type_info(self._kind))
            try:
                return msgspec.convert(kept, self._kind)
            except msgspec.ValidationError as e:
                raise e from refused

    def found(self, data: bytes | None) -> T | None:
        """Return the value; None where there is nothing, or no such JSON."""
        try:
            return None if data is None else self.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def plain(value: object) -> Any:
    """Return a value as what JSON is made of, with every field that was kept in its place: for people and tools."""
    return written(msgspec.to_builtins(value))


def encode(value: object) -> bytes:
    """Return the JSON of a value, with every field that was kept in its place."""
    data = msgspec.json.encode(value)
    return msgspec.json.encode(written(msgspec.json.decode(data))) if _MARK in data else data


def _kept(value: Any, kind: shapes.Type) -> Any:
    """Return this JSON with the fields that its type does not have under `UNKNOWN`."""
    if isinstance(kind, shapes.UnionType):
        fits = [k for k in kind.types if isinstance(k, shapes.StructType) == isinstance(value, dict)]
        return _kept(value, fits[0]) if len(fits) == 1 else value
    if isinstance(kind, shapes.StructType) and isinstance(value, dict):
        return _kept_struct(value, kind)
    if isinstance(kind, shapes.DictType) and isinstance(value, dict):
        return {key: _kept(item, kind.value_type) for key, item in value.items()}
    if isinstance(kind, (shapes.VarTupleType, shapes.ListType)) and isinstance(value, list):
        return [_kept(item, kind.item_type) for item in value]
    return value


def _kept_struct(value: dict[str, Any], kind: shapes.StructType) -> dict[str, Any]:
    fields = {f.encode_name: f.type for f in kind.fields}
    known = {name: _kept(item, fields[name]) for name, item in value.items() if name in fields}
    unknown = {name: item for name, item in value.items() if name not in fields}
    return {**known, UNKNOWN: unknown} if unknown and UNKNOWN in fields else known


def written(value: Any) -> Any:
    """Return this JSON with what stands under `UNKNOWN` where it was read."""
    if isinstance(value, dict):
        plain = {name: written(item) for name, item in value.items() if name != UNKNOWN}
        return {**plain, **value.get(UNKNOWN, {})}
    return [written(item) for item in value] if isinstance(value, (list, tuple)) else value
