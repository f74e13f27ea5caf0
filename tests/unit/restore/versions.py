"""A type of two versions, for comparisons of what both have written."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from halog.schema import Definition
from halog.schema.versions import bringing
from tests.unit.schema.shapes_strategy import declare

OLD: Final = declare({"k": int, "f": int}, version=1)
NEW: Final = declare({"k": int, "f": int, "g": int}, version=2, body={"g": 0})
DEFINITIONS: Final = tuple(Definition.parse(info.definition) for info in (OLD, NEW))
even = bringing(DEFINITIONS)


def old(f: int) -> bytes:
    """As the old version writes it."""
    return OLD.encode(OLD.cls(1, f))


def new(f: int, g: int = 0) -> bytes:
    """As the new one does."""
    return NEW.encode(NEW.cls(1, f, g))


VALUES: Final = st.sampled_from([old(1), new(1), old(2), new(2), new(1, 7)])


def newest(value: bytes | None) -> bytes | None:
    """By the new version, whichever has written it."""
    if value is None or value[:8] == NEW.type_id:
        return value
    return new(OLD.decode(value)["f"])
