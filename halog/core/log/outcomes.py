"""Which transactions happened: id → lsn, bounded. Below its horizon nothing is known any more (W6, T6).

Ids begin with an 8-byte stamp, so they order by when their commit was first tried. What is forgotten is remembered as
one stamp: an id at or below it is neither "happened" nor "never seen", it is expired, and refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

KEEP = 50_000
"""Ids remembered per partition: ten seconds at 5,000 commits/s, longer than a client keeps re-asking."""

STAMP_BYTES = 8


class Outcomes:
    """Insertion-ordered and bounded; deterministic, so that every copy forgets the same ids."""

    __slots__ = ("_by_id", "_order", "awaited", "horizon", "keep")

    def __init__(self, items: Iterable[tuple[bytes, int]] = (), horizon: bytes = b"", keep: int = KEEP) -> None:
        self._by_id: dict[bytes, int] = dict(items)
        self._order = deque(self._by_id)
        """The ids, oldest first: a dict's own first key is ever farther away, the more were deleted before it."""
        self.horizon = horizon
        self.keep = keep
        self.awaited: dict[bytes, Any] = {}
        """What somebody notes of ids that may still happen (`halog.core.commit.discards`); one that happens is taken
        out."""

    def add(self, tx: bytes, lsn: int) -> None:
        """Remember, and forget the oldest beyond `keep`."""
        if tx not in self._by_id:
            self._order.append(tx)
        self._by_id[tx] = lsn
        if self.awaited:
            self.awaited.pop(tx, None)
        if len(self._by_id) > self.keep:
            oldest = self._order.popleft()
            del self._by_id[oldest]
            self.horizon = max(self.horizon, oldest[:STAMP_BYTES])

    def get(self, tx: bytes) -> int | None:
        """The lsn it happened at, or None."""
        return self._by_id.get(tx)

    def expired(self, tx: bytes) -> bool:
        """True if `tx` may have been forgotten."""
        return tx[:STAMP_BYTES] <= self.horizon

    def items(self) -> list[tuple[bytes, int]]:
        return list(self._by_id.items())
