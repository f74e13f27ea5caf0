"""This module serves reads that miss nothing answered before they were asked for (R5), on the active node of one epoch.

Law: take a record of this epoch that was appended after the question came, and that the log took with nothing above it
in between (W3). It shows that no later epoch had begun when the log took it. So everything answered before the question
is of this history, and visible. Any record will do. The node's own is a commit that changes nothing; at most one is on
its way, so that those who ask meanwhile share the next. Only the log is waited for, whatever commits wait for: a
replica's acknowledgement says what it holds, not who may write. Another site has a log of its own: where sites vote on
who goes on, nothing is answered without the votes.
"""

from __future__ import annotations

from collections import deque

from halog.core import effects as fx, results as res
from halog.core.commit.push import ReplicaPush
from halog.core.commit.writer import Writer
from halog.core.roles import Role
from halog.core.sites.site_quorum import SiteQuorum
from halog.core.state.copy_state import CopyState


class ReadBarriers:
    """Keeps the readers of one epoch that wait."""

    __slots__ = ("_copy", "_own", "_pushing", "_quorum", "_writer", "waiting")

    def __init__(self, copy: CopyState, writer: Writer, pushing: ReplicaPush, quorum: SiteQuorum) -> None:
        self._copy = copy
        self._writer = writer
        self._pushing = pushing
        self._quorum = quorum
        self.waiting: deque[tuple[int, int]] = deque()
        """The waiting readers in order: (the first lsn given after the question came, its token)."""
        self._own = 0
        """The lsn of the last record appended for a barrier."""

    def asked(self, token: int) -> None:
        """Answer with the lsn that reads must have, once the log has it."""
        most = self._copy.settings.max_in_flight
        refusal = self._refusal() or (res.Busy(most) if len(self.waiting) >= most else None)
        if refusal is not None:
            self._copy.out.append(fx.Reply(token, refusal))
            return
        self.waiting.append((self._writer.last_lsn + 1, token))
        self._append()

    def _refusal(self) -> res.Result | None:
        """Return why no record can be appended for a reader that asks now."""
        role, writer = self._copy.role, self._writer
        if role is not Role.ACTIVE and role is not Role.VERIFYING:
            return res.InactiveCopy(None)
        return writer.short or self._quorum.short() or writer.full()

    def _append(self) -> None:
        """Append our own record, unless one is on its way, or somebody else's will do."""
        if self._own <= self._copy.chain.state.lsn and self.waiting[-1][0] > self._writer.last_lsn:
            self._pushing.append_nothing()
            self._own = self._writer.last_lsn

    def progress(self) -> None:
        """Serve the readers whose lsn the log has: it has more of the epoch."""
        copy, waiting = self._copy, self.waiting
        if not self._quorum.held:  # another site may be about to serve
            return
        logged = copy.chain.state.lsn
        while waiting and waiting[0][0] <= logged:
            lsn, token = waiting.popleft()
            copy.out.append(fx.Reply(token, res.Success(lsn)))
        if waiting:
            self._go_on()

    def _go_on(self) -> None:
        if (refusal := self._refusal()) is None:
            self._append()
        elif self.waiting[-1][0] > self._writer.last_lsn:
            self._leave(refusal, self._writer.last_lsn)

    def abandon(self) -> None:
        """Refuse all readers: the epoch is over. They may ask the next active node."""
        self._leave(res.InactiveCopy(None), 0)

    def _leave(self, why: res.Result, given: int) -> None:
        """Refuse those readers that no record given so far will serve."""
        while self.waiting and self.waiting[-1][0] > given:
            self._copy.out.append(fx.Reply(self.waiting.pop()[1], why))
