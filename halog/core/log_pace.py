"""How much time the log has had to give something: silence of a replica is measured in that.

A replica can acknowledge only what the log gives it. While an append goes unanswered the log stands still, and time
does not count; where nothing is in flight nobody knows, so before a replica is taken for silent the log is asked, and
time stands still until it answers. If that takes long the log was away, and everybody has all the time again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev

if TYPE_CHECKING:
    from halog.core.leading import Leading


class LogPace:
    """Of one epoch."""

    def __init__(self, leading: Leading) -> None:
        self._leading, self._p = leading, leading.p
        self.ms = 0
        """Time in which the log was not known to stand still."""
        self._asked, self._asked_at = 0, 0
        """The round of the question that is not answered; 0: none is."""

    @property
    def stands_still(self) -> bool:
        """Does it owe an answer?"""
        oldest = self._leading.writer.unanswered_since(self._p.now)
        return self._asked != 0 or self._p.now - oldest > self._p.settings.ack_every_ms

    def passed(self, ms: int) -> None:
        """So much time has passed for this copy."""
        if not self.stands_still:
            self.ms += ms

    def ask(self) -> None:
        """Somebody seems to be silent: does the log give anything?"""
        if not self._asked:
            self._asked, self._asked_at = self._p.next_round(), self._p.now
            self._p.out.append(ev.AskLog(self._asked, self._p.now))

    def answered(self, e: ev.LogAnswered) -> None:
        """It does; and did, if that was said at once."""
        if e.round == self._asked:
            self._asked = 0
            if self._p.now - self._asked_at <= self._p.settings.ack_every_ms:
                self._leading.are_silent()
            else:
                self._leading.begin_to_listen()
