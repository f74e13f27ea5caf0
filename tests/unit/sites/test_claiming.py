"""Whoever mirrors a partition claims the votes for it: by compare-and-set against what it has seen (Q1, M5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.core.ids import EpochId
from halog.core.sites.takeover_candidate import TakeoverCandidate
from halog.errors import UnreachableError
from halog.runtime.sites.takeover import TakeoverRule, Takeovers
from halog.runtime.sites.voting import SiteContacts, held, write
from halog.runtime.support.adapters import SiteAccess
from tests.unit.core.kit import table

pytestmark = pytest.mark.feature("Q1", "M5")

VOTES = {"west": 1, "east": 1, "north": 1}
OLD = EpochId(4, "west", 7)


class Rig:
    """A node of east, which mirrors west, and the coordinators of all sites; each has a vote of west's."""

    def __init__(self) -> None:
        self.at = {site: MemoryCoordinator() for site in VOTES}
        for coordinator in self.at.values():
            coordinator.connect(lambda state: None)
        self.cut: set[str] = set()
        host: Any = SimpleNamespace(site="east", coordinator=self.at["east"], me=SimpleNamespace(node="E"))
        mirroring: Any = None
        self.desks = SiteContacts(host, self._reach, ("west", "north"))
        self.takeovers = Takeovers(host, mirroring, self.desks, self._reach, VOTES, {"q": TakeoverRule(0, True)})
        self.candidate = self.takeovers._candidates["p"] = TakeoverCandidate("east", VOTES, 0, binding=True)
        self.chain = SimpleNamespace(lineage=((OLD, 1),))
        state = SimpleNamespace(table=table(owner="west"), chain=SimpleNamespace(state=self.chain))
        self.copy: Any = SimpleNamespace(name="p", core=SimpleNamespace(state=state))
        for site in VOTES:
            self.renew(site)

    def _reach(self, site: str) -> SiteAccess:
        if site in self.cut:
            raise UnreachableError(f"site {site} does not answer")
        log: Any = SimpleNamespace(close=lambda: None)
        coordinator: Any = SimpleNamespace(get=self.at[site].get, set=self.at[site].set, close=lambda: None)
        return SiteAccess(site, log, coordinator)

    def renew(self, site: str, to: str = "west") -> None:
        """By whoever serves."""
        before, version = held(self.at[site], "p")
        write(self.at[site], "p", to, "W", before, version, OLD)

    def look(self) -> None:
        """All votes rest for as long as it takes."""
        for site in VOTES:
            found, _ = held(self.at[site], "p")
            assert found is not None
            self.candidate.saw(site, found.vote, 0)

    def claim(self) -> bool:
        return self.takeovers._claim(self.copy)

    def owners(self) -> dict[str, str]:
        found = {site: held(coordinator, "p")[0] for site, coordinator in self.at.items()}
        return {site: one.site for site, one in found.items() if one is not None}


@contextmanager
def rig() -> Iterator[Rig]:
    made = Rig()
    try:
        yield made
    finally:
        made.desks.close()
        for coordinator in made.at.values():
            coordinator.close()


@pytest.mark.feature("Q1", "M5")
def test_a_site_that_never_had_an_epoch_of_the_history_claims_nothing() -> None:
    """The line brings votes and nothing of the log: what it began would be another history."""
    with rig() as made:
        made.look()
        made.chain.lineage = ()
        assert made.takeovers._claims(made.copy) == {}
        made.chain.lineage = ((OLD, 1),)
        assert made.takeovers._claims(made.copy).keys() == VOTES.keys()


def test_what_is_as_it_was_seen_is_claimed() -> None:
    with rig() as one:
        one.look()
        assert one.claim()
        assert one.owners() == {"east": "east", "north": "east", "west": "east"}


def test_one_that_was_renewed_since_is_not() -> None:
    """West counts on it."""
    with rig() as one:
        one.look()
        one.renew("east"), one.renew("north")
        assert not one.claim()
        assert one.owners() == {"east": "west", "north": "west", "west": "west"}


def test_too_few_are_given_back() -> None:
    with rig() as one:
        one.look()
        one.renew("north")
        assert not one.claim()
        assert one.owners() == {"east": "west", "north": "west", "west": "west"}


def test_the_first_that_is_not_to_be_had_ends_it() -> None:
    """Another site that tries has it, perhaps; it asks in the same order."""
    with rig() as one:
        one.look()
        one.renew("east", to="north")
        assert not one.claim()
        assert one.owners() == {"east": "north", "north": "west", "west": "west"}


def test_the_site_that_is_lost_is_not_needed() -> None:
    with rig() as one:
        one.look()
        one.cut.add("west")
        assert one.claim()
        assert one.owners() == {"east": "east", "north": "east", "west": "west"}


def test_a_claimed_vote_was_renewed_by_nobody() -> None:
    """So nobody takes it for one that a planned switch left behind."""
    with rig() as one:
        one.look()
        assert one.claim()
        found, _ = held(one.at["north"], "p")
        assert found is not None
        assert found.epoch is None
