"""The mapper of the application in test_disabled_partition.py, and the one that takes a partition out of it."""

from __future__ import annotations

from typing import Any

from mappers import versioned

MODULE = "tests.unit.runtime.keys.by_letter"


@versioned(1)
def by_letter(type_name: str, key: tuple[Any, ...]) -> str:
    return "shut" if str(key[0]).startswith("s") else "open"


@versioned(2, earlier=by_letter)
def without(type_name: str, key: tuple[Any, ...]) -> str:
    """Nothing is mapped to `shut` any more."""
    return "open"
