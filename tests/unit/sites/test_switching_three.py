"""Which of three sites serves: one that does not know yet who does takes nothing over from who did (F6)."""

from __future__ import annotations

import pytest

from halog.errors import RefusedError
from halog.runtime.sites.owner_tracking import OwnerTracker
from halog.testing.cluster import Cluster
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_three import dr, east, west
from tests.unit.sites.two import fly, level

pytestmark = pytest.mark.feature("M5", "P5")
__all__ = ["dr", "east", "west"]


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds out by himself that another site serves now."""
    monkeypatch.setattr(OwnerTracker, "is_given", lambda *of: False)


def owned(cluster: Cluster) -> set[str]:
    return {t.owner for t in cluster.tables().values()}


@pytest.mark.parametrize("cut", [False, True])
def test_a_third_site_takes_nothing_over_from_one_that_does_not_serve_any_more(
    west: Cluster, east: Cluster, dr: Cluster, cut: bool
) -> None:
    """East serves, and is not asked: both would, and nobody has said that they may."""
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(5))
    level(east, dr)
    if cut:
        dr.cut_off("east")
    with pytest.raises(RefusedError, match="site west says that site east serves it"):
        switching(dr).promote(NAMES)
    assert (owned(west), owned(dr), owned(east)) == ({"east"}, {"west"}, {""})


def test_who_says_that_it_may_fork_takes_over_all_the_same(west: Cluster, east: Cluster, dr: Cluster) -> None:
    switching(east).promote(NAMES)
    east.settle()
    level(east, dr)
    switched = switching(dr).promote(NAMES, may_fork=True)
    assert all(s.may_fork for s in switched)
    assert (owned(west), owned(dr)) == ({"east"}, {""})


def test_what_another_operator_began_and_never_ended_can_be_taken_over(
    west: Cluster, east: Cluster, dr: Cluster
) -> None:
    """The command died once west had been told to give everything to dr."""
    level(west, dr)
    switching(west).demote(NAMES, "dr")
    switched = switching(east).promote(NAMES)
    assert not any(s.may_fork for s in switched)
    east.settle()
    fly(east, 1)
