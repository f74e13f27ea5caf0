"""Events and effects of `halog.core.active.epoch_merge`; told from `halog.core.events` like all others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from halog.core.ids import EpochId
from halog.core.log.chain import ChainState


class MergeAsked(msgspec.Struct, frozen=True):
    """Somebody has something to merge into this partition: end the epoch, and open the next one, above `floor`, by it.
    Answered with `Happened` once that is open, `Refused` where it opened, or goes on, without."""

    token: int
    floor: int


class MergeMade(msgspec.Struct, frozen=True):
    """What opens `epoch`, as `MergeDue` asked: the parts, and the `EpochMerged`; nothing: it is to open without."""

    token: int
    epoch: EpochId
    records: Sequence[bytes]


class MergeDue(msgspec.Struct, frozen=True):
    """The history ends with `state`, for good, and `epoch` is to be opened: report MergeMade. All of it is in the log
    before `offset`."""

    token: int
    epoch: EpochId
    state: ChainState
    offset: int
    horizon: bytes
    mapper_version: int
    decided: tuple[tuple[bytes, bool], ...]
    """Of the ledger."""
