"""Events and effects of transactions over several partitions (D4, D5): part of `halog.core.events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from halog.core.log.records import Change


class PrepareAsked(msgspec.Struct, frozen=True):
    """A transaction over `participants` asks this one to vote (T1): answered with `Happened` once everything is locked
    and in the log. The rest, `exact` too, is as in `Submitted`; `digest` is of the whole transaction."""

    token: int
    tx: bytes
    first: str
    participants: tuple[str, ...]
    digest: bytes
    reads: Sequence[tuple[bytes, int]]
    changes: Sequence[Change]
    found: Mapping[bytes, int]
    epoch: int = 0
    mapping: int = 0
    last: bool = False
    """All others have voted: this is the first, and decides at once. Answered with `Happened` once it is committed,
    with `Otherwise` where it was aborted before."""
    exact: bool = False
    moves: bool = False
    """It carries what is there already from one partition to another."""


class MappingAsked(msgspec.Struct, frozen=True):
    """Mapping `version` is to be served from now on (T8): answered with `Happened` once the log says so."""

    token: int
    version: int


class DecideAsked(msgspec.Struct, frozen=True):
    """`tx` is to be committed or aborted: as its first partition decides it (`decides`), or as that has decided.
    Answered with `Happened` where that is how it stands, with `Otherwise` where it stands the other way (T2, T3)."""

    token: int
    tx: bytes
    commit: bool
    decides: bool
    participants: tuple[str, ...] = ()
    """Who may have been asked to prepare, where this partition may not know."""
    patient: bool = False
    """The record may wait for company: whoever tells it waits for no answer."""


class Confirmed(msgspec.Struct, frozen=True):
    """The log of `participant` has the outcome of `tx`, a commit that was decided here (T6)."""

    tx: bytes
    participant: str


class Spread(msgspec.Struct, frozen=True):
    """Tell these partitions how `tx` was decided here, and post Confirmed for each that has it."""

    tx: bytes
    commit: bool
    to: tuple[str, ...]


class AskDecision(msgspec.Struct, frozen=True):
    """Ask the first partition of `tx`, in doubt for too long, to abort it, and post what it has decided (T3, T4)."""

    tx: bytes
    first: str
