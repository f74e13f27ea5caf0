"""This module keeps the log's own time, by which the silence of a replica is measured.

A replica can acknowledge only what the log gives it. So what counts is not how long it has acknowledged nothing, but
how long the log was seen to go on meanwhile. The log gives a sign when it acknowledges an append, answers a question,
or has given some replica something new. With each sign its time goes on by what passed since the one before, but by at
most `ack_every_ms`: two signs say little of a long silence between them.

So an outage, however long, is one sign. A log that takes a second for each answer is slow, and not away: a replica that
acknowledges nothing for so many of its answers is silent. Where nothing is in flight, nothing is known of the log;
while some replica is overdue it is asked again and again. While an append is unanswered only its acknowledgement is a
sign: a log that can be read but takes nothing may lack what would make it go on.
"""

from __future__ import annotations

from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.commit.writer import Writer
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState

OVERDUE: Final = 2
"""A replica that has told nothing new for so many repetitions is overdue: from then on the log is asked."""


class AwakeClock:
    """Counts the time that the active copy has lived through in one epoch. While its process was stopped it could not
    hear anybody."""

    __slots__ = ("_copy", "_ticked_at", "ms")

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._ticked_at = copy.now
        self.ms = 0

    def ticked(self) -> None:
        """Go on by the time since the last tick; a pause longer than a tick counts as one tick."""
        now = self._copy.now
        self.ms += min(now - self._ticked_at, self._copy.settings.ack_every_ms)
        self._ticked_at = now


class LogPace:
    """A `LogPace` measures the log's time in one epoch."""

    def __init__(self, copy: CopyState, writer: Writer, awake: AwakeClock) -> None:
        self._copy = copy
        self._writer = writer
        self._awake = awake
        self.ms = 0
        """How far the log's time has gone."""
        self._word_at = copy.now
        self._asked = 0
        self._asked_at = copy.now
        """The round of the unanswered question (0: none), and when the last question was asked."""
        self._heard: dict[Member, tuple[int, int]] = {}
        """When each replica last told something new: in the log's time, and in this copy's."""

    def word(self) -> None:
        """Note a sign of the log."""
        now = self._copy.now
        self.ms += min(now - self._word_at, self._copy.settings.ack_every_ms)
        self._word_at = now

    def answered(self, e: ev.LogAnswered) -> None:
        """Note that the log has answered, unless that was an answer to an earlier question."""
        if e.round == self._asked:
            self._asked = 0
            if not self._owes:
                self.word()

    @property
    def _owes(self) -> bool:
        """Say whether an append is unanswered for too long."""
        now = self._copy.now
        return now - self._writer.unanswered_since(now) > self._copy.settings.ack_every_ms

    # --- replicas ---

    def heard(self, m: Member) -> None:
        """Note that the replica's copy has all that the log has, or more than before."""
        self._heard[m] = self.ms, self._awake.ms

    def follows(self, m: Member) -> None:
        """Note that the replica is up: from now on it may be heard."""
        if m not in self._heard:
            self.heard(m)

    def forget(self, m: Member) -> None:
        self._heard.pop(m, None)

    def is_silent(self, m: Member) -> bool:
        """Say whether the replica has told nothing new for so long, though the log could have given it something."""
        return self.ms - self._heard.get(m, (0, 0))[0] >= self._copy.settings.silent_ms

    def listen(self, members: set[Member]) -> None:
        """Ask the log if one of the members is overdue, unless the log gives enough signs by itself."""
        now, every = self._copy.now, self._copy.settings.ack_every_ms
        if self._asked or self._owes or now - max(self._asked_at, self._word_at) < every:
            return
        since = self._awake.ms - OVERDUE * every
        if any(self._heard.get(m, (0, 0))[1] < since for m in members):
            self._asked = self._copy.next_round()
            self._asked_at = now
            self._copy.out.append(fx.AskLog(self._asked, now, serves=True))
