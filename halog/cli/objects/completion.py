"""This module is for old exports. It completes an exported object with the fields that its class has gained since.

The module is pure. An export may be older than this cluster's definition of a type, and written by a definition that
this cluster has never seen. Fields that were added since then get their constant default, as they do where old bytes
are read (`halog.schema.evolution`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halog.schema.shapes import ListShape, MapShape, OptionalShape, RecordShape, Shape


def completed(record: RecordShape, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain fields with the constant defaults of those that are missing. A field without a default stays
    away."""
    made = dict(fields)
    for field in record.fields:
        if field.name in made:
            made[field.name] = _value(field.shape, made[field.name])
        elif field.default is not None and not field.default.computed:
            made[field.name] = field.default.plain
    return made


def _value(shape: Shape, value: Any) -> Any:
    match shape, value:
        case OptionalShape(of), _:
            return None if value is None else _value(of, value)
        case ListShape(of), list():
            return [_value(of, one) for one in value]
        case MapShape(of), dict():
            return {key: _value(of, one) for key, one in value.items()}
        case RecordShape(), dict():
            return completed(shape, value)
        case _:
            return value
