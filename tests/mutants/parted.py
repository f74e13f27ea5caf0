"""Mutants of challenges (R4): whether they are asked before anybody claims, and what an answer is worth."""

from __future__ import annotations

from halog.core.election.campaign import Campaign
from halog.core.election.challenges import Challenges
from halog.core.ids import Member
from halog.core.partition import Partition
from halog.core.table.group import needed
from tests.mutants.registry import mutant, patch
from tests.sim import parted
from tests.sim.world import is_grouped

SEEDS = parted.SEEDS[:2_000]
WITH_QUORUM = range(next(n for n in parted.SEEDS if is_grouped(n)), parted.SEEDS.stop, 11)[:2_000]


@mutant("R4", SEEDS)
def who_answers_a_challenge_is_replaced_all_the_same() -> None:
    """Silence is enough."""

    def alive_changed(self: Partition, e: ev.AliveChanged) -> None:
        import msgspec

        real(self, msgspec.structs.replace(e, answering=frozenset()))

    from halog.core import events as ev
    from tests.mutants.registry import handlers

    real = patch(Partition, "_alive_changed", alive_changed)
    handlers(ev.AliveChanged, "_alive_changed")


@mutant("R4", SEEDS)
def what_was_answered_once_counts_for_ever() -> None:
    """A challenge is answered from memory: who died meanwhile is not replaced."""
    patch(Challenges, "lives", lambda self, now, since: self._proved_at is not None)


@mutant("R4", SEEDS)
def an_answer_counts_from_when_it_comes() -> None:
    """Not from when it was asked for: one that was under way for long proves the less."""

    def answered(self: Challenges, number: int) -> None:
        real(self, number)
        if self._proved_at is not None:
            self._proved_at += 10 * self._patience_ms

    real = patch(Challenges, "answered", answered)


@mutant("R4", SEEDS)
def nobody_is_challenged_before_its_silence_counts() -> None:
    """And then only once: the line is cut for longer than one answer lasts."""

    def due(self: Challenges, now: int, silent_ms: int) -> int | None:
        return real(self, now, silent_ms) if not self._number else None

    real = patch(Challenges, "due", due)


@mutant("R4", SEEDS)
def a_line_that_refuses_is_a_death_whatever_is_answered() -> None:
    """Each side claims from the other for as long as it refuses."""

    def lives(self: Challenges, now: int, silent_since: int) -> bool:
        return not self.is_refused and real(self, now, silent_since)

    real = patch(Challenges, "lives", lives)


@mutant("R4", SEEDS)
def each_refusal_is_news() -> None:
    """What was answered before the last one counts for nothing, and there is one with each keep-alive."""

    def refused(self: Challenges, now: int) -> None:
        self._refused_at = now

    patch(Challenges, "refused", refused)


@mutant("R4", WITH_QUORUM)
def with_a_quorum_an_answer_keeps_nobody_from_an_election() -> None:
    """Each side has one by the third node, and takes the role from the other."""

    def living(self: Campaign) -> frozenset[Member]:
        return self._copy.answering if needed(self._copy.table, self._copy.me.node) <= 1 else frozenset()

    patch(Campaign, "_living", living)


@mutant("R4", WITH_QUORUM)
def who_answers_a_challenge_stays_without_its_quorum() -> None:
    """And those who have one wait for it."""
    patch(Campaign, "_living", lambda self: self._copy.answering)
