"""Transactions an ended epoch left behind, until it is certain that they did not happen (Q4, R4).

What was in flight when an epoch ended is unknown; so is a record that readers skip, for its id may have been tried
again. Both are certain once a higher epoch has opened and a caller's repetitions have had their time: whatever has not
happened by then did not. One that happens meanwhile is taken out at once, for the outcome table may forget it before.
Bounded; tells, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from halog.core import records
from halog.core.events import Tell
from halog.core.outcomes import Outcomes
from halog.core.roles import Role
from halog.core.writer import InFlight
from halog.events import DISCARDED, ITEMS

if TYPE_CHECKING:
    from halog.core.partition import Partition

KEEP = 10_000
"""Ids waited for per partition: more than may be in flight. What comes beyond is in the log's own list only."""


class _Left(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    lsn: int
    since: int
    why: str


class Discarded:
    """Of one copy."""

    __slots__ = ("_left", "_outcomes")

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._left: dict[bytes, _Left] = outcomes.awaited

    def __bool__(self) -> bool:
        return bool(self._left)

    def in_flight(self, queue: Iterable[InFlight], epoch: int, now: int, why: str) -> None:
        """What the log has not acknowledged when an epoch ends may be discarded with it."""
        for item in queue:
            if type(item.record) is records.Commit and item.record.changes:
                self.left(item.tx, epoch, item.lsn, now, why)

    def left(self, tx: bytes, epoch: int, lsn: int, now: int, why: str) -> None:
        """`tx` was to be `lsn` of an epoch that ended, or that readers skipped it in."""
        known = self._outcomes.get(tx) is not None or self._outcomes.expired(tx)
        if not known and len(self._left) < KEEP:
            self._left.setdefault(tx, _Left(epoch, lsn, now, why))

    def certain(self, now: int, wait_ms: int, led: int) -> Iterator[Tell]:
        """Tell what is certain by now. `led`: number of the last epoch opened."""
        due = [(tx, x) for tx, x in self._left.items() if led > x.epoch and now - x.since >= wait_ms]
        groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for tx, x in due:
            del self._left[tx]
            groups.setdefault((x.epoch, x.why), []).append({"tx": tx.hex(), "lsn": x.lsn})
        for (epoch, why), found in groups.items():
            for i in range(0, len(found), ITEMS):
                part = found[i : i + ITEMS]
                yield Tell(DISCARDED, "", why, {"count": len(part), "of_epoch": epoch, "transactions": part})


def passed_over(p: Partition, record: records.Record) -> None:
    """A record that counts for nobody. One copy tells: all read it. Of what is mirrored the home site tells."""
    if type(record) is not records.Commit or not record.changes or p.role is Role.LOADING or p.chain.state.owner:
        return
    teller = p.table.replicas[0].member if p.table.replicas else p.table.active
    if teller == p.me:
        why = "its record landed behind a higher epoch, or did not continue its own"
        h = record.header
        p.discarded.left(h.tx, h.epoch.number, h.lsn, p.now, why)
