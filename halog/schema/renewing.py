"""What a call leaves in an object, put into the lists, dicts and nested objects that its caller has of it (R5).

Whoever has taken one out of an object before a call goes on with it, as he would where the method changed that very
one. The theory: in an object it is known again by its field, in a dict by its key. In a list nobody can tell: what is
as it was, counted from either end, stays, and what is between goes by position where there are as many as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final


def renewed(old: Any, new: Any, met: set[int]) -> Any:
    """`old`, made to be what `new` is, where it is of the same kind and can be changed in place; else `new`. `met`:
    what was renewed before, by id; whatever is held twice can be one of the two only."""
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
    """Never by equality alone: `1 == True`."""
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
