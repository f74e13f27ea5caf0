"""Mutants of sites that go on by themselves (Q1, M5). The unit tests of both sides, played as they are, notice those of
the counting, and so does the simulation of two sites where it shows from without; it notices those of who asks, claims
and gives up, too."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from halog.core import events as ev
from halog.core.active.hand_over import HandOver
from halog.core.active.read_barriers import ReadBarriers
from halog.core.ids import EpochId, Member
from halog.core.log.chain import ChainState
from halog.core.sites import site_quorum, takeover_candidate as site_candidate
from halog.core.sites.site_quorum import NEVER, SiteQuorum
from halog.core.sites.takeover_candidate import TakeoverCandidate, Vote
from halog.ports import Coordinator
from halog.runtime.sites import voting as site_votes
from halog.runtime.sites.switchover_recovery import SwitchoverRecovery
from halog.runtime.sites.takeover import Takeovers
from halog.runtime.sites.voting import SiteVote, SiteVoting, held, write
from tests.mutants.registry import in_both, mutant, patch, simulated
from tests.mutants.sync_sites import what_the_own_log_has_happened
from tests.sim.abroad import takeover
from tests.unit.core.sites import test_site_quorum, test_takeover_candidate as test_site_candidate
from tests.unit.sites import test_claimed_votes, test_claiming

SIMULATED = takeover.SEEDS[:2_000]
UNITS = range(1)


def tested(seed: int) -> str:
    """By the unit tests of whoever counts votes, and of whoever claims them."""
    for module in (test_site_candidate, test_site_quorum, test_claiming, test_claimed_votes):
        for name, test in vars(module).items():
            if name.startswith("test_") and isinstance(test, FunctionType):
                try:
                    test()
                except Exception as e:
                    return f"{name}: {type(e).__name__}"
    return ""


both = functools.partial(in_both, models=UNITS, play=tested, seeds=SIMULATED)
"""The unit tests must notice, and the simulation."""


# --- who serves ---


@both("Q1")
def a_vote_counts_from_its_answer() -> None:
    """However long that was under way: whoever claims it has waited since it was renewed."""

    def answered(self: SiteQuorum, e: ev.VoteAnswered) -> bool:
        round_, _ = self._asked.get(e.site, (0, 0))
        if e.round == round_:
            self._asked[e.site] = round_, self._copy.now
        return bool(real(self, e))

    real = patch(SiteQuorum, "answered", answered)


@both("Q1")
def commits_do_not_wait_for_votes() -> None:
    """They are refused while the votes are missing; what is in flight then is answered."""
    nobody: frozenset[Member] = frozenset()
    patch(SiteQuorum, "waited", lambda self: nobody)


@both("Q1")
def votes_that_end_are_counted_when_somebody_answers() -> None:
    """And not before the next thing that is done."""

    def count(self: SiteQuorum) -> None:
        real(self)
        self.ends = NEVER

    real = patch(SiteQuorum, "count", count)


@both("Q1")
def a_new_epoch_begins_with_the_votes_of_the_one_before() -> None:
    """Its site had them a moment ago."""

    def begin(self: SiteQuorum) -> None:
        self._until = dict.fromkeys(self._votes, self._copy.now + self._lease_ms)
        real(self)

    real = patch(SiteQuorum, "begin", begin)


@mutant("Q1", UNITS, tested)
def half_of_the_votes_are_enough() -> None:
    """Then two sites may have them."""

    def is_quorum(votes: Mapping[str, int], sites: Collection[str], overruled: Collection[str] = ()) -> bool:
        counted = {site: n for site, n in votes.items() if site not in overruled}
        return 2 * sum(n for site, n in counted.items() if site in sites) >= sum(counted.values())

    patch(site_quorum, "is_quorum", is_quorum)
    patch(site_candidate, "is_quorum", is_quorum)


@mutant("R5", UNITS, tested)
def a_barrier_waits_for_no_votes() -> None:
    """Another site may have answered somebody since."""

    def progress(self: ReadBarriers) -> None:
        quorum = self._quorum
        before, quorum._held = quorum._held, True
        try:
            real(self)
        finally:
            quorum._held = before

    real = patch(ReadBarriers, "progress", progress)


@both("R4")
def whoever_asks_is_told_without_the_votes() -> None:
    """It is in the log here."""

    what_the_own_log_has_happened()


@mutant("F3", UNITS, tested)
def one_that_was_taken_over_from_hands_over() -> None:
    """Its last record is one that the other site has not: the histories part."""

    def leave(self: HandOver) -> None:
        quorum = self._sites.quorum
        before, quorum._binding = quorum._binding, False
        try:
            real(self)
        finally:
            quorum._binding = before

    real = patch(HandOver, "leave", leave)


@mutant("Q1", SIMULATED, simulated)
def one_that_was_taken_over_from_goes_on_waiting() -> None:
    """Both sites serve, one without votes, until an operator comes."""
    patch(Takeovers, "_give_up", lambda self, copy: None)


@mutant("M5", SIMULATED, simulated)
def what_was_given_and_not_taken_is_nobodys() -> None:
    """The command died, and the site that was given it has not the votes to take it over."""
    patch(SwitchoverRecovery, "turn", lambda self: self._host.pause(10.0))


@mutant("Q1", SIMULATED, simulated)
def a_vote_is_whoever_serves() -> None:
    """Whatever its owner says."""
    patch(SiteVoting, "_may_take", lambda self, key, copy, now: copy.core.leading is not None)


@mutant("Q1", SIMULATED, simulated)
def votes_that_a_switch_left_behind_stay_where_they_are() -> None:
    """The line was cut behind it: the site with most of them waits for its own."""
    patch(site_votes, "is_behind", lambda history, epoch: False)


@both("Q1")
def a_vote_that_was_claimed_has_no_past() -> None:
    """Whoever lost it right before the line was cut does not get it back, though nobody has counted it since."""
    patch(SiteVote, "under", property(lambda self: self.epoch))


@mutant("Q1", UNITS, tested)
def what_was_merged_into_a_history_is_not_in_it() -> None:
    """The site whose history both go on with waits for ever for a vote of the other one's branch."""

    def is_behind(history: ChainState, epoch: EpochId | None) -> bool:
        return any(epoch == opened for opened, _ in history.lineage)

    patch(site_votes, "is_behind", is_behind)


