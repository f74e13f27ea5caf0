"""This module sets aside the keys of an activated configuration that this halog does not know, and puts them back (U1).
Pure.

A later version of halog may have activated it: a key that an earlier one does not know keeps no process from running,
and is not lost when an earlier one activates the next version. A file is for the halog that reads it, and is read
strictly.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from halog.config.changes import KeyPath, key_text
from halog.config.field_types import hints
from halog.config.model import Config, PolicyConfig

_PLACED: Final = ("nodes", "async")
"""The keys of a partition that is placed by hand, where it has keys."""


def set_aside(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, Any]]:
    """Return the part that this halog knows, and the rest by key. What is of another type than it should be stays:
    whoever reads it says so."""
    later: dict[KeyPath, Any] = {}
    known: dict[str, Any] = _known(Config, table, (), later)
    return known, later


def carried(table: Mapping[str, Any], later: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """Return the table with these keys, as far as it has the tables that they stood in. A key that it says itself is
    as it says."""
    made: dict[str, Any] = _copy(table)
    for key, value in later.items():
        inner: Any = made
        for name in key[:-1]:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.setdefault(key[-1], value)
    return made


def listed(later: Iterable[KeyPath]) -> str:
    """Return the keys for a message."""
    return ", ".join(sorted(map(key_text, later)))


def _copy(value: Any) -> Any:
    return {name: _copy(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _known(hint: Any, value: Any, where: KeyPath, later: dict[KeyPath, Any]) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _known(args[0], value, where, later)
    if not isinstance(value, Mapping):
        return value
    if origin is Mapping:
        return {name: _known(args[1], item, (*where, name), later) for name, item in value.items()}
    if not dataclasses.is_dataclass(hint):
        return value
    cls = typing.cast(type[Any], hint)
    names = [f.name for f in dataclasses.fields(cls) if f.metadata.get("table", True)]
    kept = _only(names, value, where, later)
    made = {name: _known(hints(cls)[name], item, (*where, name), later) for name, item in kept.items()}
    if cls is PolicyConfig and isinstance(placed := made.get("partitions"), Mapping):
        key = (*where, "partitions")
        made["partitions"] = {name: _only(_PLACED, item, (*key, name), later) for name, item in placed.items()}
    return made


def _only(names: Iterable[str], value: Any, where: KeyPath, later: dict[KeyPath, Any]) -> Any:
    if not isinstance(value, Mapping):
        return value
    later.update({(*where, name): item for name, item in value.items() if name not in names})
    return {name: item for name, item in value.items() if name in names}
