"""This module has the answers that a partition's copy gives to whoever asked it. They are frozen values, as everything
that goes in and out of the core."""

from __future__ import annotations

import msgspec


class Success(msgspec.Struct, frozen=True):
    """A `Success` says that the transaction is committed, as `lsn`."""

    lsn: int


class Abort(msgspec.Struct, frozen=True):
    """It did not and will not happen."""


class VersionConflict(msgspec.Struct, frozen=True):
    """The object under `key` has another version than the one read. A retry should first wait for `settled` (0: nothing
    to wait for)."""

    key: bytes
    expected: int
    found: int
    settled: int = 0


class DuplicateKey(msgspec.Struct, frozen=True):
    """An object under `key` exists already."""

    key: bytes


class LockConflict(msgspec.Struct, frozen=True):
    """Nothing was done: `key` is held by `tx`, a transaction over several partitions that is not decided yet."""

    key: bytes
    tx: bytes


class StaleMapping(msgspec.Struct, frozen=True):
    """Nothing was done: the partition serves mapping version `now`, and this was routed by an older one (T8)."""

    now: int


class OppositeDecision(msgspec.Struct, frozen=True):
    """The transaction was decided the other way, at `lsn`; 0: this copy was told so, and has no record of it."""

    lsn: int


class OversizedRecord(msgspec.Struct, frozen=True):
    """The encoded record, or with a `key` the value of that object, has `size` bytes and exceeds `limit`."""

    size: int
    limit: int
    key: bytes | None = None


class InactiveCopy(msgspec.Struct, frozen=True):
    """This copy is not active, and nothing happened here. `active` is the node that should be active in epoch
    `elected`, as far as this copy knows."""

    active: str | None
    epoch: int = 0
    """Not 0: this copy is active in this epoch, but the request was for an older one only."""
    elected: int = 0


class Busy(msgspec.Struct, frozen=True):
    """Too much is in flight: `limit` commits, or bytes."""

    limit: int
    of: str = "commits"


class Shortage(msgspec.Struct, frozen=True):
    """Nothing was done, because too few nodes of the group are there to hold a commit (R7), too few sync replicas to
    flush one that asks for it (R6), or too few of the sites whose logs must have it (M5)."""

    have: int
    needed: int
    of: str = "nodes"
    away: tuple[str, ...] = ()
    """Those that are missing, where they are known."""


class ExpiredId(msgspec.Struct, frozen=True):
    """The transaction id is not newer than `horizon`; outcomes up to that stamp may have been forgotten."""

    horizon: bytes = b""


class Unknown(msgspec.Struct, frozen=True):
    """The transaction may have happened; ask again by its id."""

    why: str


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was done: a hand-over was refused or called off, or a commit asks for more than its policy gives (R6)."""

    why: str


Result = (
    Success
    | Abort
    | VersionConflict
    | DuplicateKey
    | OversizedRecord
    | InactiveCopy
    | Busy
    | Shortage
    | ExpiredId
    | Unknown
    | Refusal
    | LockConflict
    | OppositeDecision
    | StaleMapping
)
