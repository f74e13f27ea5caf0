"""Transactions an ended epoch left behind, until it is certain that they did not happen (Q4, R4).

What was in flight when an epoch ended is unknown; so is a record that readers skip, for its id may have been tried
again. Both are certain once a higher epoch has opened and a caller's repetitions have had their time: whatever the
outcome table does not know by then did not happen. Bounded; tells, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from halog.core.events import Tell
from halog.core.outcomes import Outcomes
from halog.events import DISCARDED

KEEP = 10_000
"""Ids waited for per partition: more than may be in flight. What comes beyond is in the log's own list only."""

SHOWN = 100
"""Ids in one event: 5 kB of JSON."""


class _Left(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    lsn: int
    since: int
    why: str


class Discarded:
    """Of one copy."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[bytes, _Left] = {}

    def __bool__(self) -> bool:
        return bool(self._left)

    def left(self, tx: bytes, epoch: int, lsn: int, now: int, why: str) -> None:
        """`tx` was to be `lsn` of an epoch that ended, or that readers skipped it in."""
        if len(self._left) < KEEP:
            self._left.setdefault(tx, _Left(epoch, lsn, now, why))

    def certain(self, now: int, wait_ms: int, led: int, outcomes: Outcomes) -> Iterator[Tell]:
        """Tell what is certain by now. `led`: number of the last epoch opened."""
        due = {tx: x for tx, x in self._left.items() if led > x.epoch and now - x.since >= wait_ms}
        groups: dict[tuple[int, str], list[bytes]] = {}
        for tx, x in due.items():
            del self._left[tx]
            if outcomes.get(tx) is None and not outcomes.expired(tx):
                groups.setdefault((x.epoch, x.why), []).append(tx)
        for (epoch, why), ids in groups.items():
            yield _told(epoch, why, ids, {tx: due[tx].lsn for tx in ids})


def _told(epoch: int, why: str, ids: list[bytes], lsns: dict[bytes, int]) -> Tell:
    shown = [{"tx": tx.hex(), "lsn": lsns[tx]} for tx in ids[:SHOWN]]
    return Tell(DISCARDED, "", why, {"count": len(ids), "of_epoch": epoch, "transactions": shown})
