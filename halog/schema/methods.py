"""This module wraps methods of managed objects: calls run where the object is active (D1), with their arguments as
Avro.

It never decides where a call runs: a bound object asks its `Binding`, an unbound one is a plain object. The wrapper
costs one dict look-up. The shapes of arguments and result come from the annotations, when a method is first called. A
method gets the same wherever it runs: checked copies (`taken`, `given`). So a call that works here works from another
node, too.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, cast

from halog.errors import DeclarationError, FieldTypeError, RecordFormatError
from halog.schema.annotations import AnnotationPlace, call_hints, shape_of
from halog.schema.codec import decoder, encoder, misfit_at, same_name
from halog.schema.scalars import DECODE_ERRORS, Decoder, Encoder, Misfit
from halog.schema.shapes import ListShape, MapShape, Scalar, Shape, to_json
from halog.schema.special import Accepts

BINDING: Final = "_halog"
"""The entry of an object's `__dict__` that holds its binding; never a field."""
_AS_IS: Final = tuple(Scalar(name) for name in ("none", "bool", "int", "str", "bytes"))
"""Shapes whose values are immutable, and of one type each."""
SIGNATURE_BYTES: Final = 4
"""Enough to notice that two nodes run different code of one method; this guards against mistakes, not attackers."""

F = TypeVar("F", bound=Callable[..., Any])
_Kind = inspect._ParameterKind
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Binding(Protocol):
    """A `Binding` ties an object to its node and transaction."""

    def call(self, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the method where the object is active. `TypeInfo.methods[name].func` is the undecorated function."""


def wrap(func: F, owner: str, name: str) -> F:
    """Return the method as objects see it under this name. If an override calls it through `super()`, it is part of
    that call."""
    if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise DeclarationError(
            f"{owner}.{name}: a public method of a managed class must be a plain one, since a coroutine or generator "
            "cannot be sent to another node; start its name with _ to keep it local",
            type=owner,
            field=name,
        )

    @functools.wraps(func)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        binding = self.__dict__.get(BINDING)
        if binding is None or getattr(type(self), name) is not method:
            return func(self, *args, **kwargs)
        return binding.call(self, name, args, kwargs)

    return cast(F, method)


def public_functions(cls: type[Any]) -> dict[str, types.FunctionType]:
    """Return the functions to wrap: defined in this very class, public, and not a property, static or class method."""
    return {n: f for n, f in vars(cls).items() if isinstance(f, types.FunctionType) and not n.startswith("_")}


@dataclass(frozen=True, slots=True)
class _Codec:
    names: tuple[str, ...]
    kinds: tuple[_Kind, ...]
    encoders: tuple[tuple[str, Encoder], ...]
    decoders: tuple[Decoder, ...]
    digest: bytes
    plain: bool  # only positional parameters
    as_is: bool  # and all come back from bytes as the very values they were


class MethodInfo:
    """Holds a method: the undecorated `func`, its `signature` (with self), and the codecs of its arguments and result.
    `name` is the method's name in the class, whatever the function is called."""

    def __init__(
        self, owner: str, name: str, func: types.FunctionType, own: dict[str, Any], accepts: Accepts = same_name
    ) -> None:
        self.owner = owner
        self.name = name
        self.func = func
        self.signature = inspect.signature(func)
        self._own = own
        self._accepts = accepts

    def __repr__(self) -> str:
        return f"<MethodInfo {self.owner}.{self.name}{self.signature}>"

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return call_hints(self.func, self._own)

    def _shape(self, name: str, what: str) -> Shape:
        where = AnnotationPlace(self.owner, f"{self.name}({name})" if name != "return" else f"{self.name}() -> result")
        if name not in self._hints:
            raise DeclarationError(
                f"{self.owner}.{self.name}: {what} has no annotation, so it cannot be called: no node would know "
                "how to send it; annotate it, or start the method's name with _ to keep it local",
                type=self.owner,
                field=self.name,
            )
        hint = self._hints[name]
        return Scalar("none") if hint is type(None) else shape_of(hint, where)

    @cached_property
    def _codec(self) -> _Codec:
        params = list(self.signature.parameters.values())[1:]
        shapes = [_gathered(p, self._shape(p.name, f"parameter {p.name!r}")) for p in params]
        text = json.dumps([[p.name, int(p.kind), to_json(s)] for p, s in zip(params, shapes)], separators=(",", ":"))
        return _Codec(
            names=tuple(p.name for p in params),
            kinds=tuple(p.kind for p in params),
            encoders=tuple((f"{p.name}", encoder(s, self._accepts)) for p, s in zip(params, shapes)),
            decoders=tuple(decoder(s) for s in shapes),
            digest=hashlib.sha256(text.encode()).digest()[:SIGNATURE_BYTES],
            plain=all(p.kind in _POSITIONAL for p in params),
            as_is=all(p.kind in _POSITIONAL and s in _AS_IS for p, s in zip(params, shapes)),
        )

    @cached_property
    def _direct(self) -> tuple[Encoder, ...] | None:
        """Return the checks of the arguments, if these go to the method as they are; else None."""
        codec, _ = self._codec, self._result
        return tuple(encode for _, encode in codec.encoders) if codec.as_is else None

    @cached_property
    def _result(self) -> tuple[Encoder, Decoder, bool]:
        shape = self._shape("return", "the result")
        return encoder(shape, self._accepts), decoder(shape), shape in _AS_IS

    # --- a call that stays here ---

    def taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments as the method gets them, wherever it runs: checked, and copied. Raises what
        `encode_args` raises, and DeclarationError for a result that could not be sent."""
        direct = self._direct
        if direct is not None and not kwargs and len(args) == len(direct):
            try:
                for encode, value in zip(direct, args):
                    encode(value)
            except Misfit:
                raise self._error(misfit_at(self._codec.encoders, args)) from None
            return args, kwargs
        return self.decode_args(self.encode_args(args, kwargs))

    def given(self, value: Any) -> Any:
        """Return the result as the caller gets it, wherever the method runs. FieldTypeError if it does not fit."""
        encode, _, as_is = self._result
        if not as_is:
            return self.decode_result(self.encode_result(value))
        try:
            encode(value)
        except Misfit as misfit:
            raise self._misfit_of_result(misfit) from None
        return value

    # --- one that does not ---

    def encode_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the arguments' bytes, defaults filled in. TypeError for a call Python refuses, FieldTypeError for a
        wrong type; DeclarationError for a parameter or a result that cannot be sent."""
        codec, _ = self._codec, self._result
        if kwargs or not codec.plain or len(args) != len(codec.names):
            bound = self.signature.bind(None, *args, **kwargs)
            bound.apply_defaults()
            args = tuple(list(bound.arguments.values())[1:])
            args = tuple(list(a) if k is _Kind.VAR_POSITIONAL else a for a, k in zip(args, codec.kinds))
        try:
            return codec.digest + b"".join([e(a) for (_, e), a in zip(codec.encoders, args)])
        except Misfit:
            raise self._error(misfit_at(codec.encoders, args)) from None

    def decode_args(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of these bytes; RecordFormatError for bytes of another signature."""
        codec = self._codec
        if data[:SIGNATURE_BYTES] != codec.digest:
            raise RecordFormatError(
                f"{self.owner}.{self.name}: called with another signature than this node's {self.signature}; the nodes "
                "run different code"
            )
        values, at = [], SIGNATURE_BYTES
        try:
            for decode in codec.decoders:
                value, at = decode(data, at)
                values.append(value)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{self.owner}.{self.name}: malformed arguments: {str(error)[:200]}") from error
        self._check_end(data, at)
        return _spread(codec, values)

    def encode_result(self, value: Any) -> bytes:
        """Return the result's bytes; FieldTypeError where it does not fit its annotation."""
        try:
            return self._result[0](value)
        except Misfit as misfit:
            raise self._misfit_of_result(misfit) from None

    def _misfit_of_result(self, misfit: Misfit) -> FieldTypeError:
        misfit.path = "result" + misfit.path
        return self._error(misfit)

    def decode_result(self, data: bytes) -> Any:
        """Return the result of these bytes."""
        try:
            value, at = self._result[1](data, 0)
        except DECODE_ERRORS as error:
            raise RecordFormatError(f"{self.owner}.{self.name}: malformed result: {str(error)[:200]}") from error
        self._check_end(data, at)
        return value

    def _check_end(self, data: bytes, at: int) -> None:
        if at != len(data):
            raise RecordFormatError(f"{self.owner}.{self.name}: {len(data) - at} bytes too many")

    def _error(self, misfit: Misfit) -> FieldTypeError:
        return field_type_error(f"{self.owner}.{self.name}", misfit, " ")


def field_type_error(owner: str, misfit: Misfit, dot: str = ".") -> FieldTypeError:
    """Make the error that names type, field, the value's type and what was expected. It never shows the value, which
    may be secret."""
    got = type(misfit.value).__name__
    return FieldTypeError(
        f"{owner}{dot}{misfit.path}: expected {misfit.expected}, got {got}",
        type=owner,
        field=misfit.path,
        expected=misfit.expected,
        got=got,
    )


def _gathered(param: inspect.Parameter, shape: Shape) -> Shape:
    """Return the shape a parameter travels in: *args as a list, **kwargs as a map."""
    if param.kind is _Kind.VAR_POSITIONAL:
        return ListShape(shape)
    return MapShape(shape) if param.kind is _Kind.VAR_KEYWORD else shape


def _spread(codec: _Codec, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if codec.plain:
        return tuple(values), {}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, kind, value in zip(codec.names, codec.kinds, values):
        if kind in _POSITIONAL:
            args.append(value)
        elif kind is _Kind.VAR_POSITIONAL:
            args.extend(value)
        elif kind is _Kind.VAR_KEYWORD:
            kwargs.update(value)
        else:
            kwargs[name] = value
    return tuple(args), kwargs
