"""This module makes objects of ended transactions read-only: a change is an error instead of a silent loss.

It never slows a live object. At the end an object gets a subclass of its class, made once, that refuses assignment and
otherwise behaves and looks like the class itself (`isinstance`, `==`, `repr`, `dataclasses.replace`). Lists, dicts and
nested objects in it are frozen when they are first looked at (`halog.schema.lent`). A class that watches its subclasses
(`__init_subclass__`) is left alone: its ended objects take assignments, and lose them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from halog.schema.lent import ENDED, check_whole, ended_class, is_ended
from halog.schema.typeinfo import TypeInfo

_set_class: Final = object.__dict__["__class__"].__set__


def _frozen(name: str, freeze: Callable[[Any], Any]) -> property:
    def look(self: Any) -> Any:
        d = self.__dict__
        if name not in d:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = d[name] = freeze(d[name])
        check_whole(found)
        return found

    return property(look)


def _fields(cls: type[Any]) -> dict[str, Any]:
    info: TypeInfo | None = vars(cls).get("__halog__")
    return {} if info is None else {name: _frozen(name, freeze) for name, (freeze, _) in info.inside.items()}


def end(obj: Any) -> None:
    """Refuse changes of `obj` from now on."""
    cls = type(obj)
    ended = ENDED.get(cls)
    if ended is None:
        ended = ended_class(cls, lambda: _fields(cls))
    if ended is not cls:
        _set_class(obj, ended)


def revive(obj: Any) -> None:
    """Undo `end`."""
    if type(obj) is not obj.__class__:
        _set_class(obj, obj.__class__)
        thaw(obj.__class__.__halog__, obj)


def thaw(info: TypeInfo, obj: Any) -> None:
    """Copy the values that an object has of ended objects, so that they are its own."""
    d = obj.__dict__
    for name, (_, copy) in info.inside.items():
        if is_ended(d.get(name)):
            d[name] = copy(d[name])


def class_of(obj: Any) -> type[Any]:
    """Return the object's declared class, ended or not."""
    cls: type[Any] = obj.__class__
    return cls
