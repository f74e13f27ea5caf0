"""Mutants of outages (W1, W4, R4): who claims while the log is away, how long it is waited for, who hears that it is
back, and who is taken for silent meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.commit.log_clock import LogPace
from halog.core.election.campaign import Campaign
from halog.core.election.log_doubt import LogDoubt
from halog.core.partition import Partition
from tests.mutants.registry import mutant, patch
from tests.sim import outages, silences

if TYPE_CHECKING:
    from halog.core.ids import Member

SEEDS = outages.SEEDS[:2_000]
TWICE = outages.TWICE[:2_000]
SILENCES = silences.SEEDS[:2_000]


@mutant("W1", SEEDS)
def epochs_are_claimed_while_the_log_is_away() -> None:
    """Who gave up for want of the log claims again at once."""
    patch(LogDoubt, "stands", property(lambda self: False))
    patch(LogDoubt, "take", lambda self: True)


@mutant("W1", SEEDS)
def the_epoch_that_another_gave_up_is_claimed_at_once() -> None:
    """Whoever has not met the silence of the log himself thinks nothing of it."""
    patch(LogDoubt, "watch", lambda self, table: None)


@mutant("W1", TWICE)
def an_answer_of_the_log_is_good_for_every_attempt_that_follows() -> None:
    """What comes to nothing is tried again by it, though the log may have gone again."""
    patch(LogDoubt, "take", lambda self: True)


@mutant("W1", TWICE)
def an_epoch_that_only_the_log_shows_is_never_given_up_unseen() -> None:
    """With the coordinator away nobody sees that it is; who stands by the node list of before claims at once."""
    patch(LogDoubt, "_is_ahead", False)


@mutant("W1", SEEDS)
def an_epoch_that_does_not_open_is_waited_for_as_long_each_time() -> None:
    """A log that can be read and takes nothing is given epoch after epoch."""
    patch(LogDoubt, "not_opened", lambda self: None)


@mutant("W3", SEEDS)
def what_was_sent_for_an_epoch_that_did_not_open_counts_for_the_next() -> None:
    """Both are acknowledged by one session, one behind the other, and only their tags tell them apart."""

    def appended(self: Partition, e: ev.Appended) -> None:
        if e.tag >= self.campaign.opening.first_tag:
            real(self, e)
            return
        for i in range(e.count):
            head = None if self.leading is None else self.leading.writer.head()
            tag = e.tag + i if head is None else head.tag
            real(self, ev.Appended(tag, e.offset + i))

    real = patch(Partition, "_appended", appended)


@mutant("W1", SEEDS)
def the_logs_answer_is_not_heard() -> None:
    """Nobody claims at once when it is back."""

    def answered(self: Campaign, e: ev.LogAnswered) -> None:
        self.not_before = self._copy.now + 1_000
        real(self, e)

    real = patch(Campaign, "log_answered", answered)


@mutant("W4", SEEDS)
def the_log_is_waited_for_without_end() -> None:
    """An append that is not answered ends no epoch."""
    from halog.core.commit.writer import Writer

    patch(Writer, "overdue", lambda self, now: False)


@mutant("R4", SEEDS)
def a_replica_is_silent_while_the_log_is() -> None:
    """It acknowledges nothing new, whatever it was given."""

    def is_silent(self: LogPace, m: Member) -> bool:
        return self._awake.ms - self._heard.get(m, (0, 0))[1] >= self._copy.settings.silent_ms

    patch(LogPace, "is_silent", is_silent)


@mutant("R4", SEEDS)
def the_log_is_not_asked_whether_it_gives_anything() -> None:
    """Where nothing is in flight it is taken to be there."""

    def listen(self: LogPace, members: set[Member]) -> None:
        if not self._writer.queue:
            self.word()

    patch(LogPace, "listen", listen)


@mutant("R4", SEEDS)
def a_late_answer_of_the_log_counts_for_all_the_time_before() -> None:
    """It is there now, so it was."""

    def word(self: LogPace) -> None:
        self.ms = self.ms + self._copy.now - self._word_at
        self._word_at = self._copy.now

    patch(LogPace, "word", word)


@mutant("R4", SILENCES)
def a_slow_log_is_taken_for_one_that_is_away() -> None:
    """An answer that takes longer than a repetition says nothing."""

    def answered(self: LogPace, e: ev.LogAnswered) -> None:
        if self._copy.now - self._asked_at > self._copy.settings.ack_every_ms:
            self._asked = 0
        real(self, e)

    real = patch(LogPace, "answered", answered)


@mutant("R4", SILENCES)
def a_replica_that_says_nothing_is_waited_for_without_end() -> None:
    """As long as its node lives."""
    patch(LogPace, "is_silent", lambda self, m: False)
