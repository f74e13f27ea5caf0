"""This module leads from the claim to an open epoch: what is appended, and what the log shows of it (E4, E5).

`EpochStarted` fences every lower epoch. Once it is read, what the log lacks is appended again. Once that is read, the
record that opens the epoch is appended: `EpochOpened`, or what a merge brings (`halog.core.active.epoch_merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from halog.core import effects as fx
from halog.core.active.epoch_merge import EpochMerge
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState

if TYPE_CHECKING:
    from halog.core.election.campaign import Campaign


class Opening:
    """An `Opening` opens the epochs of one copy's campaigns."""

    def __init__(
        self,
        copy: CopyState,
        campaign: Campaign,
        merging: EpochMerge,
        step_down: Callable[[str, str], None],
        lost: Callable[[str], None],
    ) -> None:
        """Take the parts of the copy. `step_down` is called with the happening and the reason where the epoch comes to
        nothing; `lost` where the copy cannot go on."""
        self._copy = copy
        self._campaign = campaign
        self._merging = merging
        self._step_down = step_down
        self._lost = lost
        self.first_tag = 0
        """The tag of `EpochStarted`."""
        self._open_at = 0
        """The lsn at which the log has everything it lacked."""

    def start(self) -> None:
        """Announce the epoch that was claimed."""
        copy, epoch = self._copy, self._campaign.epoch
        self._campaign.deadline = copy.now + self._campaign.log.open_within_ms
        s = copy.chain.state
        self.first_tag = copy.tag + 1
        self._append(records.encode(records.EpochStarted(records.Header(s.log_id, epoch), s.epoch, s.lsn)))

    def _append(self, data: bytes) -> None:
        copy = self._copy
        copy.tag += 1
        copy.out.append(fx.Append(copy.tag, data))

    def read(self, record: records.Record, verdict: Verdict) -> None:
        """Take a record that the log shows between the claim and serving."""
        copy, ours, led = self._copy, record.header.epoch == self._campaign.epoch, self._copy.chain.state.led
        number = record.header.epoch.number
        if verdict is Verdict.STARTED and not ours:
            if number >= self._campaign.epoch.number:  # a lower one landed late, and ends where ours starts
                self._step_down("deposed", f"epoch {number} started in the log")
        elif copy.role is Role.STARTING and ours and verdict is Verdict.STARTED and record.header.epoch.number <= led:
            self._step_down("epoch ended", "another site's epoch is above it: raise above that")  # read since the claim
        elif copy.role is Role.STARTING and ours and verdict is Verdict.STARTED:
            self._started()
        elif copy.role is Role.STARTING and ours and verdict is Verdict.SKIPPED:
            self._step_down("epoch ended", "the log holds a higher epoch: raise above it")
        elif copy.role is Role.OPENING and ours and verdict is Verdict.ACCEPTED:
            self._open()
        elif copy.role is Role.OPENING and ours and verdict is Verdict.OPENED:
            self._campaign.opened()
        elif copy.role is Role.OPENING and ours and verdict is Verdict.VOIDED:
            self._step_down("epoch ended", "the log voided this epoch before it opened")

    def _started(self) -> None:
        """Append again what the log lacks, and open (E5)."""
        copy, s = self._copy, self._copy.chain.state
        if not copy.tail.joins(s):
            first = copy.tail.run[0].header.lsn
            self._lost(f"the log ends at lsn {s.lsn}, commits from {first} on are to follow: it lost its tail")
            return
        copy.become("started")
        self._open_at = copy.tail.tip or s.lsn
        for data in copy.tail.again(s, self._campaign.epoch):
            self._append(data)
        self._open()

    def _open(self) -> None:
        """Append the opening record, once the log shows all that was appended again: behind a hole it would look like a
        lost tail."""
        s = self._copy.chain.state
        if s.lsn == self._open_at and self._merging.is_due:
            self._campaign.deadline = self._merging.ask(self._campaign.epoch)
        elif s.lsn == self._open_at:
            header = records.Header(s.log_id, self._campaign.epoch, s.lsn + 1, s.hash)
            self._append(records.encode(records.EpochOpened(header, s.lineage[-1:])))

    def open_with(self, found: Sequence[bytes]) -> None:
        """Open the epoch with the records that were made of a merge; without any it opens like any other."""
        self._campaign.deadline = self._copy.now + self._campaign.log.open_within_ms
        for data in found:
            self._append(data)
        if not found:
            self._open()
