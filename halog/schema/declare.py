"""This module is `halog.managed`: it declares a class whose objects halog keeps.

It turns an annotated class into a dataclass, compiles its `TypeInfo`, wraps its public methods, and registers it. While
its objects are not bound to a node, the class does what it did: they are plain objects with a guarded key. Everything
that can be wrong with a class is found here, at import, and named; nothing is found in traffic.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from halog.errors import DeclarationError, FieldTypeError
from halog.schema.annotations import AnnotationPlace, check_made, field_shapes
from halog.schema.definition import Definition
from halog.schema.methods import MethodInfo, public_functions, wrap
from halog.schema.names import check_name, local_name
from halog.schema.registry import DEFAULT, DeclarationPlace, Registry
from halog.schema.shapes import RecordShape
from halog.schema.typeinfo import TypeInfo

T = TypeVar("T")
Names = str | tuple[str, ...]


class KeyField:
    """A `KeyField` guards a key field: it is set once, by construction. Reading does not pass here: there is no
    `__get__`."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name

    def __set__(self, obj: Any, value: Any) -> None:
        if self.name in obj.__dict__:
            self._refuse("assigned")
        obj.__dict__[self.name] = value

    def __delete__(self, obj: Any) -> None:
        self._refuse("deleted")

    def _refuse(self, what: str) -> None:
        raise FieldTypeError(
            f"{self.owner}.{self.name}: a key field cannot be {what} after construction; delete the object and create "
            "another",
            type=self.owner,
            field=self.name,
        )


@dataclass_transform(field_specifiers=(dataclasses.field,))
def managed(
    *,
    key: Names | None = None,
    partition_by: Names | None = None,
    name: str | None = None,
    version: int | None = None,
    registry: Registry | None = None,
) -> Callable[[type[T]], type[T]]:
    """Declare a class whose objects halog keeps: `@managed(key="tail")`. It becomes a dataclass.

    `key` names the field or fields that identify an object; they cannot change. `partition_by` names those of them that
    decide its partition (default: the whole key). A subclass inherits both, and shares one key space with its managed
    bases. `name` is the type's name in the log (default: the class's, without the module). `version` orders
    definitions: a larger one is newer (U2). DeclarationError names what is wrong with the class.
    """

    place = DeclarationPlace.of(sys._getframe(1))

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, _Options(key, partition_by, name, version, registry, place))

    return declare


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    key: Names | None
    partition_by: Names | None
    name: str | None
    version: int | None
    registry: Registry | None
    place: DeclarationPlace


def _declare(cls: type[T], options: _Options) -> type[T]:
    name = check_name(options.name or local_name(cls), "class")
    _check_class(cls, name, options)
    bases = _managed_bases(cls, name)
    registry = options.registry or (_registry_of(bases[0]) if bases else DEFAULT)
    _as_dataclass(cls, name)
    definition = _definition(cls, name, bases, options)
    methods = _wrap_methods(cls, name, bases, registry)
    info = TypeInfo(cls, definition, methods, registry.may_refer)
    registry.add(info, options.place)
    for field in definition.key:
        setattr(cls, field, KeyField(name, field))
    cls.__halog__ = info  # type: ignore[attr-defined]
    cls.__halog_registry__ = registry  # type: ignore[attr-defined]
    return cls


def _check_class(cls: type[Any], name: str, options: _Options) -> None:
    if cls.__dictoffset__ == 0 or any(vars(c).get("__slots__") for c in cls.__mro__):
        raise DeclarationError(
            f"{name}: a managed class cannot have __slots__; halog keeps its binding beside the fields"
        )
    if "__dataclass_fields__" in vars(cls):
        raise DeclarationError(f"{name}: leave @dataclass away; halog.managed makes the class a dataclass", type=name)
    if "__setattr__" in vars(cls) or "__getattribute__" in vars(cls):
        raise DeclarationError(f"{name}: a managed class cannot define __setattr__ or __getattribute__", type=name)
    version = options.version
    if version is not None and (type(version) is not int or not -(2**63) <= version < 2**63):
        raise DeclarationError(f"{name}: version must be an int of at most 64 bits, larger is newer", type=name)
    if not getattr(cls, "__abstractmethods__", None):
        check_made(cls, lambda _cls, why: DeclarationError(f"{name}: {why}", type=name))


def _managed_bases(cls: type[Any], name: str) -> list[TypeInfo]:
    """Return the managed bases, nearest first. They must form one family, and a subclass does not declare its key
    again."""
    bases: list[TypeInfo] = [vars(c)["__halog__"] for c in cls.__mro__[1:] if "__halog__" in vars(c)]
    for field in inspect.get_annotations(cls):
        if any(field in b.key_fields for b in bases):
            raise DeclarationError(f"{name}.{field}: an inherited key field; leave it away", type=name, field=field)
    roots = {b.parsed.root for b in bases}
    if len(roots) > 1:
        raise DeclarationError(f"{name}: bases of different families {sorted(roots)}: one object, one key", type=name)
    return bases


def _registry_of(info: TypeInfo) -> Registry:
    found: Registry = info.cls.__halog_registry__
    return found


def _as_dataclass(cls: type[Any], name: str) -> None:
    try:
        dataclasses.dataclass(cls)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{name}: {error}", type=name) from error


def _definition(cls: type[Any], name: str, bases: list[TypeInfo], options: _Options) -> Definition:
    key = _names(options.key) or (bases[0].key_fields if bases else ())
    if not key:
        raise DeclarationError(f'{name}: which field identifies an object? @managed(key="...")', type=name)
    partition_by = _names(options.partition_by) or (bases[0].partition_fields if bases else key)
    shape = RecordShape(name, tuple(field_shapes(cls, AnnotationPlace(name, "", (cls, name)))), cls)
    for base in bases:
        if (key, partition_by) != (base.key_fields, base.partition_fields):
            raise DeclarationError(
                f"{name}: key and partition_by are inherited from {base.name} and cannot change, because bases and "
                "subclasses share one key space",
                type=name,
            )
    return Definition(name, tuple(b.name for b in bases), options.version, key, partition_by, shape)


def _names(names: Names | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _wrap_methods(cls: type[Any], name: str, bases: list[TypeInfo], registry: Registry) -> dict[str, MethodInfo]:
    methods: dict[str, MethodInfo] = {}
    for base in reversed(bases):
        methods.update(base.methods)
    for method, func in public_functions(cls).items():
        methods[method] = MethodInfo(name, method, func, {cls.__name__: cls}, registry.may_refer)
        setattr(cls, method, wrap(func, name, method))
    return methods
