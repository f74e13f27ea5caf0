"""A partition's log and its events are joined here: who was active, when, under which epoch and because of what.

The module is pure. The log says which epochs there were and how they ended; the events say who led them, and why. Where
the log was trimmed the lineage still names the epochs, and the events may still know the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.table.table import PartitionTable
from halog.events import ROLE, SITES_ASKED, TRANSFER, UNLOGGED_LOST, Event
from halog.runtime.topics.log_judge import EntryVerdict

Lineage = tuple[tuple[EpochId, int], ...]


class Epoch(msgspec.Struct):
    """Describes one epoch of a partition. Times are ms since 1970; None: not known any more."""

    epoch: int
    opened: bool = False
    active: str | None = None
    since_ms: int | None = None
    lsn: int | None = None
    """The lsn of its first record."""
    until_ms: int | None = None
    ended: str | None = None
    because: str | None = None


def epochs_of(
    lineage: Lineage, judged: Iterable[EntryVerdict], events: Iterable[Event], table: PartitionTable
) -> list[Epoch]:
    """Return every epoch of a partition, oldest first. `lineage` is what a snapshot still names; `events` are of this
    partition."""
    known = Epochs()
    known.lineage(lineage)
    for item in judged:
        known.read(item)
    for event in events:
        known.told(event)
    return known.all(table)


class Epochs:
    """Collects what is known: the lineage and the log first, then the events."""

    def __init__(self) -> None:
        self._by_number: dict[int, Epoch] = {}
        self._current: Epoch | None = None
        self._handed: dict[int, str] = {}
        """Maps epoch number → the successor that its last record names."""
        self._asked: dict[int, str] = {}
        """Maps epoch number → why its writer was asked to hand over."""
        self._sites: dict[int, str] = {}
        """Maps epoch number → the site that began it."""
        self._by_hand: list[Event] = []
        """What operators said about sites, and about nodes whose memory a partition waited for."""

    def _at(self, number: int) -> Epoch:
        return self._by_number.setdefault(number, Epoch(number))

    def lineage(self, opened: Lineage) -> None:
        """Take the epochs that a snapshot still names."""
        for epoch, lsn in opened:
            at = self._at(epoch.number)
            at.opened, at.lsn = True, lsn
            self._sites[epoch.number] = epoch.site

    def read(self, item: EntryVerdict) -> None:
        """Read the log's next record."""
        record = item.record
        if record is None:
            return
        number = record.header.epoch.number
        self._sites[number] = record.header.epoch.site
        if item.verdict == Verdict.STARTED.value:
            self._started(number, item.timestamp_ms)
        elif item.verdict == Verdict.OPENED.value:
            at = self._at(number)
            at.opened, at.lsn, at.since_ms = True, record.header.lsn, item.timestamp_ms
        elif item.verdict == Verdict.ACCEPTED.value and isinstance(record, records.HandedOver):
            self._handed[number] = record.to
            at = self._at(number)
            at.ended, at.until_ms = f"handed over to {record.to}", item.timestamp_ms

    def _started(self, number: int, time_ms: int) -> None:
        before, self._current = self._current, self._at(number)
        if before is not None and before.ended is None:
            before.ended, before.until_ms = f"fenced by epoch {number}", time_ms

    def told(self, event: Event) -> None:
        """Take an event of this partition."""
        if event.epoch is None:
            return
        if event.code == SITES_ASKED.code or (event.code == UNLOGGED_LOST.code and event.more.get("given_up")):
            self._by_hand.append(event)
        elif event.code == TRANSFER.code:
            self._asked[event.epoch] = event.cause
        elif event.code == ROLE.code and event.more.get("role") == "active":
            at = self._at(event.epoch)
            at.opened, at.active, at.because = True, event.node, event.cause
            at.since_ms = at.since_ms or event.time_ms
        elif event.code == ROLE.code and event.more.get("was") == "active":
            self._stepped_down(self._at(event.epoch), event)

    def _stepped_down(self, at: Epoch, event: Event) -> None:
        """Note why the node that led does not any more. A hand-over is also told by the log."""
        at.until_ms = at.until_ms or event.time_ms
        if at.ended is None:
            at.ended = event.cause
        elif event.epoch not in self._handed:
            at.ended += f" ({event.cause})"

    def _said(self, event: Event, found: Iterable[Epoch]) -> None:
        """Add what an operator said to the epoch that began with it, went on with it, or ended by it."""
        number, more = event.epoch or 0, event.more
        its = {at.epoch: at for at in found}
        said = f"{more.get('what')} {event.cause}"
        if event.code == UNLOGGED_LOST.code:  # the first epoch since; its node says what was given up
            number = min((n for n, at in its.items() if n > number and at.opened), default=-1)
            said = f"by {more.get('by')}" + (f": {more['reason']}" if more.get("reason") else "")
        elif more.get("action") == "promote":  # the first epoch of that site since
            began = (n for n, at in its.items() if n > number and at.opened and self._sites.get(n) == more.get("to"))
            number = min(began, default=-1)
        at = its.get(number)
        if at is not None and more.get("action") == "demote":
            at.ended = said if at.ended is None else f"{at.ended} ({said})"
        elif at is not None:
            at.because = said if at.because is None else f"{at.because}; {said}"

    def all(self, table: PartitionTable) -> list[Epoch]:
        """Return all epochs, with everything that is known."""
        found = [self._by_number[n] for n in sorted(self._by_number)]
        before: Epoch | None = None
        for at in found:
            if before is not None and before.epoch in self._handed and at.opened:
                why = self._asked.get(before.epoch)
                at.because = f"{before.active or 'the node before it'} handed over" + (f": {why}" if why else "")
            before = at if at.opened else before
        for event in self._by_hand:
            self._said(event, found)
        if found and table.active is not None and found[-1].epoch == table.epoch.number:
            found[-1].active = found[-1].active or table.active.node
        return found
