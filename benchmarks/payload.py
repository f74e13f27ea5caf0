"""Text that makes an object about 200 bytes long; pure, and no two alike."""

from __future__ import annotations

SIZE = 184
"""With number, count and type id this makes 200 bytes."""


def payload(number: int) -> str:
    """Deterministic, different for every number."""
    return f"{number:08d}-".ljust(SIZE, "x")
