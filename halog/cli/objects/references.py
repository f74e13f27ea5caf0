"""This module finds and replaces references inside plain values.

It is pure. A reference in a file names an object of another cluster or another time. One that points into the file is
given the identity that its object got here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from halog.schema import ForeignType
from halog.schema.shapes import ListShape, MapShape, OptionalShape, RecordShape, RefShape, Shape


def with_refs(foreign: ForeignType, fields: Mapping[str, Any], renamed: Mapping[str, bytes]) -> dict[str, Any]:
    """Return an object's plain fields; the references that `renamed` knows are replaced."""
    shapes = {f.name: f.shape for f in foreign.parsed.record.fields}
    return {n: replace_refs(shapes[n], v, renamed) for n, v in fields.items()}


def refs_of(foreign: ForeignType, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references in an object's plain fields."""
    for field in foreign.parsed.record.fields:
        yield from refs_in(field.shape, fields[field.name])


def replace_refs(shape: Shape, value: Any, renamed: Mapping[str, bytes]) -> Any:
    """Return a plain value; the references that `renamed` knows are replaced."""
    match shape:
        case RefShape():
            new = renamed.get(value["ref"])
            return value if new is None else {**value, "ref": new.hex()}
        case ListShape(of):
            return [replace_refs(of, v, renamed) for v in value]
        case MapShape(of):
            return {k: replace_refs(of, v, renamed) for k, v in value.items()}
        case OptionalShape(of):
            return None if value is None else replace_refs(of, value, renamed)
        case RecordShape(fields=fields):
            return {f.name: replace_refs(f.shape, value[f.name], renamed) for f in fields}
        case _:
            return value


def refs_in(shape: Shape, value: Any) -> Iterator[str]:
    """Yield the references in a plain value."""
    match shape:
        case RefShape():
            yield value["ref"]
        case ListShape(of):
            for v in value:
                yield from refs_in(of, v)
        case MapShape(of):
            for v in value.values():
                yield from refs_in(of, v)
        case OptionalShape(of):
            if value is not None:
                yield from refs_in(of, value)
        case RecordShape(fields=fields):
            for f in fields:
                yield from refs_in(f.shape, value[f.name])
        case _:
            return
