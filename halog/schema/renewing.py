"""This module puts what a call leaves in an object into the lists, dicts and nested objects that its caller already
holds (R5).

A caller that has taken one of them out of an object goes on with it, as if the method had changed that very one. In an
object a part is recognised by its field, in a dict by its key. In a list, items that are unchanged, counted from either
end, stay; the items between them are matched by position if the length is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final


def renewed(old: Any, new: Any, met: set[int]) -> Any:
    """Return `old`, changed to equal `new`, if it is of the same kind and can be changed in place; else `new`. `met`:
    ids of values renewed before; a value that is held twice can become only one of the two."""
    if type(old) is not type(new) or id(old) in met:
        return new
    met.add(id(old))
    if old is new:
        return old
    renew = _BUILT_IN.get(type(old)) or (_part if _can_change(type(old)) else None)
    if renew is None:
        return new
    renew(old, new, met)
    return old


def _can_change(kind: type[Any]) -> bool:
    return kind in _BUILT_IN or (is_dataclass(kind) and not vars(kind)["__dataclass_params__"].frozen)


def _list(old: list[Any], new: list[Any], met: set[int]) -> None:
    if not any(map(_can_change, set(map(type, new)))):
        old[:] = new
        return
    start, end = 0, 0
    most = min(len(old), len(new))
    while start < most and _same(old[start], new[start]):
        start += 1
    while end < most - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    kept = (range(start), range(-end, 0), range(start, len(old) - end) if len(old) == len(new) else ())
    new = list(new)
    for places in kept:
        for i in places:
            new[i] = renewed(old[i], new[i], met)
    old[:] = new


def _dict(old: dict[str, Any], new: dict[str, Any], met: set[int]) -> None:
    made = {key: renewed(old.get(key), value, met) for key, value in new.items()}
    old.clear()
    old.update(made)


def _part(old: Any, new: Any, met: set[int]) -> None:
    for item in fields(old):
        object.__setattr__(old, item.name, renewed(getattr(old, item.name, None), getattr(new, item.name), met))


def _same(a: Any, b: Any) -> bool:
    """Compare two values, never by equality alone: `1 == True`."""
    if type(a) is not type(b):
        return False
    if type(a) is list:
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a) is dict:
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    if is_dataclass(a):
        return all(_same(getattr(a, f.name, None), getattr(b, f.name, None)) for f in fields(a))
    return bool(a == b)


_BUILT_IN: Final[dict[type[Any], Callable[[Any, Any, set[int]], None]]] = {list: _list, dict: _dict}