@mutant("Q1", UNITS, tested)
def a_vote_that_nobody_renewed_since_it_was_claimed_was_counted_by_nobody() -> None:
    """But for this site: a third one has claimed it from one that answered by it."""

    def may_take(self: SiteVoting, key: tuple[str, str], copy: Any, now: SiteVote) -> bool:
        taken: bool = real(self, key, copy, now)
        seen_ms = (time.monotonic() - self._others[key][1]) * 1000
        rests = seen_ms >= self._after_ms[copy.core.state.table.policy]
        return taken or (rests and now.epoch is None and key[0] == self._host.site)

    real = patch(SiteVoting, "_may_take", may_take)


@mutant("Q1", UNITS, tested)
def whoever_is_made_serve_has_the_votes_of_who_served() -> None:
    """Also where that one has taken over from it, and has answered what is not here."""

    def may_take(self: SiteVoting, key: tuple[str, str], copy: Any, now: SiteVote) -> bool:
        taken: bool = real(self, key, copy, now)
        return taken or (copy.core.leading is not None and self._is_given(copy, now.site))

    real = patch(SiteVoting, "_may_take", may_take)


@mutant("Q1", SIMULATED, simulated)
def whoever_is_made_serve_goes_on_without_what_the_other_site_answered() -> None:
    """It did not know yet that it had been taken over from."""
    whoever_is_made_serve_has_the_votes_of_who_served()
    one_that_is_made_serve_again_waits_for_what_the_other_site_answered()


@mutant("Q1", SIMULATED, simulated)
def one_that_is_made_serve_again_waits_for_what_the_other_site_answered() -> None:
    """Nobody brings it: each says that the other one is to serve."""
    patch(Takeovers, "_has_served", lambda self, desk, there, copy: False)


# --- who takes over ---


def waits(part: int) -> None:
    """So much less than it should."""

    def init(self: TakeoverCandidate, site: str, votes: Mapping[str, int], wait_ms: int, *, binding: bool) -> None:
        real(self, site, votes, wait_ms // part, binding=binding)

    real = patch(TakeoverCandidate, "__init__", init)


@mutant("Q1", UNITS, tested)
def a_vote_is_claimed_after_one_lease() -> None:
    """A clock that is wrong, and it counts still."""
    waits(2)


@both("Q1")
def a_vote_is_claimed_after_half_a_lease() -> None:
    waits(4)


@mutant("Q1", UNITS, tested)
def a_vote_is_claimed_whatever_became_of_it() -> None:
    """It was renewed a moment ago."""

    def take(self: Takeovers, there: Coordinator, copy: Any, seen: Vote) -> bool:
        now, version = held(there, copy.name)
        write(there, copy.name, self._host.site, self._host.me.node, now, version)
        return True

    patch(Takeovers, "_take", take)


@mutant("F3", UNITS, tested)
def a_vote_of_any_site_is_claimed() -> None:
    """Of one whose history this site never had."""

    def claims(self: TakeoverCandidate, serves: str, now: int, *, followed: bool) -> dict[str, Vote]:
        before = self._seen
        self._seen = {voter: (vote._replace(site=serves), at) for voter, (vote, at) in before.items()}
        try:
            found: dict[str, Vote] = real(self, serves, now, followed=followed)
        finally:
            self._seen = before
        return found

    real = patch(TakeoverCandidate, "claims", claims)


@mutant("Q1", UNITS, tested)
def a_site_takes_over_what_it_never_followed() -> None:
    """It begins another history."""

    def claims(self: TakeoverCandidate, serves: str, now: int, *, followed: bool) -> dict[str, Vote]:
        found: dict[str, Vote] = real(self, serves, now, followed=True)
        return found

    real = patch(TakeoverCandidate, "claims", claims)


@mutant("Q1", UNITS, tested)
def a_vote_that_was_renewed_is_as_old_as_before() -> None:
    """Since its owner is the same."""

    def saw(self: TakeoverCandidate, voter: str, vote: Vote | None, now: int) -> None:
        before = self._seen.get(voter)
        real(self, voter, vote, now)
        if vote is not None and before is not None and before[0].site == vote.site:
            self._seen[voter] = vote, before[1]

    real = patch(TakeoverCandidate, "saw", saw)


@mutant("Q1", SIMULATED, simulated)
def a_site_with_the_votes_does_not_take_over() -> None:
    """Nobody serves."""
    patch(Takeovers, "_take_over", lambda self, due: None)
