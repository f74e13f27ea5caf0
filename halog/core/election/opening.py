"""From the claim to an open epoch: what is appended, and what the log shows of it (E4, E5).

`EpochStarted` fences everything lower. Once it is read, what the log lacks is appended again, and once that is read,
the record that opens the epoch: `EpochOpened`, or what a merge brings (`halog.core.active.epoch_merge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.roles import Role

if TYPE_CHECKING:
    from halog.core.election.campaign import Campaign


class Opening:
    """Of one copy's campaigns."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._p = campaign.p
        self.first_tag = 0
        """The tag of `EpochStarted`."""
        self._open_at = 0
        """The lsn with which everything the log lacked is in it."""

    def start(self) -> None:
        """Announce the epoch that was claimed."""
        p, epoch = self._p, self._campaign.epoch
        self._campaign.deadline = p.now + self._campaign.log.open_within_ms
        s = p.chain.state
        self.first_tag = p.tag + 1
        self._append(records.encode(records.EpochStarted(records.Header(s.log_id, epoch), s.epoch, s.lsn)))

    def _append(self, data: bytes) -> None:
        p = self._p
        p.tag += 1
        p.out.append(ev.Append(p.tag, data))

    def read(self, record: records.Record, verdict: Verdict) -> None:
        """What the log shows between the claim and serving."""
        p, ours, led = self._p, record.header.epoch == self._campaign.epoch, self._p.chain.state.led
        number = record.header.epoch.number
        if verdict is Verdict.STARTED and not ours:
            if number >= self._campaign.epoch.number:  # a lower one landed late, and ends where ours starts
                p.step_down("deposed", f"epoch {number} started in the log")
        elif p.role is Role.STARTING and ours and verdict is Verdict.STARTED and record.header.epoch.number <= led:
            p.step_down("epoch ended", "another site's epoch is above it: raise above that")  # read since the claim
        elif p.role is Role.STARTING and ours and verdict is Verdict.STARTED:
            self._started()
        elif p.role is Role.STARTING and ours and verdict is Verdict.SKIPPED:
            p.step_down("epoch ended", "the log holds a higher epoch: raise above it")
        elif p.role is Role.OPENING and ours and verdict is Verdict.ACCEPTED:
            self._open()
        elif p.role is Role.OPENING and ours and verdict is Verdict.OPENED:
            self._campaign.opened()
        elif p.role is Role.OPENING and ours and verdict is Verdict.VOIDED:
            p.step_down("epoch ended", "the log voided this epoch before it opened")

    def _started(self) -> None:
        """Append again what the log lacks, and open (E5)."""
        p, s = self._p, self._p.chain.state
        if not p.tail.joins(s):
            first = p.tail.run[0].header.lsn
            p.lost(f"the log ends at lsn {s.lsn}, commits from {first} on are to follow: it lost its tail")
            return
        p.become("started")
        self._open_at = p.tail.tip or s.lsn
        for data in p.tail.again(s, self._campaign.epoch):
            self._append(data)
        self._open()

    def _open(self) -> None:
        """Once the log shows all that was appended again: an opening behind a hole would look like a lost tail."""
        s = self._p.chain.state
        if s.lsn == self._open_at and self._p.merging.is_due:
            self._campaign.deadline = self._p.merging.ask(self._campaign.epoch)
        elif s.lsn == self._open_at:
            header = records.Header(s.log_id, self._campaign.epoch, s.lsn + 1, s.hash)
            self._append(records.encode(records.EpochOpened(header, s.lineage[-1:])))

    def open_with(self, found: Sequence[bytes]) -> None:
        """What opens the epoch was made of a merge; nothing: it opens as any other does."""
        self._campaign.deadline = self._p.now + self._campaign.log.open_within_ms
        for data in found:
            self._append(data)
        if not found:
            self._open()
