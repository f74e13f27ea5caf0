"""Copies: what a caller may change in place without changing what halog holds.

Never copies what cannot change; `copier` says so with None, so that flat objects cost one dict copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from halog.schema.codec import maker
from halog.schema.shapes import FieldShape, ListShape, MapShape, OptionalShape, RecordShape, Shape, is_mutable

Copier = Callable[[Any], Any]


def copier(shape: Shape) -> Copier | None:
    """What copies a bound value so that changing the copy in place leaves the value alone; None: nothing can change."""
    if not is_mutable(shape):
        return None
    match shape:
        case ListShape(of):
            return _list_copier(copier(of))
        case MapShape(of):
            return _map_copier(copier(of))
        case OptionalShape(of):
            inner = copier(of)
            return lambda value: None if value is None else inner(value)  # type: ignore[misc]
        case RecordShape(fields=fields):
            return _record_copier(fields, maker(shape, True))
        case _:
            return None


def _list_copier(inner: Copier | None) -> Copier:
    return list if inner is None else lambda value: [inner(v) for v in value]


def _map_copier(inner: Copier | None) -> Copier:
    return dict if inner is None else lambda value: {k: inner(v) for k, v in value.items()}


def _record_copier(fields: Sequence[FieldShape], make: Callable[[dict[str, Any]], Any]) -> Copier:
    copiers = [(f.name, copier(f.shape)) for f in fields]

    def copy(value: Any) -> Any:
        values = {name: getattr(value, name) for name, _ in copiers}
        for name, inner in copiers:
            if inner is not None:
                values[name] = inner(values[name])
        return make(values)

    return copy
