"""A mapper of the application's and its next version, in test_mapper_version.py: most keys belong elsewhere by it."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from mappers import versioned

MODULE = "tests.unit.runtime.keys.by_name"


@versioned(1)
def by_name(type_name: str, key: tuple[Any, ...]) -> str:
    return f"test-{crc32(str(key[0]).encode()) % 4}"


@versioned(2, earlier=by_name)
def turned(type_name: str, key: tuple[Any, ...]) -> str:
    """What the code of the next deployment calls `by_name`."""
    return f"test-{crc32(str(key[0])[::-1].encode()) % 4}"
