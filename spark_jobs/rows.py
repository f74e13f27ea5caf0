"""This module makes rows: objects and changes are decoded on an executor, each value by the definition that wrote it.

A value's first bytes name its definition. Its columns are those of the newest one, as evolution reads them
(`halog.schema.evolution`), so a field added since has its default and a removed one is gone. Nothing here knows a Spark
session.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import types as t

from halog.backend import CommittedObject
from halog.core.log.records import CREATE, DELETE, UPDATE, Change
from halog.errors import LaterRecordError, RecordFormatError, SchemaChangedError
from halog.schema import Definition
from halog.schema.codec import decoder
from halog.schema.definition import ID_BYTES
from halog.schema.evolution import evolved_reader
from halog.schema.scalars import DECODE_ERRORS
from spark_jobs.columns import check_same, converter, record_converter, struct_of
from spark_jobs.history import Step
from spark_jobs.site import Family

OBJECT_COLUMNS: Final = (
    t.StructField("_type", t.StringType(), False),
    t.StructField("_partition", t.StringType(), False),
    t.StructField("_reference", t.BinaryType(), False),
    t.StructField("_version", t.LongType(), False),
    t.StructField("_lsn", t.LongType(), False),
)

OPS: Final = {CREATE: "create", UPDATE: "update", DELETE: "delete"}


class Value(NamedTuple):
    """A `Value` is a decoded object. `fields`: None if its bytes cannot be read, where that is not refused."""

    type_name: str
    fields: dict[str, Any] | None


class Values:
    """`Values` reads the values of a family into the columns of the type that was asked for."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.wanted = family.definition
        self.names = [f.name for f in self.wanted.record.fields]
        self.convert = record_converter(self.wanted.record.fields) or dict
        self._readers: dict[bytes, Callable[[bytes], Value | None]] = {}

    def read(self, value: bytes) -> Value | None:
        """Read a value; None for an object of a type of this key space that was not asked for."""
        type_id = value[:ID_BYTES]
        reader = self._readers.get(type_id)
        if reader is None:
            reader = self._readers[type_id] = self._reader(self._family.stored_as(value))
        return reader(value)

    def name_of(self, value: bytes) -> str:
        """Return the name of its type."""
        return self._family.stored_as(value).name

    def _reader(self, stored: Definition) -> Callable[[bytes], Value | None]:
        current = self._family.current.get(stored.name)
        if current is None and self._family.subtypes and self.wanted.name in stored.bases:
            raise SchemaChangedError(
                f"type {stored.name}, derived from {self.wanted.name}, is newer than this query: make it again",
                type=stored.name,
            )
        if current is None:
            return lambda value: None
        declared, names, name, convert = Definition.parse(current), self.names, stored.name, self.convert
        read = evolved_reader(stored, declared)
        if name == self.wanted.name:
            return lambda value: Value(name, convert(read(value)))

        def part(value: bytes) -> Value:
            whole = read(value)
            return Value(name, convert({n: whole[n] for n in names}))

        return part


def object_schema(family: Family) -> t.StructType:
    """Return the columns of `objects`. SchemaChangedError for a subclass that changed a field of its base."""
    _check(family)
    return t.StructType([*struct_of(family.definition.record.fields).fields, *OBJECT_COLUMNS])


def _check(family: Family) -> None:
    for text in family.current.values():
        check_same(family.definition, Definition.parse(text))


def object_rows(
    values: Values, partition: str, lsn: int, objects: Iterable[CommittedObject]
) -> Iterator[tuple[Any, ...]]:
    """Yield one row for each object that was asked for."""
    for found in objects:
        value = _read(values, found.value, partition, found.key)
        if value is not None and value.fields is not None:
            yield (*value.fields.values(), value.type_name, partition, found.ref, found.version, lsn)


def _read(values: Values, value: bytes, partition: str, key: bytes) -> Value | None:
    """Read a value. RecordFormatError names what cannot be read: an operator looks at it with `halog get --raw`.
    LaterRecordError if its definition is a later halog's."""
    try:
        return values.read(value)
    except RecordFormatError as error:
        deletes = "" if isinstance(error, LaterRecordError) else ", `halog delete` deletes it"
        raise error.retold(
            f"partition {partition}, key bytes {key[ID_BYTES:].hex()[:200]}: {error.message}; `halog get "
            f"{values.wanted.name} --key-bytes … --raw` shows it{deletes}",
            partition=partition,
            key=key,
        ) from error


def change_schema(family: Family) -> t.StructType:
    """Return the columns of `changes`."""
    _check(family)
    definition = family.definition
    fields = struct_of(definition.record.fields)
    keys = struct_of([f for name in definition.key for f in definition.record.fields if f.name == name])
    return t.StructType(
        [
            t.StructField("partition", t.StringType(), False),
            t.StructField("epoch", t.LongType(), False),
            t.StructField("lsn", t.LongType(), False),
            t.StructField("offset", t.LongType(), False),
            t.StructField("time", t.TimestampType(), False),
            t.StructField("tx", t.BinaryType(), False),
            t.StructField("op", t.StringType(), False),
            t.StructField("type", t.StringType(), True),
            t.StructField("reference", t.BinaryType(), False),
            t.StructField("replaced", t.LongType(), True),
            t.StructField("key", keys, False),
            t.StructField("before", fields, True),
            t.StructField("after", fields, True),
        ]
    )


class Keys:
    """`Keys` reads index keys of a family."""

    def __init__(self, definition: Definition) -> None:
        self._name = definition.name
        self._size = len(definition.family_id)
        shapes = [(name, definition.shape(name)) for name in definition.key]
        self._fields = [(name, decoder(shape, bound=False), converter(shape)) for name, shape in shapes]

    def read(self, raw: bytes) -> dict[str, Any]:
        """Return the key's fields. RecordFormatError."""
        key, at = {}, self._size
        try:
            for name, decode, convert in self._fields:
                value, at = decode(raw, at)
                key[name] = value if convert is None else convert(value)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{self._name}: a malformed index key {raw.hex()[:100]}") from error
        return key


class Changes:
    """`Changes` makes the rows of the changes of one partition."""

    def __init__(self, family: Family, partition: str) -> None:
        self._values = Values(family)
        self._keys = Keys(family.definition)
        self._family_id = family.family_id
        self._partition = partition

    def rows(self, step: Step) -> Iterator[tuple[Any, ...]]:
        """Yield one row for each object of the step that was asked for. A deletion whose before-image is not kept has
        no type, and has a row, too."""
        for change in step.changes:
            if change.key.startswith(self._family_id) and (row := self._row(step, change)) is not None:
                yield row

    def _read(self, value: bytes) -> Value | None:
        """Read a value. One that cannot be read stays in the log, too: it has its row, without fields.
        LaterRecordError if its definition is a later halog's: its fields are there."""
        try:
            return self._values.read(value)
        except LaterRecordError as error:
            raise error.at(f"partition {self._partition}", partition=self._partition) from error
        except RecordFormatError:
            return Value(self._values.name_of(value), None)

    def _row(self, step: Step, change: Change) -> tuple[Any, ...] | None:
        after = None if change.value is None else self._read(change.value)
        before = None if change.before is None else self._read(change.before)
        if after is None and before is None and (change.value is not None or change.before is not None):
            return None
        named = after or before
        return (
            self._partition,
            step.epoch,
            step.lsn,
            step.offset,
            _time(step.time_ms),
            step.tx,
            OPS[change.op],
            named and named.type_name,
            change.ref,
            None if change.replaced < 0 else change.replaced,
            self._keys.read(change.key),
            before and before.fields,
            after and after.fields,
        )


def _time(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
