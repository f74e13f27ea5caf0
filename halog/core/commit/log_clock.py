"""The log's own time: silence of a replica is measured in that.

A replica can acknowledge only what the log gives it. So what counts is not how long it has acknowledged nothing, but
how long the log was seen to go on meanwhile. The log says a word when it acknowledges an append, answers a question,
or has given some replica something new. Its time goes on with each word by what passed since the one before, but no
further than `ack_every_ms`: that it spoke then and speaks now says little of a long silence in between. So an outage,
however long, is one word; and a log that takes a second for each answer is slow, and not away: who acknowledges
nothing for so many of its answers is silent. Where nothing is in flight nobody knows: while some replica is overdue
the log is asked, again and again. While an append goes unanswered its acknowledgement is the word that is waited for:
a log that can be read, and takes nothing, may lack what would make it go on.
"""

from __future__ import annotations

from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.commit.writer import Writer
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState

OVERDUE: Final = 2
"""A replica that has told nothing new for so many repetitions: from then on the log is asked."""


class AwakeClock:
    """Counts the time that the active copy has lived through in one epoch: while its process was stopped it could hear
    nobody."""

    __slots__ = ("_copy", "_ticked_at", "ms")

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._ticked_at = copy.now
        self.ms = 0

    def ticked(self) -> None:
        """Go on by the time since the last tick; a longer pause than a tick's counts as one."""
        now = self._copy.now
        self.ms += min(now - self._ticked_at, self._copy.settings.ack_every_ms)
        self._ticked_at = now


class LogPace:
    """Of one epoch."""

    def __init__(self, copy: CopyState, writer: Writer, awake: AwakeClock) -> None:
        self._copy = copy
        self._writer = writer
        self._awake = awake
        self.ms = 0
        """How far the log's time has gone."""
        self._word_at = copy.now
        self._asked = 0
        self._asked_at = copy.now
        """The round of the question that is not answered, 0: none is; and when the last one was asked."""
        self._heard: dict[Member, tuple[int, int]] = {}
        """Of each replica, when it told something new: in the log's time, and in this copy's."""

    def word(self) -> None:
        """The log has said something."""
        now = self._copy.now
        self.ms += min(now - self._word_at, self._copy.settings.ack_every_ms)
        self._word_at = now

    def answered(self, e: ev.LogAnswered) -> None:
        """It has, unless that was an answer to an earlier question."""
        if e.round == self._asked:
            self._asked = 0
            if not self._owes:
                self.word()

    @property
    def _owes(self) -> bool:
        """Does an append go unanswered?"""
        now = self._copy.now
        return now - self._writer.unanswered_since(now) > self._copy.settings.ack_every_ms

    # --- replicas ---

    def heard(self, m: Member) -> None:
        """Its copy has all that the log has, or more than before."""
        self._heard[m] = self.ms, self._awake.ms

    def follows(self, m: Member) -> None:
        """It is up: from now on it may be heard."""
        if m not in self._heard:
            self.heard(m)

    def forget(self, m: Member) -> None:
        self._heard.pop(m, None)

    def is_silent(self, m: Member) -> bool:
        """Has it told nothing new for so long, though the log could have given it something?"""
        return self.ms - self._heard.get(m, (0, 0))[0] >= self._copy.settings.silent_ms

    def listen(self, members: set[Member]) -> None:
        """Is one of them overdue? Then ask the log, unless it says enough by itself."""
        now, every = self._copy.now, self._copy.settings.ack_every_ms
        if self._asked or self._owes or now - max(self._asked_at, self._word_at) < every:
            return
        since = self._awake.ms - OVERDUE * every
        if any(self._heard.get(m, (0, 0))[1] < since for m in members):
            self._asked = self._copy.next_round()
            self._asked_at = now
            self._copy.out.append(fx.AskLog(self._asked, now, serves=True))
