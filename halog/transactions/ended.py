"""Objects of ended transactions: readable, but an assignment is an error instead of a silent loss.

Never slows a live object: at the end an object gets a subclass of its class, made once, that refuses assignment and
otherwise behaves and looks like the class itself (`isinstance`, `==`, `repr`, `dataclasses.replace`). A class that
watches its subclasses (`__init_subclass__`) is left alone: its ended objects take assignments, and lose them.
"""

from __future__ import annotations

import types
from typing import Any, Final, NoReturn

from halog.errors import NoTransactionError

_SUBCLASSES: dict[type[Any], type[Any]] = {}
"""Class -> what its ended objects are; an ended class, and one that is left alone, maps to itself."""
_set_class: Final = object.__dict__["__class__"].__set__


def _refuse_set(self: Any, name: str, value: Any) -> NoReturn:
    raise NoTransactionError(
        f"{type(self).__name__}.{name} = … would be lost: the object was deleted or its transaction has ended; "
        "get it again in a new transaction"
    )


def _refuse_del(self: Any, name: str) -> NoReturn:
    raise NoTransactionError(f"del {type(self).__name__}.{name}: the object's transaction has ended")


def _subclass(cls: type[Any]) -> type[Any]:
    def body(namespace: dict[str, Any]) -> None:
        namespace.update(
            __module__=cls.__module__,
            __qualname__=cls.__qualname__,
            __doc__=cls.__doc__,
            __class__=property(lambda self: cls),
            __setattr__=_refuse_set,
            __delattr__=_refuse_del,
        )

    watched = any("__init_subclass__" in vars(c) for c in cls.__mro__[:-1])
    made = cls if watched else types.new_class(cls.__name__, (cls,), exec_body=body)
    _SUBCLASSES[cls] = _SUBCLASSES[made] = made
    return made


def end(obj: Any) -> None:
    """Refuse assignments to `obj` from now on."""
    cls = type(obj)
    ended = _SUBCLASSES.get(cls)
    if ended is None:
        ended = _subclass(cls)
    if ended is not cls:
        _set_class(obj, ended)


def revive(obj: Any) -> None:
    """Undo `end`."""
    if type(obj) is not obj.__class__:
        _set_class(obj, obj.__class__)


def class_of(obj: Any) -> type[Any]:
    """The object's declared class, ended or not."""
    cls: type[Any] = obj.__class__
    return cls
