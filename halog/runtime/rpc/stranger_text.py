"""This module shows people what a stranger says: a name or a text that nobody has checked (U1)."""

from __future__ import annotations

from typing import Final

import msgspec

SHOWN: Final = 40
"""Characters of a name."""


def shown(text: str, most: int = SHOWN) -> str:
    """Return a text of a stranger for people: quoted and shortened where it is too long, or has characters that are
    none to print."""
    return text if len(text) <= most and text.isascii() and text.isprintable() else ascii(text[:most])


class _Tagged(msgspec.Struct, array_like=True):
    """Whatever follows the tag is passed over, and nothing is made of it."""

    tag: str


_TAGGED = msgspec.msgpack.Decoder(_Tagged)


def tag_of(data: bytes) -> str | None:
    """Return the tag of a frame, whatever follows it; None: this is no frame."""
    try:
        tag = _TAGGED.decode(data).tag
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return shown(tag)
