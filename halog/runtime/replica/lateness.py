"""This module knows how far a copy is behind the active node. It decides nothing."""

from __future__ import annotations

from halog.backend import Lag
from halog.runtime.support.clock import monotonic_ms

LEVEL = Lag(0, 0.0)


class Lateness:
    """Measures how late one copy is."""

    __slots__ = ("_level_at", "_tail")

    def __init__(self) -> None:
        self._tail = 0
        self._level_at = monotonic_ms()
        """The last lsn the active told us, and when this copy was last known to be level with it."""

    def heard(self, tail: int, lsn: int) -> None:
        """Note the last lsn of the active, which told it; this copy is at `lsn`."""
        self._tail = tail
        if lsn >= tail:
            self._level_at = monotonic_ms()

    def lag(self, lsn: int) -> Lag:
        """Return the records that this copy is behind, and the ms since it was last known to be level."""
        behind = self._tail - lsn
        return Lag(behind, float(monotonic_ms() - self._level_at)) if behind > 0 else LEVEL
