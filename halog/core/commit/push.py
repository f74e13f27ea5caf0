"""This module sends replicas each record beside the log, so that log and replicas have it at the same time (decision
7).

Every record that an epoch writes between its first and its last is pushed: commits, votes, decisions, and what goes
before them. Law: records are pushed in the order of the log, to members of the wait set that follow closely. Any push
may be lost: the log brings the record, and while it does not, what need not wait for it is pushed again. Where commits
do not wait for the log, only commits are pushed. A successor appends again those it held; behind a vote that only it
held it would have to leave them out (E6).

There a push also says what is visible here by then, so that replicas show that too, and nothing earlier (W7). Where no
push follows, a tick says it once, unless the log has brought it by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from halog.core import effects as fx
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId, Member
from halog.core.log import records
from halog.core.state.copy_state import CopyState

AGAIN_MS: Final = 200
"""What need not wait for the log, and has waited for replicas and for the log for so long, is pushed again this often.
The push may have come before the replica had read that this epoch is open, or it was dropped."""
AGAIN_RECORDS: Final = 64
"""How many records are pushed again at a time, from the first that a replica lacks."""


class ReplicaPush:
    """A `ReplicaPush` sends the records of one epoch."""

    def __init__(self, copy: CopyState, epoch: EpochId, writer: Writer, answers_early: Callable[[], None]) -> None:
        """Take the parts of the epoch. `answers_early` is called before something is answered that the log may lack."""
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._told = 0
        """The last lsn that replicas were told is visible here."""
        self._again_at = copy.now
        writer.vote_sent = self._vote_sent
        writer.answers_early = answers_early

    def _vote_sent(self, out: list[fx.Effect]) -> None:
        if not self._copy.unlogged:
            self.sent(out)

    def append_nothing(self) -> None:
        """Append a record for barriers. It is pushed too: what is pushed behind it can be held only then
        (`Held.offer`)."""
        self._writer.append_nothing(self._copy.now, self._copy.out)
        self.sent(self._copy.out)

    def sent(self, out: list[fx.Effect]) -> None:
        """Push the record whose `Append` is the last effect to the members it waits for, if they follow closely."""
        self._copy.tag = self._writer.tag
        if to := self._near(self._writer.last_lsn):
            append = out[-1]
            assert isinstance(append, fx.Append)
            out.append(fx.Push(_names(to), self._epoch, append.data, self._shown()))

    def _near(self, lsn: int) -> list[Member]:
        """Return the members that are pushed to: those that follow closely behind `lsn`."""
        writer, copy = self._writer, self._copy
        if not writer.wait_set or not copy.settings.pushes:
            return []
        acks, alive = writer.acks, copy.alive
        near = lsn - copy.settings.ready_lag
        return [m for m in writer.wait_set if m in alive and m in acks and acks[m] >= near]

    def _shown(self) -> int:
        """Return what replicas are told is visible here."""
        if self._copy.unlogged:
            self._told = self._writer.visible
        return self._told

    def ticked(self) -> None:
        """Say what is visible here without a record, if replicas were not told of it and the log does not have it
        yet. Push again what waits."""
        copy, writer = self._copy, self._writer
        if copy.unlogged and writer.unlogged and writer.visible > self._told and (to := self._near(writer.last_lsn)):
            copy.out.append(fx.Push(_names(to), self._epoch, b"", self._shown()))
        head = writer.head()
        if head is not None and copy.now - max(head.since_ms, self._again_at) >= AGAIN_MS:
            self._push_again()

    def _push_again(self) -> None:
        """Push what need not wait for the log to those that lack it."""
        copy, writer = self._copy, self._writer
        self._again_at = copy.now
        if not (writer.early or writer.demands.early > writer.chain.state.lsn):
            return
        logged = writer.queue[0].lsn - 1  # not what is in flight: more of that makes nobody one that follows from afar
        lacking = [m for m in self._near(logged) if writer.acks[m] < writer.last_lsn]
        first = min((writer.acks[m] for m in lacking), default=writer.last_lsn) + 1
        items = (item for item in writer.queue if item.lsn >= first)
        for item in islice(items, AGAIN_RECORDS):
            if item.vote and copy.unlogged:
                return
            to = [m for m in lacking if writer.acks[m] < item.lsn]
            copy.out.append(fx.Push(_names(to), self._epoch, records.encode(item.record), self._shown()))


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(sorted(m.node for m in members))
