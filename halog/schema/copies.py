"""This module copies values that can be changed in place. It also says whether a copy has been changed, and whether
somebody else holds a part of a value.

It never copies values that cannot change; `copier` returns None for them, so flat objects cost one dict copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from operator import call, is_
from typing import Any, Final

from halog.errors import HalogError
from halog.schema.codec import maker, values_getter
from halog.schema.shapes import FieldShape, ListShape, MapShape, OptionalShape, RecordShape, Shape, is_mutable

Copier = Callable[[Any], Any]


def copier(shape: Shape) -> Copier | None:
    """Return a function that copies a bound value, so that changing the copy in place leaves the value alone. None:
    values of this shape cannot be changed in place."""
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


# ------------------------------------------------------------------------------------------------ changed in place?

Same = Callable[[Any, Any], bool]


def unchanged(shape: Shape) -> Same:
    """Return a function that says whether a value is a copy that `copier` made of another one, and still unchanged.
    Inside, values that cannot be changed must be the very same objects. It never goes by equality: `1 == True`."""
    if not is_mutable(shape):
        return is_
    match shape:
        case ListShape(of):
            return _list_same(unchanged(of))
        case MapShape(of):
            return _map_same(unchanged(of))
        case OptionalShape(of):
            inner = unchanged(of)
            return lambda a, b: a is b or (a is not None and b is not None and inner(a, b))
        case RecordShape():
            return _record_same(shape)
        case _:
            return is_


def _list_same(inner: Same) -> Same:
    return lambda a, b: type(a) is list and len(a) == len(b) and all(map(inner, a, b))


def _map_same(inner: Same) -> Same:
    def same(a: Any, b: Any) -> bool:
        return type(a) is dict and len(a) == len(b) and all(map(is_, a, b)) and all(map(inner, a.values(), b.values()))

    return same


def _record_same(shape: RecordShape) -> Same:
    cls, values_of = shape.cls, values_getter([f.name for f in shape.fields])
    inside = [unchanged(f.shape) for f in shape.fields]

    def same(a: Any, b: Any) -> bool:
        if type(a) is not cls or len(getattr(a, "__dict__", ())) != len(getattr(b, "__dict__", ())):
            return False
        try:
            return all(map(call, inside, values_of(a), values_of(b)))
        except HalogError:
            raise
        except Exception:  # the caller encodes it then, which names the field
            return False

    return same


# ---------------------------------------------------------------------------------------------- held by somebody else?

_refs: Final = sys.getrefcount
_EMPTY: Final[list[list[Any]]] = [[]]
_ALONE: Final = [_refs(one) for one in _EMPTY][0]  # noqa: RUF015 - counted just as below
"""References to an object that only its container holds, while one variable iterates over the container."""


def kept(shape: Shape) -> Callable[[Iterable[Any]], bool] | None:
    """Return a function that says whether somebody besides their holder holds a list, a dict or a nested object of
    these values. Call it with an iterator that holds nothing itself. None: such values cannot be changed in place."""
    if not is_mutable(shape):
        return None
    match shape:
        case ListShape(of):
            return _kept_in(list, kept(of), iter)
        case MapShape(of):
            return _kept_in(dict, kept(of), dict.values)
        case OptionalShape(of):
            return kept(of)
        case RecordShape():
            return _record_kept(shape)
        case _:
            return None


def _kept_in(
    cls: type[Any], inner: Callable[[Iterable[Any]], bool] | None, inside: Callable[[Any], Iterable[Any]]
) -> Callable[[Iterable[Any]], bool]:
    def found(values: Iterable[Any]) -> bool:
        for one in values:
            if type(one) is cls and (_refs(one) > _ALONE or (inner is not None and inner(inside(one)))):
                return True
        return False

    return found


def _record_kept(shape: RecordShape) -> Callable[[Iterable[Any]], bool]:
    cls = shape.cls
    can_change = cls is not None and not cls.__dataclass_params__.frozen
    parts = [((f.name,), inner) for f in shape.fields if (inner := kept(f.shape)) is not None]

    def found(values: Iterable[Any]) -> bool:
        for one in values:
            if type(one) is not cls:
                continue
            if (can_change and _refs(one) > _ALONE) or any(
                inner(getattr(one, n, None) for n in name) for name, inner in parts
            ):
                return True
        return False

    return found
