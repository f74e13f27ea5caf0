"""This module says in which ways a transaction may read, and what a decorated function asks of its transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from halog.core.durability import Durability, checked
from halog.errors import RefusedError
from halog.transactions.token import Token, merged

Read = Literal["active", "local", "barrier", "lease"]
MODES: Final[tuple[str, ...]] = get_args(Read)


class TransactionKind(NamedTuple):
    """A `TransactionKind` says what each run asks of its transaction; see `Node.transaction`."""

    read: Read = "active"
    after: Mapping[str, int] = MappingProxyType({})
    durability: Durability | None = None

    @classmethod
    def of(cls, read: Read, after: Token | Iterable[Token], durability: Durability | None) -> TransactionKind:
        """Return the kind that an application asks for. RefusedError: there is no such `read`."""
        check_read(read)
        return cls(read, merged(after), checked(durability))


USUAL: Final = TransactionKind()


def check_read(read: str) -> None:
    """Raise RefusedError if there is no such way to read."""
    if read not in MODES:
        raise RefusedError(f"read={read!r} is none of {', '.join(MODES)}; see docs/guides/reads.md", read=read)
