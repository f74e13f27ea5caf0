"""This module reads the types of the fields of `model`'s dataclasses, once for each class: it takes a millisecond."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

_hints: dict[type[Any], Mapping[str, Any]] = {}
_kinds: dict[type[Any], Mapping[str, tuple[type[Any], ...]]] = {}


def hints(section: type[Any]) -> Mapping[str, Any]:
    """Return field → annotation."""
    known = _hints.get(section)
    if known is None:
        known = _hints[section] = typing.get_type_hints(section)
    return known


def kinds(section: type[Any]) -> Mapping[str, tuple[type[Any], ...]]:
    """Return field → the classes its value may be an instance of."""
    known = _kinds.get(section)
    if known is None:
        known = _kinds[section] = {name: _kinds_of(hint) for name, hint in hints(section).items()}
    return known


def _kinds_of(hint: Any) -> tuple[type[Any], ...]:
    origin = typing.get_origin(hint)
    allowed = (origin,) if origin in (tuple, Mapping) else typing.get_args(hint)
    return tuple(typing.get_origin(k) or k for k in (allowed or (hint,)))
