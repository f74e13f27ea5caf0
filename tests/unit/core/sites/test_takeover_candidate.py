"""A site that would take over, as it sees the votes: the law of `halog.core.sites.takeover_candidate`, rule by rule
(Q1, M5)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from halog.core.sites.takeover_candidate import LATER, TakeoverCandidate, Vote

pytestmark = pytest.mark.feature("Q1", "M5")

WAIT_MS = 10_000
TWO = {"west": 1, "east": 2}
THREE = {"west": 1, "east": 1, "north": 1}
"""West serves; this is east, or north."""


def east(votes: Mapping[str, int] = TWO, *, binding: bool = True, site: str = "east") -> TakeoverCandidate:
    return TakeoverCandidate(site, votes, WAIT_MS, binding=binding)


def seen(
    candidate: TakeoverCandidate, now: int = 0, *, site: str = "west", beat: int = 1, by: tuple[str, ...] = ()
) -> None:
    """All of these sites say that their votes are that site's."""
    for voter in by or ("west", "east"):
        candidate.saw(voter, Vote(site, beat), now)


def claimed(candidate: TakeoverCandidate, now: int, serves: str = "west") -> list[str]:
    return list(candidate.claims(serves, now, followed=True))


def test_votes_that_rest_for_the_whole_wait_are_claimed() -> None:
    candidate = east()
    seen(candidate)
    assert claimed(candidate, WAIT_MS - 1) == []
    assert candidate.claims("west", WAIT_MS, followed=True) == {"east": Vote("west", 1), "west": Vote("west", 1)}


def test_a_site_that_followed_no_epoch_of_the_history_claims_nothing() -> None:
    candidate = east()
    seen(candidate)
    assert candidate.claims("west", WAIT_MS, followed=False) == {}
    assert claimed(candidate, WAIT_MS) == ["east", "west"]


def test_what_is_claimed_is_what_was_seen() -> None:
    """Whoever claims compares with it: a vote that is renewed at the last moment is not taken."""
    candidate = east()
    seen(candidate, beat=7)
    assert set(candidate.claims("west", WAIT_MS, followed=True).values()) == {Vote("west", 7)}


def test_one_that_is_renewed_is_waited_for_anew() -> None:
    candidate = east()
    seen(candidate)
    seen(candidate, 9_000, beat=2)
    assert claimed(candidate, WAIT_MS) == []
    assert claimed(candidate, 9_000 + WAIT_MS - 1) == []
    assert claimed(candidate, 9_000 + WAIT_MS) == ["east", "west"]


def test_to_see_it_again_unchanged_begins_nothing_anew() -> None:
    candidate = east()
    for now in range(0, WAIT_MS + 1, 500):
        seen(candidate, now)
    assert claimed(candidate, WAIT_MS) == ["east", "west"]


def test_the_site_with_the_votes_needs_no_other_one() -> None:
    candidate = east()
    seen(candidate, by=("east",))
    assert claimed(candidate, WAIT_MS) == ["east"]


def test_a_site_without_them_claims_nothing_alone() -> None:
    candidate = east({"west": 1, "east": 1})
    seen(candidate, by=("east",))
    assert claimed(candidate, 10 * WAIT_MS) == []
    assert not candidate.is_enough(["east"])


def test_half_of_them_are_not_enough() -> None:
    assert not east({"west": 2, "east": 2}).is_enough(["east"])
    assert east({"west": 2, "east": 3}).is_enough(["east"])


def test_a_vote_of_a_site_that_does_not_answer_is_not_claimed() -> None:
    candidate = east({"west": 2, "east": 1})
    seen(candidate)
    candidate.missed("west")
    assert claimed(candidate, WAIT_MS) == []


def test_it_still_counts_from_when_it_was_seen_once_the_site_answers_again() -> None:
    candidate = east({"west": 2, "east": 1})
    seen(candidate)
    candidate.missed("west")
    candidate.saw("west", Vote("west", 1), WAIT_MS)
    assert claimed(candidate, WAIT_MS) == ["east", "west"]


def test_where_nobody_ever_served_nothing_is_claimed() -> None:
    candidate = east()
    candidate.saw("east", None, 0)
    candidate.saw("west", None, 0)
    assert claimed(candidate, 10 * WAIT_MS) == []


