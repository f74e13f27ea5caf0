"""What was answered by a vote of another site is in the histories that go on from the epoch in which it was renewed
last, by whoever had it then. So one that was claimed and never renewed is of the epoch before (Q1, M5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halog.core.ids import NO_HASH, EpochId
from halog.core.log.record_types import Branch, Joined
from halog.runtime.sites.voting import SiteVote
from tests.unit.sites.test_site_votes import MINE, OLD, Rig

pytestmark = pytest.mark.feature("Q1", "M5")

WESTS = EpochId(6, "west", 9)
"""This history, east's, does not go on from it."""


@contextmanager
def rig() -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patched:
        made = Rig(patched)
        try:
            yield made
        finally:
            for coordinator in made.at.values():
                coordinator.close()


def test_one_that_was_claimed_right_before_the_line_was_cut_comes_back() -> None:
    """West saw this site not renew it, claimed it, and reaches it no more: it has not counted it."""
    with rig() as one:
        one.holds("east", "east", MINE)
        one.holds("east", "west", None)
        one.cut = True
        assert one.ask() == "west"
        assert one.ask(after_s=9.9) == "west"
        assert one.ask(after_s=0.2) == "east"
        assert one.vote() == SiteVote("east", "E", 2, MINE)


def test_one_that_was_renewed_since_it_was_claimed_does_not() -> None:
    """West may have answered by it."""
    with rig() as one:
        one.holds("east", "east", MINE)
        one.holds("east", "west", None)
        one.holds("east", "west", WESTS)
        one.cut = True
        assert one.ask() == one.ask(after_s=100.0) == "west"


def test_one_that_a_third_site_claimed_from_one_that_counted_it_does_not() -> None:
    """What west answered by it is at that site, and not here."""
    with rig() as one:
        one.holds("east", "east", OLD)
        one.holds("east", "west", WESTS)
        one.holds("east", "north", None)
        one.cut = True
        assert one.ask() == one.ask(after_s=100.0) == "north"
        assert one.vote().last == WESTS


def test_one_of_a_site_that_answered_what_is_not_here_is_not_given() -> None:
    """West took over, and was asked to give it back before this site knew of that."""
    with rig() as one:
        one.holds("west", "west", WESTS)
        one.says("west", "east")
        assert one.ask("west") == one.ask("west", after_s=100.0) == "west"


def test_one_of_a_history_that_was_merged_into_this_one_is_given() -> None:
    """Both sites went on, west with this one's vote, too; then one history was made of them."""
    with rig() as one:
        one.holds("east", "west", WESTS)
        one.says("west", "east")
        assert one.ask() == "west"
        ends = Branch(OLD, 8, NO_HASH, ()), Branch(WESTS, 9, NO_HASH, ((OLD, 1), (WESTS, 7)))
        one.state.joined = (Joined(MINE, ends),)
        assert one.ask() == "east"


def test_one_that_was_claimed_and_given_back_is_as_old_as_it_was() -> None:
    """West says that this site is to serve; what it answered by the vote is to come first."""
    with rig() as one:
        one.holds("west", "west", WESTS)
        one.holds("west", "north", None)
        one.holds("west", "west", None)
        one.says("west", "east")
        assert one.ask("west") == one.ask("west", after_s=100.0) == "west"


def test_one_that_its_own_site_claimed_is_of_the_epoch_before() -> None:
    """It has mirrored what this one did since."""
    with rig() as one:
        one.holds("east", "west", OLD)
        one.holds("east", "west", None)
        assert (one.vote().epoch, one.vote().last) == (OLD, None)
