"""`Outcomes` remembers which transactions happened: id → lsn, bounded. Below its horizon nothing is known any more (W6,
T6).

Ids begin with an 8-byte stamp, so they are ordered by when their commit was first tried. Forgotten ids are remembered
as one stamp. An id at or below that stamp is neither "happened" nor "never seen": it is expired, and refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

KEEP = 50_000
"""Ids remembered per partition: ten seconds at 5,000 commits/s, longer than a client keeps asking again."""

STAMP_BYTES = 8


class Outcomes:
    """`Outcomes` are kept in insertion order and bounded. They are deterministic, so every copy forgets the same
    ids."""

    __slots__ = ("_by_id", "_order", "awaited", "horizon", "keep")

    def __init__(self, items: Iterable[tuple[bytes, int]] = (), horizon: bytes = b"", keep: int = KEEP) -> None:
        self._by_id: dict[bytes, int] = dict(items)
        self._order = deque(self._by_id)
        """The ids, oldest first. A dict's own first key is ever farther away, the more were deleted before it."""
        self.horizon = horizon
        self.keep = keep
        self.awaited: dict[bytes, Any] = {}
        """Notes about ids that may still happen (`halog.core.commit.discards`). An id that happens is taken out."""

    def add(self, tx: bytes, lsn: int) -> None:
        """Remember an id, and forget the oldest beyond `keep`."""
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
        """Return the lsn at which the transaction happened, or None."""
        return self._by_id.get(tx)

    def expired(self, tx: bytes) -> bool:
        """Say whether `tx` may have been forgotten."""
        return tx[:STAMP_BYTES] <= self.horizon

    def items(self) -> list[tuple[bytes, int]]:
        return list(self._by_id.items())