def test_one_that_has_gone_is_forgotten() -> None:
    candidate = east()
    seen(candidate)
    candidate.saw("east", None, WAIT_MS)
    assert claimed(candidate, WAIT_MS) == []  # west's alone is too few
    candidate.saw("east", Vote("west", 1), WAIT_MS)
    assert claimed(candidate, WAIT_MS) == []
    assert claimed(candidate, 2 * WAIT_MS) == ["east", "west"]


def test_votes_of_a_third_site_are_left_to_it() -> None:
    """This site mirrors west, and never had north's history."""
    candidate = east(THREE)
    seen(candidate, site="north", by=("east", "north"))
    seen(candidate, by=("west",))
    assert claimed(candidate, 10 * WAIT_MS) == []


def test_its_own_that_were_claimed_before_count_with_those_it_claims_now() -> None:
    """It had claimed one, and died before it had the others."""
    candidate = east(THREE)
    seen(candidate, site="east", by=("east",))
    seen(candidate, by=("west",))
    assert claimed(candidate, WAIT_MS) == ["east", "west"]


def test_of_several_sites_one_tries_first() -> None:
    """By their votes, then by name; the site that served does not count."""
    one, other = east(THREE), east(THREE, site="north")
    for candidate in (one, other):
        seen(candidate, by=("east", "north"))
    assert claimed(one, WAIT_MS) == ["east", "north"]
    later = WAIT_MS * (LATER + 1) // LATER
    assert claimed(other, later - 1) == []
    assert claimed(other, later) == ["east", "north"]


def test_a_site_with_more_votes_is_before_those_with_fewer() -> None:
    votes = {"west": 1, "east": 1, "north": 2}
    one, other = east(votes, site="north"), east(votes)
    for candidate in (one, other):
        seen(candidate, by=("east", "north"))
    assert claimed(one, WAIT_MS) == ["east", "north"]
    assert claimed(other, WAIT_MS) == []


def test_all_ask_in_the_same_order() -> None:
    """So of two that try at once one is refused before it has any."""
    candidate = east(THREE)
    for voter in ("west", "north", "east"):
        candidate.saw(voter, Vote("west", 1), 0)
    assert claimed(candidate, WAIT_MS) == ["east", "north", "west"]


def test_where_votes_do_not_bind_its_own_is_enough() -> None:
    candidate = east({"west": 3, "east": 0}, binding=False)
    seen(candidate)
    assert claimed(candidate, WAIT_MS - 1) == []
    assert claimed(candidate, WAIT_MS) == ["east"]
    assert candidate.is_enough([])


def test_it_is_known_how_long_a_vote_rests() -> None:
    candidate = east()
    assert not candidate.rests("east", WAIT_MS, 0)
    seen(candidate, 100)
    assert candidate.rests("east", 2_600, 2_500)
    assert not candidate.rests("east", 2_599, 2_500)


def test_a_vote_that_never_was_is_quiet() -> None:
    """West served, and its questions never came through to east: others must be asked, or east never hears of it."""
    candidate = east({"west": 1, "east": 0})
    candidate.saw("east", None, 0)
    assert candidate.is_quiet("east", 0, 2_500)
    seen(candidate, by=("east",))
    assert not candidate.is_quiet("east", 2_499, 2_500)
    assert candidate.is_quiet("east", 2_500, 2_500)


def test_a_site_that_was_never_asked_for_its_own_takes_over_with_those_of_others() -> None:
    candidate = east({"west": 1, "east": 0})
    candidate.saw("east", None, 0)
    seen(candidate, by=("west",))
    assert claimed(candidate, WAIT_MS) == ["west"]


# --- against whoever serves ---

LEASE_MS = WAIT_MS // 2


@given(st.lists(st.tuples(st.integers(0, LEASE_MS // 2), st.integers(0, 2 * LEASE_MS), st.booleans()), max_size=8))
def test_no_vote_is_claimed_while_whoever_serves_may_count_on_it(renewals: list[tuple[int, int, bool]]) -> None:
    """It asks at any pace, and each question takes any time to arrive, or never does. Counted is from the question."""
    candidate, now, asked, arrives = east(), 0, 0, []
    seen(candidate)
    for pause, takes, is_lost in renewals:
        asked += pause
        if not is_lost:
            arrives.append((asked + takes, asked))
    beat, counts_until = 1, LEASE_MS
    for at, question in sorted(arrives):
        while now < at:
            claims = candidate.claims("west", now, followed=True)
            assert not claims or now >= counts_until
            if claims:
                return
            now += 250
        beat, counts_until = beat + 1, max(counts_until, question + LEASE_MS)
        seen(candidate, max(now, at), beat=beat)
