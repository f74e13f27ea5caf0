"""This module holds session tokens: "no older than what I have seen", carried from one node to another by the
application (R5).

A token holds the last lsn seen of each partition. Inside one site a partition has one history, so an lsn names
everything before it, too. A token is made of what transactions saw, is a few dozen bytes, and is plain text for a
cookie or a header.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from halog.errors import FieldTypeError

FORM: Final = "h1."
"""A token's text begins with this: it names the form of the rest."""
MAX_TEXT: Final = 64_000
"""A longer text is no token of halog's. A token of a thousand partitions is a third of this."""

_DECODER = msgspec.msgpack.Decoder(dict[str, int])


class Token:
    """A `Token` holds positions (lsn by partition). `a | b` is no older than both; `str(token)` and `Token.parse` are
    inverse. Give it to `node.transaction(after=token)`."""

    __slots__ = ("positions",)

    def __init__(self, positions: Mapping[str, int] | None = None) -> None:
        self.positions: dict[str, int] = dict(positions or {})

    def __or__(self, other: Token) -> Token:
        both = dict(self.positions)
        for partition, lsn in other.positions.items():
            both[partition] = max(lsn, both.get(partition, 0))
        return Token(both)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self.positions == other.positions

    def __hash__(self) -> int:
        return hash(frozenset(self.positions.items()))

    def __bool__(self) -> bool:
        return bool(self.positions)

    def __str__(self) -> str:
        data = msgspec.msgpack.encode(dict(sorted(self.positions.items())))
        return FORM + base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Token({self.positions!r})"

    @staticmethod
    def parse(text: str) -> Token:
        """Read a token from its text, which comes from outside: FieldTypeError for any text that `str(token)` did not
        make."""
        if not text.startswith(FORM) or len(text) > MAX_TEXT:
            raise FieldTypeError(f"{text[:40]!r} is no session token; give back what str(tx.token) was")
        body = text[len(FORM) :]
        try:
            data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            positions = _DECODER.decode(data)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            raise FieldTypeError(f"{text[:40]!r} is no session token ({error})") from None
        if any(lsn < 0 for lsn in positions.values()):
            raise FieldTypeError(f"{text[:40]!r} is no session token: it holds a negative position")
        return Token(positions)


def merged(after: Token | Iterable[Token]) -> dict[str, int]:
    """Return the positions of one token, or of several together."""
    if isinstance(after, Token):
        return dict(after.positions)
    all_of_them = Token()
    for token in after:
        all_of_them |= token
    return all_of_them.positions
