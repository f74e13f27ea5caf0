"""A `ChainState` says where an accepted history ends. `halog.core.log.chain` moves it, and it is stored."""

from __future__ import annotations

import msgspec

from halog.core.ids import NO_EPOCH, NO_HASH, EpochId, Position
from halog.core.log.record_types import Joined


class ChainState(msgspec.Struct, frozen=True):
    """A `ChainState` says where an accepted history ends. It is stored beside the objects that the history produced, in
    the same write."""

    log_id: bytes
    site: str
    epoch: EpochId = NO_EPOCH
    """The highest epoch started."""
    opened: bool = False
    void: bool = False
    """The rest of `epoch` does not count: voided, or closed by its own `HandedOver`."""
    closed_for: str = ""
    """The node `epoch` was handed over to, if its last accepted record is a `HandedOver`."""
    led: int = 0
    """Number of the last epoch opened: the first half of the position."""
    lsn: int = 0
    hash: bytes = NO_HASH
    lineage: tuple[tuple[EpochId, int], ...] = ()
    """Every opened epoch with the lsn of its `EpochOpened`, oldest first; kept for ever (F4)."""
    owner: str = ""
    """The other site whose history is mirrored into this log; "": the log is the own site's (F1)."""
    fenced: int = 0
    """While the log is mirrored: the highest epoch number that the own site has started here. What it wrote before is
    dead."""

    joined: tuple[Joined, ...] = ()
    """Epochs of this history that stand on several branches, oldest first; kept for ever, too."""
    undoings: tuple[bytes, ...] = ()
    """Names of the undoings of merges, in any of the branches. They are kept for ever, because an undoing is done
    once."""
    level: int = 1
    """The highest level that this history states (U1)."""

    @property
    def head(self) -> tuple[EpochId, int]:
        """Return where this history ends: its last opened epoch, and the lsn."""
        return (self.lineage[-1][0] if self.lineage else NO_EPOCH), self.lsn

    @property
    def position(self) -> Position:
        return Position(self.led, self.lsn)
