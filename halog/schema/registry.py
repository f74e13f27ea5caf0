"""This module is the registry of declared types: the only place where a name or id from outside becomes a class.

It never imports anything by name. A type that was not declared in this process is unknown (UnknownTypeError), or
foreign, that is, readable by its stored definition without any class. Bases and subclasses form one family with one key
space, so a look-up of a base finds its subclasses' objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from halog.errors import DeclarationError, UnknownTypeError
from halog.schema.definition import Definition
from halog.schema.foreign import ForeignType
from halog.schema.typeinfo import TypeInfo

MAX_FOREIGN: Final = 1_000
"""Parsed foreign definitions kept; beyond it the oldest is parsed again when needed."""


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

    def add(self, info: TypeInfo) -> None:
        """Register a type. If it is declared again in the same module (a reload), it replaces the old one."""
        known = self.by_name.get(info.name)
        if known is not None:
            self._replace(known, info)
        root = self.families.setdefault(info.family_id, info.parsed.root)
        if root != info.parsed.root:
            raise DeclarationError(f"{info.name}: family id collision of {info.parsed.root} and {root}; use name=")
        self.by_name[info.name] = info
        self.by_type_id[info.type_id] = info
        self.by_class[info.cls] = info

    def _replace(self, known: TypeInfo, info: TypeInfo) -> None:
        if known.module != info.module:
            raise DeclarationError(
                f"{info.name}: declared in {info.module} and already in {known.module}; names do not hold the module, "
                "so give one of them another with name= (or import the module once, not also as __main__)",
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
