"""This module turns annotations into shapes.

It reads the application's own classes and nothing else. It refuses whatever it does not know, with class, field,
annotation and what is allowed. An annotation is a promise about every value that will ever be stored, so only those are
taken whose values have one stored form and come back equal on every node.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from halog.errors import DeclarationError
from halog.schema.codec import encoder
from halog.schema.names import check_name, local_name
from halog.schema.plain import to_plain
from halog.schema.reference import Ref
from halog.schema.scalars import Misfit
from halog.schema.shapes import (
    MAX_DEPTH,
    MAX_FIELDS,
    DecimalShape,
    Default,
    EnumShape,
    FieldShape,
    ListShape,
    MapShape,
    OptionalShape,
    RecordShape,
    RefShape,
    Scalar,
    Shape,
)

ALLOWED: Final = (
    "bool, int, float, str, bytes, Decimal, datetime, date, time, UUID, an Enum, list[T], dict[str, T], T | None, "
    "a plain dataclass, Ref[T]"
)
_SCALARS: Final[dict[Any, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    dt.date: "date",
    dt.time: "time",
    dt.datetime: "datetime",
    uuid.UUID: "uuid",
}


@dataclass(frozen=True, slots=True)
class Decimals:
    """`Decimals` says how many digits a Decimal field holds: `Annotated[Decimal, Decimals(10, 2)]` takes at most 10
    digits, 2 of them behind the point. `precision` is 1 to 38, `scale` 0 to `precision`. A bare `Decimal` is
    `Decimals(38, 9)`."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise DeclarationError(f"{self}: precision must be 1 to 38 (Spark's limit), scale 0 to precision")


DEFAULT_DECIMALS: Final = Decimals(38, 9)
"""38 is the most digits Spark and most databases hold; 9 behind the point (nano-units) leave 29 in front of it."""


class LaterClass:
    """Stands for a name an annotation uses before it exists. Only a `Ref` may point to one."""


@dataclass(frozen=True, slots=True)
class AnnotationPlace:
    """Says what an annotation belongs to, for messages and to notice recursion."""

    owner: str
    field: str
    declaring: tuple[type[Any], str] | None = None  # the class being declared, and its type name
    inside: tuple[type[Any], ...] = ()

    def fail(self, annotation: Any, why: str) -> DeclarationError:
        """Make the error that names class, field and annotation."""
        text = annotation if isinstance(annotation, str) else _show(annotation)
        return DeclarationError(f"{self.owner}.{self.field}: {text}: {why}", type=self.owner, field=self.field)


def _show(annotation: Any) -> str:
    is_class = isinstance(annotation, type) and not typing.get_args(annotation)
    return annotation.__qualname__ if is_class else str(annotation).replace("typing.", "")


class _Names(dict[str, Any]):
    """Resolves an annotation's names: the class's own, its module's, the built-in ones; an unknown name becomes
    `LaterClass`."""

    def __init__(self, module: str, own: dict[str, Any]) -> None:
        super().__init__(own)
        self._module = getattr(sys.modules.get(module), "__dict__", {})

    def __missing__(self, name: str) -> Any:
        if name in self._module:
            return self._module[name]
        builtins = vars(sys.modules["builtins"])
        return builtins[name] if name in builtins else type(name, (LaterClass,), {})


def type_hints(cls: type[Any]) -> dict[str, Any]:
    """Return the class's annotations, inherited ones included, each resolved in the module that wrote it."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations = inspect.get_annotations(base)
        holder = type(base.__name__, (), {"__annotations__": annotations, "__module__": base.__module__})
        hints.update(_resolve(holder, base.__module__, {cls.__name__: cls, base.__name__: base}, cls))
    return hints


def call_hints(func: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Return a function's annotations, resolved."""
    return _resolve(func, func.__module__, own, func)


def _resolve(holder: Any, module: str, own: dict[str, Any], culprit: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(holder, localns=_Names(module, own), include_extras=True)
    except (TypeError, SyntaxError, AttributeError, NameError) as error:
        raise DeclarationError(f"{culprit.__qualname__}: an annotation cannot be read: {error}") from error


def shape_of(annotation: Any, where: AnnotationPlace) -> Shape:
    """Return the shape an annotation declares; DeclarationError for an annotation whose values cannot be kept."""
    if len(where.inside) >= MAX_DEPTH:
        raise where.fail(annotation, f"nested deeper than {MAX_DEPTH}")
    if isinstance(annotation, typing.NewType):
        return shape_of(annotation.__supertype__, where)
    try:
        kind = _SCALARS.get(annotation)
    except TypeError:  # an annotation that cannot be hashed
        kind = None
    if kind is not None:
        return Scalar(kind)
    return _generic(annotation, where) or _class(annotation, where)


def _generic(annotation: Any, where: AnnotationPlace) -> Shape | None:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(args, where)
    if origin is list:
        return ListShape(shape_of(args[0], where))
    if origin is dict:
        if args[0] is not str:
            raise where.fail(annotation, "a dict's keys must be str (Avro maps have no others)")
        return MapShape(shape_of(args[1], where))
    if origin is Ref:
        return RefShape(_target(annotation, args[0], where))
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) != 1:
            raise where.fail(annotation, "a union may only be T | None")
        of = shape_of(rest[0], where)
        return of if isinstance(of, OptionalShape) else OptionalShape(of)  # an optional of an optional is one
    return None


def _annotated(args: tuple[Any, ...], where: AnnotationPlace) -> Shape:
    digits = [extra for extra in args[1:] if isinstance(extra, Decimals)]
    if not digits:
        return shape_of(args[0], where)
    if args[0] is not Decimal:
        said = f"Decimals({digits[0].precision}, {digits[0].scale})"
        right = f"; write Annotated[Decimal, {said}] | None" if _may_be_none(args[0], Decimal) else ""
        raise where.fail(args[0], f"Decimals says how many digits a Decimal has, and this is none{right}")
    if len(digits) > 1:
        raise where.fail(args[0], "Decimals twice: which counts?")
    return DecimalShape(digits[0].precision, digits[0].scale)


def _may_be_none(annotation: Any, of: type[Any]) -> bool:
    return set(typing.get_args(annotation)) == {of, type(None)}


def _target(annotation: Any, target: Any, where: AnnotationPlace) -> str:
    info = vars(target).get("__halog__") if isinstance(target, type) else None
    if info is not None:
        return str(info.name)
    if where.declaring is not None and target is where.declaring[0]:
        return where.declaring[1]
    if isinstance(target, type) and issubclass(target, LaterClass):
        return target.__name__  # a class declared later; the name is checked when a reference is stored
    raise where.fail(annotation, "Ref[T] refers to a class declared with halog.managed")


def _class(annotation: Any, where: AnnotationPlace) -> Shape:
    if annotation is Decimal:
        return DecimalShape(DEFAULT_DECIMALS.precision, DEFAULT_DECIMALS.scale)
    if not isinstance(annotation, type):
        raise where.fail(annotation, f"cannot be kept; allowed are {ALLOWED}")
    if issubclass(annotation, LaterClass):
        raise where.fail(annotation, "is not defined where the class is declared; only Ref[T] may name a later class")
    if issubclass(annotation, enum.Enum):
        return _enum(annotation, where)
    if "__halog__" in vars(annotation) or (where.declaring is not None and annotation is where.declaring[0]):
        name = annotation.__name__
        raise where.fail(annotation, f"a managed object is not a value of another; write Ref[{name}]")
    if dataclasses.is_dataclass(annotation):
        return _record(annotation, where)
    raise where.fail(annotation, f"cannot be kept; allowed are {ALLOWED}")


def _enum(cls: type[enum.Enum], where: AnnotationPlace) -> Shape:
    if issubclass(cls, enum.Flag):
        raise where.fail(cls, "a Flag's combinations have no names; use list[...] of an Enum")
    symbols = tuple(member._name_ for member in cls)
    if not symbols:
        raise where.fail(cls, "an Enum without members")
    if len(symbols) > MAX_FIELDS:
        raise where.fail(cls, f"an Enum of {len(symbols):,} members, more than {MAX_FIELDS:,}; use a str")
    for symbol in symbols:
        check_name(symbol, f"{where.owner}.{where.field}: enum member")
    return EnumShape(check_name(local_name(cls), "enum"), symbols, cls)


def _record(cls: type[Any], where: AnnotationPlace) -> Shape:
    if cls in where.inside:
        raise where.fail(cls, "is nested in itself; records cannot be recursive, use Ref[T]")
    if not dataclasses.fields(cls):
        raise where.fail(cls, "has no fields; a list of it would take no bytes")
    check_made(cls, where.fail)
    inside = AnnotationPlace(f"{where.owner}.{where.field}", "", where.declaring, (*where.inside, cls))
    return RecordShape(check_name(local_name(cls), "dataclass"), tuple(field_shapes(cls, inside)), cls)


def check_made(cls: type[Any], fail: Callable[[Any, str], DeclarationError]) -> None:
    """Raise DeclarationError for a class whose instances cannot be made from their fields alone: their stored form
    could not be read."""
    try:
        object.__new__(cls)
    except TypeError:
        why = "is abstract" if inspect.isabstract(cls) else "derives from a built-in type, whose content is no field"
        raise fail(cls, f"{why}; its objects could not be read back") from None
    if any("__getattribute__" in vars(c) for c in cls.__mro__ if c is not object):
        raise fail(cls, "cannot define __getattribute__: what is stored is what its fields hold")


def field_shapes(cls: type[Any], where: AnnotationPlace) -> Iterator[FieldShape]:
    """Yield the fields of a dataclass, in order."""
    hints = type_hints(cls)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar) or hint is dataclasses.InitVar:
            raise dataclasses.replace(where, field=name).fail("InitVar", "would not be stored; use a field")
    for item in dataclasses.fields(cls):
        at = dataclasses.replace(where, field=check_name(item.name, f"{where.owner}: field"))
        if item.name == "_halog" or "." in item.name:
            raise at.fail(item.name, "the name is halog's own")
        shape = shape_of(hints[item.name], at)
        default = _default(item, shape, at)
        if default is None and not item.init:
            raise at.fail("field(init=False)", "needs a default")
        yield FieldShape(item.name, shape, default)


def _default(item: dataclasses.Field[Any], shape: Shape, where: AnnotationPlace) -> Default | None:
    """Return a field's default. Only `list` and `dict` are factories known to make the same value every time, on every
    node."""
    if item.default is not dataclasses.MISSING:
        value = item.default
        return Default(_checked_plain(shape, value, where), make=lambda: value)
    factory = item.default_factory
    if factory is dataclasses.MISSING:
        return None
    if factory in (list, dict):
        return Default(_checked_plain(shape, factory(), where), make=factory)
    return Default(computed=True, make=factory)


def _checked_plain(shape: Shape, value: Any, where: AnnotationPlace) -> Any:
    try:
        encoder(shape, lambda _name, _target: True)(value)
    except Misfit as misfit:
        why = f"the default is no {misfit.expected}"
        raise where.fail(repr(value)[:80], why) from None
    return to_plain(shape, value, fixed=True)
