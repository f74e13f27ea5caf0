"""This module holds `TypeInfo`: everything halog knows about one declared class, and the hot path to and from bytes.

It holds no object and no connection; nothing here blocks or reads a clock. The class is compiled once, at declaration,
into closures (`encode`, `decode`, `index_key`, …) that are plain attributes, so a call costs no more than its work. An
object's bytes are its type id and then Avro, so a reader always knows which definition wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from operator import call
from typing import Any

import fastavro

from halog.errors import FieldTypeError, HalogError, RecordFormatError
from halog.schema.codec import decoder, encoder, key_encoder, misfit_at, values_getter
from halog.schema.copies import Copier, Same, copier, kept, unchanged
from halog.schema.definition import Definition
from halog.schema.evolution import Reader, body_reader, evolved_reader
from halog.schema.lent import Freezer, freezer
from halog.schema.methods import BINDING, MethodInfo, field_type_error
from halog.schema.reference import Ref
from halog.schema.scalars import DECODE_ERRORS, Encoder, Misfit
from halog.schema.shapes import is_mutable, to_avro
from halog.schema.special import Accepts

Key = tuple[Any, ...]
Values = dict[str, Any]


class TypeInfo:
    """A `TypeInfo` holds one declared class.

    Hot-path callables, compiled at declaration:

    - `encode(obj) -> bytes`: type id + Avro; FieldTypeError names type, field, the value's type and what was expected.
    - `encode_values(values: tuple) -> bytes`: the same from `values_of(obj)`.
    - `decode(data) -> dict`: the inverse; RecordFormatError for anything but exactly one object of this type id.
    - `values_of(obj) -> tuple`, `key_of(obj) -> tuple`: in the order of `fields` and `key_fields`.
    - `index_key(key) -> bytes`: family id + Avro of the key; unique over bases and subclasses.
    - `routing_key(key) -> bytes`: Avro of the `partition_by` values, without the type: types partitioned by the same
      values live together.
    - `instance(values: dict) -> obj`: an object without running `__init__`.
    - `fresh(values: dict) -> dict`: a copy whose lists, dicts and nested dataclasses can be changed safely.
    - `unchanged(values: dict, of: dict) -> bool`: is this such a copy of `of`, with nothing changed in it?
    - `fit_still(values: dict, of: dict) -> bool`: for types without parts that change in place, and an `of` that fits:
      do all values fit that are not the very values of `of`?
    """

    encode: Callable[[Any], bytes]
    encode_values: Callable[[Sequence[Any]], bytes]
    decode: Reader
    values_of: Callable[[Any], tuple[Any, ...]]
    key_of: Callable[[Any], Key]
    encode_key: Callable[[Key], bytes]
    index_key: Callable[[Key], bytes]
    routing_key: Callable[[Key], bytes]
    instance: Callable[[Mapping[str, Any]], Any]
    fresh: Callable[[Values], Values]
    unchanged: Callable[[Values, Values], bool]
    fit_still: Callable[[Values, Values], bool]

    def __init__(
        self, cls: type[Any], definition: Definition, methods: Mapping[str, MethodInfo], accepts: Accepts
    ) -> None:
        self.cls = cls
        self.parsed = definition
        self.name = definition.name
        self.module = cls.__module__
        self.version = definition.version
        self.bases = definition.bases
        self.definition = definition.text
        self.type_id = definition.type_id
        self.family_id = definition.family_id
        self.fields = tuple(f.name for f in definition.record.fields)
        self.key_fields = definition.key
        self.partition_fields = definition.partition_by
        self.mutable = any(is_mutable(f.shape) for f in definition.record.fields)
        self.flat = not self.mutable and getattr_static(cls, "__setattr__") is vars(object)["__setattr__"]
        """Can an object be made by giving it a copied `__dict__`? No value changes in place, and no `__setattr__`
        interferes."""
        self.methods = methods
        self._compile_values(accepts)
        self._compile_keys()
        _share_names(cls, self.fields)

    def __repr__(self) -> str:
        return f"<TypeInfo {self.name} {self.type_id.hex()}>"

    @cached_property
    def avro(self) -> Any:
        """Return the Avro schema of what follows the type id, as JSON values."""
        return to_avro(self.parsed.record)

    @cached_property
    def schema(self) -> Any:
        """Return the Avro schema as fastavro parsed it, once."""
        return fastavro.parse_schema(self.avro)

    @cached_property
    def inside(self) -> Mapping[str, tuple[Freezer, Copier]]:
        """Return, for each field whose value can be changed in place, its freezer and its copier."""
        made = [(f.name, freezer(f.shape, f"{self.name}.{f.name}"), copier(f.shape)) for f in self.parsed.record.fields]
        return {name: (freeze, copy) for name, freeze, copy in made if freeze is not None and copy is not None}

    @cached_property
    def lent(self) -> Sequence[tuple[str, Copier, Same]]:
        """Return, for the same fields, the copier and the check whether such a copy is unchanged."""
        shapes = [(f.name, f.shape) for f in self.parsed.record.fields]
        return [(n, copy, unchanged(s)) for n, s in shapes if (copy := copier(s)) is not None]

    @cached_property
    def kept(self) -> Sequence[tuple[str, Callable[[Iterable[Any]], bool], Encoder]]:
        """Return, for the same fields, the check whether somebody else holds a part of a value, and the encoder."""
        found = [(f.name, kept(f.shape), f.shape) for f in self.parsed.record.fields]
        return [(name, ask, encoder(shape, lambda _n, _t: True)) for name, ask, shape in found if ask is not None]

    def _compile_values(self, accepts: Accepts) -> None:
        shapes = [f.shape for f in self.parsed.record.fields]
        self.values_of = values_getter(self.fields)
        encoders = [(n, encoder(s, accepts)) for n, s in zip(self.fields, shapes)]
        self.encode_values = _values_encoder(self.name, self.type_id, encoders)
        self.fit_still = _fitting(encoders)
        self.encode = _object_encoder(self.name, self.fields, self.encode_values, self.values_of)
        self.decode = body_reader(self.name, self.type_id, [(n, decoder(s)) for n, s in zip(self.fields, shapes)])
        self.instance = _instance_maker(self.cls)
        self.unchanged = _comparer([(n, unchanged(s)) for n, s in zip(self.fields, shapes)])
        self.fresh = _fresh_maker([(n, c) for n, s in zip(self.fields, shapes) if (c := copier(s)) is not None])

    def _compile_keys(self) -> None:
        shapes = [self.parsed.shape(n) for n in self.key_fields]
        pairs = [(n, key_encoder(s)) for n, s in zip(self.key_fields, shapes)]
        at = [self.key_fields.index(n) for n in self.partition_fields]
        self.key_of = values_getter(self.key_fields)
        self._key_decoders = [decoder(s) for s in shapes]
        self.encode_key = _key_encoder(self.name, b"", pairs, range(len(pairs)))
        self.index_key = _key_encoder(self.name, self.family_id, pairs, range(len(pairs)))
        self.routing_key = _key_encoder(self.name, b"", pairs, at)
        self._routed_whole = at == list(range(len(pairs)))

    def keys_of(self, obj: Any) -> tuple[bytes, bytes]:
        """Return an object's index key and routing key; a key that routes as a whole is encoded once."""
        key = self.key_of(obj)
        if self._routed_whole:
            routing = self.routing_key(key)
            return self.family_id + routing, routing
        return self.index_key(key), self.routing_key(key)

    def check_key(self, args: Sequence[Any]) -> Key:
        """Return the key from the caller's arguments: `get(T, a, b)`, or one tuple `get(T, (a, b))`. FieldTypeError if
        it is wrong."""
        key = self.key_in(args)
        self.encode_key(key)
        return key

    def key_in(self, args: Sequence[Any]) -> Key:
        """Return the key from the caller's arguments, unchecked."""
        key = tuple(args)
        if len(key) == 1 and len(self.key_fields) > 1 and isinstance(key[0], tuple):
            return tuple(key[0])
        return key

    def decode_index_key(self, raw: bytes) -> Key:
        """Return the key of an index key's bytes."""
        try:
            if raw[: len(self.family_id)] != self.family_id:
                raise RecordFormatError(f"{self.name}: an index key of another family")
            key, at = [], len(self.family_id)
            for decode in self._key_decoders:
                value, at = decode(raw, at)
                key.append(value)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{self.name}: a malformed index key: {str(error)[:200]}") from error
        if at != len(raw):
            raise RecordFormatError(f"{self.name}: an index key with {len(raw) - at} bytes too many")
        return tuple(key)

    def ref(self, raw: bytes, key: Key) -> Ref[Any]:
        """Return the reference to the object of this identity (24 bytes) and key."""
        return Ref.from_raw(raw, self.name, self.encode_key(key))

    def index_key_of(self, ref: Ref[Any]) -> bytes:
        """Return the index key of the object that a reference of this family points to."""
        return self.family_id + ref.key

    def reader(self, stored: str | bytes | Mapping[str, Any] | Definition) -> Reader:
        """Return a reader of bytes written under a stored definition into this class's values; SchemaChangedError if it
        cannot."""
        if not isinstance(stored, Definition):
            stored = Definition.parse(stored)
        return self.decode if stored.type_id == self.type_id else evolved_reader(stored, self.parsed)


