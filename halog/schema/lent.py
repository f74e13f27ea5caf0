"""This module freezes what is inside objects of ended transactions: lists, dicts and nested objects that can be read
and not changed.

A change in place would be lost, as an assignment would; a frozen value raises an error that says so. A frozen value is
a copy, made when it is first looked at (`halog.transactions.ended_objects`); whatever else the application holds is
left alone. A frozen list is a list in all but the methods that change it. Whatever makes a new list of it (`copy`,
`pickle`, slices, `dataclasses.asdict`) makes a plain one, and it can be given to another object.
"""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn

from halog.errors import NoTransactionError
from halog.schema.shapes import ListShape, MapShape, OptionalShape, RecordShape, Shape, is_mutable

Freezer = Callable[[Any], Any]
_LIST: Final = (
    "append",
    "extend",
    "insert",
    "remove",
    "pop",
    "clear",
    "sort",
    "reverse",
    "__setitem__",
    "__delitem__",
    "__iadd__",
    "__imul__",
    "__init__",
)
_DICT: Final = ("update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__", "__init__")

ENDED: Final[dict[type[Any], type[Any]]] = {}
"""The class of ended objects by class. An ended class maps to itself, and so does a class that is left alone."""


def _refusal(kind: str, name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: object, **kwargs: object) -> NoReturn:
        raise NoTransactionError(
            f"{self.where}: a change of this {kind} ({name.strip('_')}) would be lost: its object was deleted or its "
            f"transaction has ended; get the object again in a new transaction, or change a copy: {kind}(…)"
        )

    refuse.__name__ = name
    return refuse


class EndedList(list[Any]):
    """An `EndedList` refuses changes. `where`: the class and field that it belongs to; `size`: its length when it was
    made."""

    __slots__ = ("size", "where")
    where: str
    size: int

    def __new__(cls, *args: Any) -> Any:
        """Return a plain list, for code that makes another value of this one's type."""
        return list(*args)

    __class__ = property(lambda self: list)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, ([*self],)


class EndedDict(dict[str, Any]):
    """An `EndedDict` refuses changes. `where`, `size`: as in `EndedList`."""

    __slots__ = ("size", "where")
    where: str
    size: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a plain dict."""
        return dict(*args, **kwargs)

    __class__ = property(lambda self: dict)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, ({**self},)


for _name in _LIST:
    setattr(EndedList, _name, _refusal("list", _name))
for _name in _DICT:
    setattr(EndedDict, _name, _refusal("dict", _name))


def _refuse_set(self: Any, name: str, value: Any) -> NoReturn:
    raise NoTransactionError(
        f"{type(self).__name__}.{name} = … would be lost: the object was deleted or its transaction has ended; "
        "get it again in a new transaction"
    )


def _refuse_del(self: Any, name: str) -> NoReturn:
    raise NoTransactionError(f"del {type(self).__name__}.{name}: the object's transaction has ended")


def _reduce(self: Any, protocol: Any) -> Any:
    """Make copies and pickles objects of the class itself."""
    return copyreg.__newobj__, (self.__class__,), self.__getstate__()  # type: ignore[attr-defined]


def ended_class(cls: type[Any], fields: Callable[[], dict[str, Any]] = dict) -> type[Any]:
    """Return the class of a class's ended objects: a subclass that refuses assignments and otherwise looks like the
    class itself. It is the class, if that watches its subclasses. `fields` returns further attributes of the
    subclass."""
    found = ENDED.get(cls)
    return found if found is not None else _made(cls, fields())


def _made(cls: type[Any], fields: dict[str, Any]) -> type[Any]:
    def body(namespace: dict[str, Any]) -> None:
        namespace.update(
            fields,
            __slots__=(),
            __module__=cls.__module__,
            __qualname__=cls.__qualname__,
            __doc__=cls.__doc__,
            __class__=property(lambda self: cls),
            __setattr__=_refuse_set,
            __delattr__=_refuse_del,
        )
        if not any(name in vars(c) for c in cls.__mro__[:-1] for name in ("__reduce__", "__reduce_ex__")):
            namespace["__reduce_ex__"] = _reduce

    watched = any("__init_subclass__" in vars(c) for c in cls.__mro__[:-1])
    made = cls if watched else types.new_class(cls.__name__, (cls,), exec_body=body)
    ENDED[cls] = ENDED[made] = made
    return made


def check_whole(value: Any) -> None:
    """Raise NoTransactionError if a frozen value was changed behind its methods: functions in C may change a list or a
    dict directly (`heapq`), which cannot be refused. Only the size is compared, so a look stays cheap."""
    if (type(value) is EndedList or type(value) is EndedDict) and len(value) != value.size:
        kind = value.__class__.__name__
        raise NoTransactionError(
            f"{value.where}: this {kind} had {value.size} items and has {len(value)}: it was changed after its object "
            "was deleted, or its transaction had ended, by a function that asks no method of it (as those of heapq "
            f"do), and that is lost; get the object again in a new transaction, or change a copy: {kind}(…)"
        )


def is_ended(value: Any) -> bool:
    """Is the value frozen?"""
    kind = type(value)
    return kind is EndedList or kind is EndedDict or (kind in ENDED and kind is not value.__class__)


def freezer(shape: Shape, where: str) -> Freezer | None:
    """Return a function that makes the frozen copy of a bound value; None: such values cannot be changed in place. The
    function returns values that are frozen already, or of a wrong type, unchanged."""
    if not is_mutable(shape):
        return None
    match shape:
        case ListShape(of):
            return _list_freezer(freezer(of, where), where)
        case MapShape(of):
            return _map_freezer(freezer(of, where), where)
        case OptionalShape(of):
            return freezer(of, where)
        case RecordShape():
            return _record_freezer(shape, where)
        case _:
            return None


def _list_freezer(inner: Freezer | None, where: str) -> Freezer:
    def freeze(value: Any) -> Any:
        if type(value) is not list:
            return value
        made = list.__new__(EndedList)
        list.extend(made, value if inner is None else map(inner, value))
        made.where, made.size = where, len(made)
        return made

    return freeze


def _map_freezer(inner: Freezer | None, where: str) -> Freezer:
    def freeze(value: Any) -> Any:
        if type(value) is not dict:
            return value
        made = dict.__new__(EndedDict)
        dict.update(made, value if inner is None else {k: inner(v) for k, v in value.items()})
        made.where, made.size = where, len(made)
        return made

    return freeze


def _record_freezer(shape: RecordShape, where: str) -> Freezer:
    cls, put = shape.cls, object.__setattr__
    fields = [(f.name, freezer(f.shape, f"{where}.{f.name}")) for f in shape.fields]

    def freeze(value: Any) -> Any:
        if cls is None or type(value) is not cls:
            return value
        made = object.__new__(ended_class(cls))
        if hasattr(value, "__dict__"):
            made.__dict__.update(value.__dict__)
        for name, inner in fields:
            if hasattr(value, name):
                found = getattr(value, name)
                put(made, name, found if inner is None else inner(found))
        return made

    return freeze
