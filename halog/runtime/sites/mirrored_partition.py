"""Keeps the state of one partition that a link mirrors (F2)."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING

from halog.core.sites.mirror import Checkpoint, Mirror
from halog.metadata.mirrors import MirrorStatus

if TYPE_CHECKING:
    from halog.runtime.replica.driver import Copy


class MirroredPartition:
    """A `MirroredPartition` is mirrored from one place in the other log on."""

    def __init__(self, copy: Copy, mirror: Mirror) -> None:
        self.copy = copy
        self.mirror = mirror
        self.pending: deque[tuple[int, Checkpoint]] = deque()
        """Holds what is under way: when the other site's log took it, and where the mirror stood behind it."""
        self.landed = self.safe = self._next_safe = mirror.checkpoint
        """Everything up to `landed` is in this site's log. Up to `safe` this node has also read it there as what
        counts."""
        self.lag_ms = 0
        self.still_since = time.monotonic()
        """Since when nothing is under way."""
        self.upto: int | None = None
        """Where the other log ended when it was first asked whether all of it is read; None: nobody asks."""
        self.joined = False
        """Was it made sure that no two histories are reported any more?"""
        self.told: MirrorStatus | None = None
        self.told_at = self.held_at = -math.inf

    def settle(self) -> None:
        """Find how far `safe` is. It does not wait for the last record that has landed, which would never be read in a
        busy log."""
        if self.mirror.parted is None and not self.mirror.given_away:
            self.upto = None
        if not self.pending:
            self.landed = self.mirror.checkpoint
        if self.copy.core.state.chain.state.lsn >= self._next_safe.state.lsn:
            self.safe = self._next_safe
            self._next_safe = self.landed
            if self.copy.core.state.chain.state.lsn >= self.landed.state.lsn:
                self.safe = self.landed

    @property
    def apart(self) -> bool:
        """Was it reported as parted, and does nothing show by now that this is over?"""
        return self.told is not None and self.told.parted and not self.mirror.met

    @property
    def fenced(self) -> bool:
        """Has the other site's turn ended, is all of it here, and was that not told yet? Somebody waits for it."""
        epoch = self.safe.state.epoch
        return not self.safe.state.opened and (self.told is None or self.told.checkpoint.state.epoch != epoch)
