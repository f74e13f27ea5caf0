"""What the active sends its replicas beside the log, so that log and replicas have it at the same time (decision 7).

Pushed is each record that an epoch writes between its first and its last: commits, votes, decisions, and what goes
before them. Law: in the order of the log, to members of the wait set that follow closely; any push may be lost, since
the log brings the record. Where commits do not wait for the log, commits alone are pushed: a successor appends again
those it held, and behind a vote that only it held it would have to leave them out (E6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev

if TYPE_CHECKING:
    from halog.core.leading import Leading


class Pushing:
    """Of one epoch."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        leading.writer.vote_sent = self._vote_sent

    def _vote_sent(self, out: list[ev.Effect]) -> None:
        if not self._leading.p.unlogged:
            self.sent(out)

    def sent(self, out: list[ev.Effect]) -> None:
        """The record whose `Append` is the last effect goes to those it waits for, too, if they follow closely."""
        writer, p = self._leading.writer, self._leading.p
        if not writer.wait_set or not p.settings.pushes:
            return
        acks, alive = writer.acks, p.alive
        near = writer.last_lsn - p.settings.ready_lag
        to = [m.node for m in writer.wait_set if m in alive and m in acks and acks[m] >= near]
        if to:
            append = out[-1]
            assert isinstance(append, ev.Append)
            out.append(ev.Push(tuple(sorted(to)), self._leading.epoch, append.data))
