"""An exported object, completed by what its class has gained since.

Pure. An export may be older than this cluster's definition of a type, and written by one that this cluster has never
seen: fields that were added since have their constant default then, as they have where old bytes are read
(`halog.schema.evolution`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halog.schema.shapes import ListShape, MapShape, OptionalShape, RecordShape, Shape


def completed(record: RecordShape, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Plain fields with the constant defaults of those that are missing; what has none stays away."""
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
