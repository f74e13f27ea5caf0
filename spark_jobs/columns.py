"""This module says what each logical type of halog is in Spark, and how its values get there.

    bool, int, float, str, bytes   boolean, bigint, double, string, binary
    decimal(p, s)                  decimal(p, s)
    date, datetime                 date, timestamp (an instant, as halog's)
    time                           interval day to second since midnight: Spark 4.0 has no time of day
    uuid, enum                     string: the text, the symbol
    list, map, dataclass           array, map<string, …>, struct
    optional                       nullable; nothing else is
    reference                      struct<reference binary, type string, key binary>

Values were decoded by their stored definition, without any class; nothing is rounded or cut.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from halog.errors import SchemaChangedError
from halog.schema import Definition
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

Convert = Callable[[Any], Any]

SCALARS: Final[dict[str, Callable[[], t.DataType]]] = {
    "bool": t.BooleanType,
    "int": t.LongType,
    "float": t.DoubleType,
    "str": t.StringType,
    "bytes": t.BinaryType,
    "date": t.DateType,
    "time": t.DayTimeIntervalType,
    "datetime": t.TimestampType,
    "uuid": t.StringType,
}

REFERENCE: Final = t.StructType(
    [
        t.StructField("reference", t.BinaryType(), False),
        t.StructField("type", t.StringType(), False),
        t.StructField("key", t.BinaryType(), False),
    ]
)


def spark_type(shape: Shape) -> t.DataType:
    """Return the column type of a shape."""
    match shape:
        case Scalar(kind):
            return SCALARS[kind]()
        case DecimalShape(precision, scale):
            return t.DecimalType(precision, scale)
        case EnumShape():
            return t.StringType()
        case ListShape(of):
            return t.ArrayType(spark_type(of), _optional(of))
        case MapShape(of):
            return t.MapType(t.StringType(), spark_type(of), _optional(of))
        case OptionalShape(of):
            return spark_type(of)
        case RefShape():
            return REFERENCE
        case RecordShape(fields=fields):
            return struct_of(fields)


def struct_of(fields: Sequence[FieldShape]) -> t.StructType:
    """Return the columns of some fields."""
    return t.StructType([t.StructField(f.name, spark_type(f.shape), _optional(f.shape)) for f in fields])


def _optional(shape: Shape) -> bool:
    return isinstance(shape, OptionalShape)


def converter(shape: Shape) -> Convert | None:
    """Return a function that turns a decoded value into one that Arrow takes; None: Arrow takes it as it is."""
    match shape:
        case Scalar("time"):
            return _since_midnight
        case Scalar("uuid"):
            return str
        case RefShape():
            return _reference
        case ListShape(of):
            return _each(converter(of))
        case MapShape(of):
            return _pairs(converter(of))
        case OptionalShape(of):
            return _if_any(converter(of))
        case RecordShape(fields=fields):
            return record_converter(fields)
        case _:
            return None


def _since_midnight(value: dt.time) -> dt.timedelta:
    return dt.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)


def _reference(value: Any) -> dict[str, Any]:
    return {"reference": value.raw, "type": value.type_name, "key": value.key}


def _each(inner: Convert | None) -> Convert | None:
    return None if inner is None else lambda values: [inner(v) for v in values]


def _pairs(inner: Convert | None) -> Convert:
    if inner is None:
        return lambda values: list(values.items())
    return lambda values: [(k, inner(v)) for k, v in values.items()]


def _if_any(inner: Convert | None) -> Convert | None:
    return None if inner is None else lambda value: None if value is None else inner(value)


def record_converter(fields: Sequence[FieldShape]) -> Convert | None:
    """Return a converter for dicts with these fields."""
    found = [(f.name, c) for f in fields if (c := converter(f.shape)) is not None]
    if not found:
        return None

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        made = dict(values)
        for name, make in found:
            made[name] = make(made[name])
        return made

    return convert


def arrow_schema(columns: t.StructType) -> pa.Schema:
    """Return the schema that Spark expects of a Python function that delivers these columns."""
    return to_arrow_schema(columns)


def batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as Arrow."""
    columns = zip(*rows) if rows else [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema)], schema=schema
    )


def check_same(base: Definition, derived: Definition) -> None:
    """Check that a subclass's objects can be shown with its base's columns: they must have them, of the same type.
    SchemaChangedError."""
    shapes = {f.name: f.shape for f in derived.record.fields}
    for field in base.record.fields:
        if shapes.get(field.name) != field.shape:
            raise SchemaChangedError(
                f"{derived.name}.{field.name}: is not what {base.name} declares, so that its objects have no row among "
                f"those of {base.name}; read {derived.name} by itself, and {base.name} with subtypes=False",
                type=derived.name,
                field=field.name,
            )
