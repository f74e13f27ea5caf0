"""What whoever asked a partition's copy is told. Frozen values, as all that goes in and out of the core."""

from __future__ import annotations

import msgspec


class Happened(msgspec.Struct, frozen=True):
    """Committed as `lsn`."""

    lsn: int


class NotHappened(msgspec.Struct, frozen=True):
    """It did not and will not happen."""


class Conflicted(msgspec.Struct, frozen=True):
    """`key` has another version than the one read; a retry should first wait for `settled` (0: nothing to wait for)."""

    key: bytes
    expected: int
    found: int
    settled: int = 0


class Duplicated(msgspec.Struct, frozen=True):
    """`key` exists."""

    key: bytes


class Locked(msgspec.Struct, frozen=True):
    """Nothing was done: `key` is held by `tx`, a transaction over several partitions that is not decided yet."""

    key: bytes
    tx: bytes


class Remapped(msgspec.Struct, frozen=True):
    """Nothing was done: the partition serves mapping version `now`, and this was routed by an older one (T8)."""

    now: int


class Otherwise(msgspec.Struct, frozen=True):
    """The transaction was decided the other way, at `lsn`; 0: it was told so, and has no record here."""

    lsn: int


class TooLarge(msgspec.Struct, frozen=True):
    """The encoded record has `size` bytes, over `limit`; or, with a `key`, the value of that object."""

    size: int
    limit: int
    key: bytes | None = None


class NotServing(msgspec.Struct, frozen=True):
    """This copy is not active; `active` is who should be, as far as it knows, of the epoch `elected`. Nothing happened
    here."""

    active: str | None
    epoch: int = 0
    """It is, in this epoch, and the request was for an older one only."""
    elected: int = 0


class Busy(msgspec.Struct, frozen=True):
    """Too much is in flight: `limit` commits, or bytes."""

    limit: int
    of: str = "commits"


class TooFew(msgspec.Struct, frozen=True):
    """Nothing was done: too few nodes of the group are there to hold a commit (R7), too few sync replicas to flush
    what asks for it (R6), or too few of the sites whose logs must have it (M5)."""

    have: int
    needed: int
    of: str = "nodes"
    away: tuple[str, ...] = ()
    """Those that are missed, where it is known who."""


class Expired(msgspec.Struct, frozen=True):
    """The transaction id is not newer than `horizon`, the stamp up to which outcomes may have been forgotten."""

    horizon: bytes = b""


class Unknown(msgspec.Struct, frozen=True):
    """It may have happened; ask again by id."""

    why: str


class Refused(msgspec.Struct, frozen=True):
    """Nothing was done: a hand-over was refused or called off, or a commit asks for more than its policy gives (R6)."""

    why: str


Result = (
    Happened
    | NotHappened
    | Conflicted
    | Duplicated
    | TooLarge
    | NotServing
    | Busy
    | TooFew
    | Expired
    | Unknown
    | Refused
    | Locked
    | Otherwise
    | Remapped
)
