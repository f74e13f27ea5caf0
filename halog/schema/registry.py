"""This module is the registry of declared types: the only place where a name or id from outside becomes a class.

It never imports anything by name. A type that was not declared in this process is unknown (UnknownTypeError), or
foreign, that is, readable by its stored definition without any class. Bases and subclasses form one family with one key
space, so a look-up of a base finds its subclasses' objects.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

from halog.errors import DeclarationError, UnknownTypeError
from halog.schema.definition import Definition
from halog.schema.foreign import ForeignType
from halog.schema.typeinfo import TypeInfo

MAX_FOREIGN: Final = 1_000
"""Parsed foreign definitions kept; beyond it the oldest is parsed again when needed."""


@dataclass(frozen=True, slots=True)
class DeclarationPlace:
    """A `DeclarationPlace` is a line of the code that declares a class. A module that is reloaded, and a notebook's
    cell that is run again, are other code."""

    code: Callable[[], CodeType | None]
    line: int

    @classmethod
    def of(cls, frame: FrameType) -> DeclarationPlace:
        """Return the place that this frame is at. The code is not kept in memory by that."""
        return cls(weakref.ref(frame.f_code), frame.f_lineno)

    @property
    def text(self) -> str:
        """Return the place as it stands in a message."""
        return f" (line {self.line})" if self.line else ""

    def is_beside(self, other: DeclarationPlace) -> bool:
        """Say whether both are in the same code, one below the other."""
        code = self.code()
        return code is not None and code is other.code() and self.line != other.line


NOWHERE: Final = DeclarationPlace(lambda: None, 0)


class Registry:
    """A `Registry` holds declared types by name, type id and class; `halog.managed` fills it."""

    def __init__(self) -> None:
        self.by_name: dict[str, TypeInfo] = {}
        self.by_type_id: dict[bytes, TypeInfo] = {}
        self.by_class: dict[type[Any], TypeInfo] = {}
        self.families: dict[bytes, str] = {}
        self.notifiers: list[tuple[Callable[[Any], object], tuple[str, ...]]] = []
        """Functions called with every PartitionChange, of these partitions or (none named) of all, on every node
        (P8)."""
        self.triggers: dict[str, Callable[[Any], Any]] = {}
        """Compensation triggers by type: each decides what stands where two branches changed an object of the type
        (M3)."""
        self._foreign: dict[bytes, ForeignType] = {}
        self._places: dict[str, DeclarationPlace] = {}

    def add(self, info: TypeInfo, place: DeclarationPlace = NOWHERE) -> None:
        """Register a type. If the same class is declared again (its module is reloaded, a notebook's cell is run
        again), it replaces the old one. DeclarationError if it is another class of the name."""
        known = self.by_name.get(info.name)
        if known is not None:
            self._replace(known, info, place)
        self._places[info.name] = place
        root = self.families.setdefault(info.family_id, info.parsed.root)
        if root != info.parsed.root:
            raise DeclarationError(f"{info.name}: family id collision of {info.parsed.root} and {root}; use name=")
        self.by_name[info.name] = info
        self.by_type_id[info.type_id] = info
        self.by_class[info.cls] = info

    def _replace(self, known: TypeInfo, info: TypeInfo, place: DeclarationPlace) -> None:
        if known.module != info.module:
            raise DeclarationError(
                f"{info.name}: declared in {info.module} and already in {known.module}; names do not hold the module, "
                "so give one of them another with name= (or import the module once, not also as __main__)",
                type=info.name,
            )
        was, now = known.cls.__qualname__, info.cls.__qualname__
        before = self._places[info.name]
        if was != now:
            raise DeclarationError(
                f"{info.name}: {info.module} declares {now}{place.text} and already {was}{before.text} by this name; "
                "give one of them another with name=",
                type=info.name,
            )
        if place.is_beside(before):
            raise DeclarationError(
                f"{info.name}: {info.module} declares it{place.text} and already{before.text}; call one of the classes "
                "otherwise, or give it another name with name=",
                type=info.name,
            )
        del self.by_class[known.cls], self.by_type_id[known.type_id]

    def info(self, what: str | bytes | type[Any] | Any) -> TypeInfo:
        """Return the type by name, type id, class or object; UnknownTypeError if it is not declared here."""
        match what:
            case str():
                found = self.by_name.get(what)
            case bytes():
                found = self.by_type_id.get(what)
            case _:
                found = self.by_class.get(what if isinstance(what, type) else type(what))
        if found is None:
            shown = what.hex() if isinstance(what, bytes) else getattr(what, "__qualname__", None) or what
            shown = shown if isinstance(shown, str) else type(what).__qualname__
            raise UnknownTypeError(f"{shown[:100]}: not declared with halog.managed in this process", type=shown[:100])
        return found

    def subtypes(self, what: str | type[Any]) -> tuple[TypeInfo, ...]:
        """Return the type and all declared types derived from it, in order of declaration."""
        name = self.info(what).name
        return tuple(t for t in self.by_name.values() if t.name == name or name in t.bases)

    def may_refer(self, name: str, target: str) -> bool:
        """Say whether a field declared as `Ref[target]` may hold a reference to the named type: the target itself or a
        subtype.

        A type unknown here passes: in a rolling upgrade it may be a newer node's subtype, and an object that refers to
        one must stay writable.
        """
        info = self.by_name.get(name)
        return name == target or info is None or target in info.bases

    def schema_for_foreign(self, definition: str | bytes | Mapping[str, Any]) -> ForeignType:
        """Return a checked reader for a definition of which this process may have no class; cached by type id."""
        parsed = Definition.parse(definition)
        found = self._foreign.get(parsed.type_id)
        if found is None:
            if len(self._foreign) >= MAX_FOREIGN:
                self._foreign.pop(next(iter(self._foreign)))
            found = self._foreign[parsed.type_id] = ForeignType(parsed)
        return found


DEFAULT: Final = Registry()
"""The registry that `halog.managed` uses unless told otherwise."""
