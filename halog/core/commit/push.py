"""What the active sends its replicas beside the log, so that log and replicas have it at the same time (decision 7).

Pushed is each record that an epoch writes between its first and its last: commits, votes, decisions, and what goes
before them. Law: in the order of the log, to members of the wait set that follow closely; any push may be lost, since
the log brings the record. Where commits do not wait for the log, commits alone are pushed: a successor appends again
those it held, and behind a vote that only it held it would have to leave them out (E6).

There a push also says what is visible here by then, so that replicas show that, too, and nothing before it is (W7).
Where no push follows a tick says it, once, unless the log has brought it by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev

if TYPE_CHECKING:
    from halog.core.active.leader import Leading


class Pushing:
    """Of one epoch."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._told = 0
        """What replicas were last told that is visible here."""
        leading.writer.vote_sent = self._vote_sent
        leading.writer.answers_early = leading.p.following.stowing.withdraw

    def _vote_sent(self, out: list[ev.Effect]) -> None:
        if not self._leading.p.unlogged:
            self.sent(out)

    def sent(self, out: list[ev.Effect]) -> None:
        """The record whose `Append` is the last effect goes to those it waits for, too, if they follow closely."""
        if to := self._near():
            append = out[-1]
            assert isinstance(append, ev.Append)
            out.append(ev.Push(to, self._leading.epoch, append.data, self._shown()))

    def _near(self) -> tuple[str, ...]:
        """Who is pushed to."""
        writer, p = self._leading.writer, self._leading.p
        if not writer.wait_set or not p.settings.pushes:
            return ()
        acks, alive = writer.acks, p.alive
        near = writer.last_lsn - p.settings.ready_lag
        return tuple(sorted(m.node for m in writer.wait_set if m in alive and m in acks and acks[m] >= near))

    def _shown(self) -> int:
        """What is told to be visible here."""
        if self._leading.p.unlogged:
            self._told = self._leading.visible
        return self._told

    def ticked(self) -> None:
        """What replicas were not told of, and the log does not have yet, is told without a record."""
        leading = self._leading
        p = leading.p
        if p.unlogged and leading.writer.unlogged and leading.visible > self._told and (to := self._near()):
            p.out.append(ev.Push(to, leading.epoch, b"", self._shown()))
