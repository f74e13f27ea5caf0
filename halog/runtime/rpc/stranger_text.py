"""This module shows people what a stranger says: a name or a text that nobody has checked (U1)."""

from __future__ import annotations

from typing import Final

SHOWN: Final = 40
"""Characters of a name."""


def shown(text: str, most: int = SHOWN) -> str:
    """Return a text of a stranger for people: quoted and shortened where it is too long, or has characters that are
    none to print."""
    return text if len(text) <= most and text.isascii() and text.isprintable() else ascii(text[:most])
