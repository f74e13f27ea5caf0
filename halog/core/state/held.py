"""This module keeps what a replica holds beyond its accepted history: records that the active node pushed, and that the
replica has not yet read in the log.

Law: the log is the only arbiter. Nobody applies held records or counts them in an election. They prove to the active
node that this incarnation has them in memory, and they save a second decoding when the log brings the same bytes. The
run has no gaps and is of one epoch. `tip` is told only where the run continues the accepted history without a hole.
What was told is kept until the log brings it or the epoch is over; later records never displace it. A published
position seals the epoch (E1): after that no more of it is held or told. This module knows no roles and no members.

Where commits do not wait for the log, `declared` is how far the active node says that it shows (W7). That much of the
run is to be visible here too, sealed or not. It promises nothing, and stays true whoever is elected.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import NamedTuple

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import RecordFormatError

PUSHED = (
    records.Commit,
    records.Prepare,
    records.Outcome,
    records.MapperChanged,
    records.Horizon,
    records.LevelStated,
)
"""The record types that may be held: those between an epoch's first and last record. The first and the last are read in
the log."""

MAX_RECORDS = 4_096
"""An active node has at most so many in flight. A replica that is further behind its log is acknowledged by what it
reads."""

MAX_BYTES = 8 << 20
"""Room for the largest record and more. This is memory per partition while the log is late."""


class HeldRecord(NamedTuple):
    """A `HeldRecord` is a pushed record that was decoded once."""

    data: bytes
    record: records.Record
    digest: bytes

    @property
    def lsn(self) -> int:
        return self.record.header.lsn


class HeldRun:
    """Keeps the run of one copy. `state` is always the state of the copy's chain."""

    __slots__ = ("_bytes", "declared", "run", "sealed", "told")

    def __init__(self) -> None:
        self.run: deque[HeldRecord] = deque()
        self._bytes = 0
        self.told = 0
        """The lsn that was acknowledged as held, in the chain's epoch; 0: none."""
        self.declared = 0
        """The last lsn that the active node of the chain's epoch said it shows."""
        self.sealed = 0
        """Epoch numbers up to this one are refused (E1)."""

    def seal(self, epoch: int) -> None:
        """Hold nothing of this epoch or a lower one from now on: a position was published."""
        self.sealed = max(self.sealed, epoch)

    def offer(self, data: bytes, state: ChainState) -> records.Record | None:
        """Hold a pushed record if it is of the open epoch and continues the run or the history. Return None if it does
        not.

        One that a later version of halog wrote is not held, so it is not acknowledged, and neither is what follows it.
        The copy stops when the log brings it; until then nobody knows whether it counts (U1)."""
        try:
            record = records.decode(data)
        except RecordFormatError:
            return None
        h = record.header
        if type(record) not in PUSHED or h.log_id != state.log_id or not self._open(state, h.epoch.number):
            return None
        if h.epoch != state.epoch or h.lsn <= state.lsn or not self._room(len(data)):
            return None
        if self.run and not self._continues(h):
            if self.joined(state):
                return None
            self.clear()  # nothing was promised of it
        self.run.append(HeldRecord(data, record, digest(data)))
        self._bytes += len(data)
        self._check(state)
        return record

    def _open(self, state: ChainState, epoch: int) -> bool:
        return state.opened and not state.void and epoch > self.sealed

    def _room(self, size: int) -> bool:
        return len(self.run) < MAX_RECORDS and self._bytes + size <= MAX_BYTES

    def _continues(self, h: records.Header) -> bool:
        last = self.run[-1]
        return h.lsn == last.lsn + 1 and h.prev == last.digest

    def joined(self, state: ChainState) -> bool:
        """Say whether the run begins where the history ends."""
        return bool(self.run) and self.run[0].lsn == state.lsn + 1

    def _check(self, state: ChainState) -> None:
        """Drop the run if it reaches the history without continuing it."""
        if self.joined(state) and self.run[0].record.header.prev != state.hash:
            self.clear()

    def tip(self, state: ChainState) -> int:
        """Return the last lsn up to which everything is in memory, accepted or held."""
        return self.run[-1].lsn if self.joined(state) else state.lsn

    def beyond(self, lsn: int) -> tuple[bytes, ...]:
        """Return the records behind `lsn`."""
        found = list(takewhile(lambda held: held.lsn > lsn, reversed(self.run)))
        return tuple(held.data for held in reversed(found))

    def news(self, state: ChainState, upto: int | None = None) -> int:
        """Return the lsn to tell as held; 0: there is no news. It is the tip, or `upto` if that is lower, and only if
        it is beyond the history and beyond what was told. A run is not told, either, if the log filled its hole after
        the epoch was sealed."""
        tip = self.tip(state) if upto is None else min(upto, self.tip(state))
        if tip <= max(state.lsn, self.told) or state.epoch.number <= self.sealed:
            return 0
        self.told = tip
        return tip

    def due(self, shown: int, state: ChainState) -> list[records.Record]:
        """Return what the active node shows beyond `shown`, as far as it is held without a hole."""
        if self.declared <= shown or not self.joined(state):
            return []
        return [held.record for held in islice(self.run, shown - state.lsn, self.declared - state.lsn)]

    def has(self, data: bytes) -> bool:
        """Say whether a record with exactly these bytes is held."""
        return any(held.data == data for held in self.run)

    def find(self, data: bytes) -> HeldRecord | None:
        """Return the held record with exactly the bytes `data`, which the log shows, if it is the next one."""
        return self.run[0] if self.run and self.run[0].data == data else None

    def accepted(self, state: ChainState) -> None:
        """Let go of what the history, which has grown to `state`, has now. Let go of everything if the history went
        another way."""
        while self.run and self.run[0].lsn <= state.lsn:
            first = self.run.popleft()
            self._bytes -= len(first.data)
            if first.lsn == state.lsn and first.digest != state.hash:
                self.clear()
        self._check(state)

    def clear(self) -> None:
        """Forget the run: the epoch, or this copy, is over."""
        self.run.clear()
        self._bytes = self.told = self.declared = 0