def _share_names(cls: type[Any], fields: Sequence[str]) -> None:
    """Let the `__dict__` of all objects share one table of names (CPython's key-sharing dictionaries): it holds the
    names that the first objects were assigned, in that order. This halves the memory of objects and of decoded
    values."""
    names = (*fields, BINDING)
    if not getattr(cls, "__abstractmethods__", None) and not any(
        hasattr(getattr_static(cls, n, None), "__set__") for n in names
    ):
        first = object.__new__(cls)
        for name in names:
            object.__setattr__(first, name, None)


def _values_encoder(name: str, type_id: bytes, pairs: list[tuple[str, Encoder]]) -> Callable[[Sequence[Any]], bytes]:
    encoders = [e for _, e in pairs]
    expected = len(encoders)

    def encode_values(values: Sequence[Any]) -> bytes:
        if len(values) != expected:
            raise ValueError(f"{name} has {expected} fields, not {len(values)}")
        try:
            return type_id + b"".join(map(call, encoders, values))
        except Misfit:
            raise field_type_error(name, misfit_at(pairs, values)) from None
        except HalogError:  # such a class has called halog: the transaction may be retried for it
            raise
        except Exception as error:  # a part's class is the application's
            raise field_type_error(name, misfit_at(pairs, values)) from error

    return encode_values


