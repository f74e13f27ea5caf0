"""This module reads from HALOG-1014 the transactions that were in flight when their epoch ended and never reached the
log (Q4, X9).

It is pure. The event carries each record as the log was given it, as far as it had room; a record that it does not
carry is still named. Two nodes may tell of the same transaction, and it may be in the log all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from halog.core.log import records
from halog.errors import RecordFormatError
from halog.events import DISCARDED, Event
from halog.runtime.topics.log_judge import NOWHERE, EntryVerdict

UNLOGGED = "unlogged"
"""This word stands where a record of the log has the reader's verdict."""


class _Item(msgspec.Struct, frozen=True):
    tx: str
    lsn: int
    bytes: int = 0
    acknowledged: bool = False
    record: str | None = None


class _More(msgspec.Struct, frozen=True):
    of_epoch: int
    transactions: list[_Item]


class UnloggedTransaction(msgspec.Struct, frozen=True):
    """Describes one of these transactions. `size` is that of its record in bytes; 0: it was in the log when it was
    told. `data` is the record."""

    tx: bytes
    epoch: int
    lsn: int
    size: int
    acknowledged: bool
    data: bytes | None
    by: str
    cause: str
    time_ms: int

    @property
    def key(self) -> tuple[int, int, bytes]:
        """Return which attempt it is."""
        return self.epoch, self.lsn, self.tx

    def judged(self) -> EntryVerdict:
        """Return it as a record of the log is shown, without a place there. The time is when it was told."""
        if self.data is None:
            lacks = f"its record of {self.size} bytes had no room in the event" if self.size else "its record is gone"
            return EntryVerdict(NOWHERE, self.time_ms, UNLOGGED, None, f"{self.cause}; {lacks}")
        try:
            return EntryVerdict(NOWHERE, self.time_ms, UNLOGGED, records.decode(self.data), self.cause)
        except RecordFormatError as error:
            return EntryVerdict(
                NOWHERE, self.time_ms, UNLOGGED, None, f"{self.cause}; its record cannot be read: {error}"
            )

    def as_json(self) -> dict[str, Any]:
        """Return what is known of it, with or without its record."""
        return {
            "epoch": self.epoch,
            "lsn": self.lsn,
            "tx": self.tx.hex(),
            "bytes": self.size,
            "acknowledged": self.acknowledged,
            "by": self.by,
        }


def found_in(events: Iterable[Event]) -> list[UnloggedTransaction]:
    """Return each of them once, in the order of the events. If one is told twice, the one with its record counts. An
    event of another form is passed over: it is for people, and any node may write it."""
    found: dict[tuple[int, int, bytes], UnloggedTransaction] = {}
    for event in events:
        if event.code != DISCARDED.code:
            continue
        try:
            told = _of(event)
        except ValueError:  # from msgspec, hexadecimal digits or base64
            continue
        for one in told:
            if one.key not in found or found[one.key].data is None:
                found[one.key] = one
    return list(found.values())


def _of(event: Event) -> list[UnloggedTransaction]:
    more = msgspec.convert(event.more, _More)
    return [
        UnloggedTransaction(
            bytes.fromhex(item.tx),
            more.of_epoch,
            item.lsn,
            item.bytes,
            item.acknowledged,
            None if item.record is None else msgspec.convert(item.record, bytes),
            event.by,
            event.cause,
            event.time_ms,
        )
        for item in more.transactions
    ]
