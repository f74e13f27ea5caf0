"""This module keeps transactions that an ended epoch left behind, until it is certain that they did not happen (Q4,
R4).

What was in flight when an epoch ended is unknown. So is a record that readers skip, for its id may have been tried
again. Both are certain once a higher epoch has opened and a caller's repetitions have had their time: whatever has not
happened by then did not happen. One that happens meanwhile is taken out at once, since the outcome table may forget it
before. So is a vote of a transaction over several partitions: no partition commits without the votes of all in their
logs (T1, T2). If the vote is given after all, the log has it and its outcome; it was not lost, and nobody tells of it.
A record that readers skip is in the log. One that was in flight may be nowhere else, so what is told of it carries its
bytes as they were given to the log. The list is bounded in number and in bytes. This module tells, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from halog.core.commit.writer import InFlight
from halog.core.log import records
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.table.tell import Tell
from halog.events import DISCARDED, ITEMS

KEEP = 10_000
"""So many ids are waited for per partition, more than may be in flight. Further ones are only in the log's own list."""

KEEP_BYTES = 8 << 20
"""So many bytes of records are kept with the ids, the first ones first: those are the acknowledged ones. Of further
records the id and the size are told."""

RECORD_BYTES = 4 << 20
"""A larger record is not kept either: in base64 no topic of halog's takes it."""

EVENT_BYTES = 256 << 10
"""So many bytes go into one event, or one record that is larger."""


_Attempt = records.Commit | records.Prepare


class _LeftAttempt(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    lsn: int
    since: int
    why: str
    record: _Attempt | None = None
    size: int = 0
    """In bytes; 0: its record is in the log."""
    answered: bool = False

    def told(self, tx: bytes) -> dict[str, Any]:
        """Return what an event says of the attempt."""
        more: dict[str, Any] = {"bytes": self.size} if self.size else {}
        if self.answered:
            more["acknowledged"] = True
        if self.record is not None:
            more["record"] = records.encode(self.record)
        return {"tx": tx.hex(), "lsn": self.lsn, **more}


class Discards:
    """Keeps the transactions that were left behind, for one copy."""

    __slots__ = ("_left", "_outcomes")

    def __init__(self, outcomes: Outcomes, ledger: Ledger) -> None:
        self._outcomes = outcomes
        self._left: dict[bytes, _LeftAttempt] = outcomes.awaited
        ledger.awaited = self._left

    def __bool__(self) -> bool:
        return bool(self._left)

    def in_flight(self, queue: Iterable[InFlight], epoch: int, now: int, why: str) -> None:
        """Keep what the log has not acknowledged when an epoch ends: it may be discarded with the epoch."""
        room = KEEP_BYTES - sum(x.size for x in self._left.values() if x.record is not None)
        for item in queue:
            record = item.record
            if isinstance(record, _Attempt) and record.changes:
                kept = record if item.size <= min(room, RECORD_BYTES) else None
                left = _LeftAttempt(epoch, item.lsn, now, why, kept, item.size, item.answered)
                if self._wait(item.tx, left) and kept is not None:
                    room -= item.size

    def left(self, tx: bytes, epoch: int, lsn: int, now: int, why: str) -> None:
        """Keep `tx`, which was to be `lsn` of an epoch that ended, and whose record readers skipped."""
        self._wait(tx, _LeftAttempt(epoch, lsn, now, why))

    def _wait(self, tx: bytes, left: _LeftAttempt) -> bool:
        """Keep, of several attempts, the one of the last epoch: until that epoch is over another attempt may count."""
        known, was = self._outcomes.get(tx) is not None or self._outcomes.expired(tx), self._left.get(tx)
        if known or (len(self._left) >= KEEP if was is None else left.epoch <= was.epoch):
            return False
        if was is not None and was.answered:
            left = msgspec.structs.replace(left, answered=True)
        self._left[tx] = left
        return True

    def certain(self, now: int, wait_ms: int, led: int) -> Iterator[Tell]:
        """Tell what is certain by now. `led`: number of the last epoch opened."""
        due = [(tx, x) for tx, x in self._left.items() if led > x.epoch and now - x.since >= wait_ms]
        groups: dict[tuple[int, str], list[tuple[bytes, _LeftAttempt]]] = {}
        for tx, x in due:
            del self._left[tx]
            groups.setdefault((x.epoch, x.why), []).append((tx, x))
        for (epoch, why), found in groups.items():
            for part in _parts(found):
                told = [x.told(tx) for tx, x in part]
                yield Tell(DISCARDED, "", why, {"count": len(told), "of_epoch": epoch, "transactions": told})


def _parts(found: Iterable[tuple[bytes, _LeftAttempt]]) -> Iterator[list[tuple[bytes, _LeftAttempt]]]:
    """Split the transactions into parts, one for each event."""
    part: list[tuple[bytes, _LeftAttempt]] = []
    room = EVENT_BYTES
    for tx, x in found:
        size = 0 if x.record is None else x.size
        if part and (len(part) == ITEMS or size > room):
            yield part
            part, room = [], EVENT_BYTES
        part.append((tx, x))
        room -= size
    if part:
        yield part


def passed_over(copy: CopyState, discarded: Discards, record: records.Record) -> None:
    """Keep a record that counts for nobody. All copies read it, but one tells. The home site tells of what is
    mirrored."""
    if not isinstance(record, _Attempt) or not record.changes or copy.role is Role.LOADING or copy.chain.state.owner:
        return
    if type(record) is records.Prepare and copy.ledger.voted(record.header.tx):
        return
    teller = copy.table.replicas[0].member if copy.table.replicas else copy.table.active
    if teller == copy.me:
        why = "its record landed behind a higher epoch, or did not continue its own"
        h = record.header
        discarded.left(h.tx, h.epoch.number, h.lsn, copy.now, why)