def _object_encoder(
    name: str,
    fields: Sequence[str],
    encode_values: Callable[[Sequence[Any]], bytes],
    values_of: Callable[[Any], tuple[Any, ...]],
) -> Callable[[Any], bytes]:
    def encode(obj: Any) -> bytes:
        try:
            values = values_of(obj)
        except AttributeError as error:
            raise FieldTypeError(f"{name}: {error}", type=name) from None
        except HalogError:
            raise
        except Exception as error:  # the class is the application's
            raise _unreadable(name, fields, obj, error) from error
        return encode_values(values)

    return encode


def _unreadable(name: str, fields: Sequence[str], obj: Any, error: Exception) -> FieldTypeError:
    """Return the error that names the field which the object fails to give, unless it gives it the second time."""
    why = f"expected an attribute that raises no {type(error).__name__} while it is read"
    for field in fields:
        try:
            getattr(obj, field)
        except Exception:
            return FieldTypeError(f"{name}.{field}: {why}", type=name, field=field)
    return FieldTypeError(f"{name}: {why}", type=name)


def _key_encoder(
    name: str, prefix: bytes, pairs: list[tuple[str, Encoder]], at: Sequence[int]
) -> Callable[[Key], bytes]:
    """Return an encoder of the key's parts named by `at`; one part, the common case, takes no loop."""

    def fail(key: Key) -> FieldTypeError:
        if len(key) != len(pairs):
            names = ", ".join(n for n, _ in pairs)
            return FieldTypeError(f"{name}: the key is ({names}), got {len(key)} values", type=name, field=names)
        return field_type_error(name, misfit_at(pairs, key))

    def encode_one(key: Key) -> bytes:
        try:
            (value,) = key
            return prefix + only(value)
        except (Misfit, ValueError):
            raise fail(key) from None

    def encode_many(key: Key) -> bytes:
        if len(key) != len(pairs):
            raise fail(key)
        try:
            return prefix + b"".join([e(key[i]) for i, e in chosen])
        except Misfit:
            raise fail(key) from None

    only = pairs[0][1]
    chosen = [(i, pairs[i][1]) for i in at]
    return encode_one if len(pairs) == 1 else encode_many


def _instance_maker(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    new = object.__new__

    def instance(values: Mapping[str, Any]) -> Any:
        obj = new(cls)
        obj.__dict__.update(values)
        return obj

    return instance


def _comparer(fields: list[tuple[str, Same]]) -> Callable[[Values, Values], bool]:
    def same(values: Values, of: Values) -> bool:
        try:
            for name, compare in fields:
                if not compare(values[name], of[name]):
                    return False
        except KeyError:
            return False
        return True

    return same


def _fitting(encoders: list[tuple[str, Encoder]]) -> Callable[[Values, Values], bool]:
    def fit(values: Values, of: Values) -> bool:
        try:
            for name, encode in encoders:
                value = values[name]
                if value is not of[name]:
                    encode(value)
        except HalogError:
            raise
        except Exception:  # the caller encodes all of it then, which names the field
            return False
        return True

    return fit


def _fresh_maker(copiers: list[tuple[str, Callable[[Any], Any]]]) -> Callable[[Values], Values]:
    if not copiers:
        return dict

    def fresh(values: Values) -> Values:
        copy = dict(values)
        for name, copy_value in copiers:
            copy[name] = copy_value(copy[name])
        return copy

    return fresh
