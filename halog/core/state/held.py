"""What a replica holds beyond its accepted history: records the active pushed and the log has not shown it yet.

Law: the log is the only arbiter. Held records are applied or counted in an election by nobody; they only prove to the
active that this incarnation's memory has them, and spare a second decoding when the log brings the same bytes.
The run is gap-free, of one epoch; `tip` is told only where it continues the accepted history without a hole. What was
told is kept until the log brings it or the epoch is over: never displaced by what comes later. A position that was
published seals the epoch (E1): nothing more of it is held or told. This module knows no roles and no members.

What the active says that it shows is `declared`, where commits do not wait for the log (W7). That much of the run is
due to be visible here, sealed or not: it promises nothing, and stays true whoever is elected.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import NamedTuple

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import RecordFormatError

PUSHED = (records.Commit, records.Prepare, records.Outcome, records.MapperChanged, records.Horizon)
"""What may be held: what an epoch writes between its first record and its last, which are read in the log."""

MAX_RECORDS = 4_096
"""As many as an active has in flight; a replica that far behind its log is acknowledged by what it reads."""

MAX_BYTES = 8 << 20
"""Room for the largest record and more; memory per partition while the log is late."""


class HeldRecord(NamedTuple):
    """A pushed record, decoded once."""

    data: bytes
    record: records.Record
    digest: bytes

    @property
    def lsn(self) -> int:
        return self.record.header.lsn


class Held:
    """The run of one copy. `state` is always that of the copy's chain."""

    __slots__ = ("_bytes", "declared", "run", "sealed", "told")

    def __init__(self) -> None:
        self.run: deque[HeldRecord] = deque()
        self._bytes = 0
        self.told = 0
        """The lsn acknowledged as held, in the chain's epoch; 0: none."""
        self.declared = 0
        """The last lsn that the active of the chain's epoch shows, as far as it said so."""
        self.sealed = 0
        """Epoch numbers up to this one are refused (E1)."""

    def seal(self, epoch: int) -> None:
        """A position was published: from now on nothing of this epoch or a lower one is held."""
        self.sealed = max(self.sealed, epoch)

    def offer(self, data: bytes, state: ChainState) -> records.Record | None:
        """Hold a pushed record, if it is of the open epoch and continues the run, or the history; None: it does not."""
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
        """Does the run go on where the history ends?"""
        return bool(self.run) and self.run[0].lsn == state.lsn + 1

    def _check(self, state: ChainState) -> None:
        """A run that reaches the history must continue it."""
        if self.joined(state) and self.run[0].record.header.prev != state.hash:
            self.clear()

    def tip(self, state: ChainState) -> int:
        """Everything up to this lsn is in memory, accepted or held."""
        return self.run[-1].lsn if self.joined(state) else state.lsn

    def beyond(self, lsn: int) -> tuple[bytes, ...]:
        """The records behind `lsn`."""
        found = list(takewhile(lambda held: held.lsn > lsn, reversed(self.run)))
        return tuple(held.data for held in reversed(found))

    def news(self, state: ChainState, upto: int | None = None) -> int:
        """The tip, or `upto` if that is below, if it should be told: beyond the history and beyond what was told; else
        0. A run whose hole the log filled only after the epoch was sealed is not told either."""
        tip = self.tip(state) if upto is None else min(upto, self.tip(state))
        if tip <= max(state.lsn, self.told) or state.epoch.number <= self.sealed:
            return 0
        self.told = tip
        return tip

    def due(self, shown: int, state: ChainState) -> list[records.Record]:
        """What the active shows beyond `shown`, of what is held without a hole."""
        if self.declared <= shown or not self.joined(state):
            return []
        return [held.record for held in islice(self.run, shown - state.lsn, self.declared - state.lsn)]

    def find(self, data: bytes) -> HeldRecord | None:
        """The log shows `data`: the held record of these very bytes, if it is the next one."""
        return self.run[0] if self.run and self.run[0].data == data else None

    def accepted(self, state: ChainState) -> None:
        """The history has grown to `state`: let go of what it has now, or of everything if it went another way."""
        while self.run and self.run[0].lsn <= state.lsn:
            first = self.run.popleft()
            self._bytes -= len(first.data)
            if first.lsn == state.lsn and first.digest != state.hash:
                self.clear()
        self._check(state)

    def clear(self) -> None:
        """The epoch is over, or this copy is: forget."""
        self.run.clear()
        self._bytes = self.told = self.declared = 0
