"""How a site that serves comes by the votes of others, as their coordinators hold them (Q1, M5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.core import effects as fx
from halog.core.ids import EpochId
from halog.core.table.table import PartitionTable
from halog.errors import UnreachableError
from halog.runtime.sites import voting as site_votes
from halog.runtime.sites.voting import SiteContacts, SiteVote, SiteVoting, held, write
from halog.runtime.support.adapters import SiteAccess
from tests.unit.core.kit import table

pytestmark = pytest.mark.feature("Q1", "M5")

AFTER_MS = 10_000
OLD, MINE = EpochId(4, "west", 7), EpochId(5, "east", 8)
"""West served before; this is a node of east."""


class Rig:
    """East's node, its coordinator, and west's, which may be out of reach."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = {"east": MemoryCoordinator(), "west": MemoryCoordinator()}
        self.now = 100.0
        for coordinator in self.at.values():
            coordinator.connect(lambda state: None)
        self.cut = False
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(site_votes, "time", clock)
        host: Any = SimpleNamespace(site="east", coordinator=self.at["east"], me=SimpleNamespace(node="E"))
        desks = SiteContacts(host, self._reach, ("west",))
        for desk in desks.all.values():
            monkeypatch.setattr(desk, "submit", _at_once)
        self.voting = SiteVoting(host, desks, {"q": AFTER_MS})
        self.quorum = SimpleNamespace(is_sure=False)
        self.table = table()
        self.state = SimpleNamespace(lineage=((OLD, 1), (MINE, 9)), joined=())
        self.leading: Any = SimpleNamespace(epoch=MINE, sites=SimpleNamespace(quorum=self.quorum))
        self.answers: list[str] = []

    def _reach(self, site: str) -> SiteAccess:
        if self.cut:
            raise UnreachableError(f"site {site} does not answer")
        log: Any = SimpleNamespace(close=lambda: None)
        return SiteAccess(site, log, self.at[site])

    def holds(self, site: str, of: str, epoch: EpochId | None) -> None:
        """That site's vote is `of`'s, renewed in `epoch` last."""
        before, version = held(self.at[site], "p")
        write(self.at[site], "p", of, "W", before, version, epoch)

    def ask(self, site: str = "east", after_s: float = 0.0) -> str:
        """Whose it is."""
        self.now += after_s
        state = SimpleNamespace(table=self.table, chain=SimpleNamespace(state=self.state))
        core = SimpleNamespace(leading=self.leading, state=state)
        copy: Any = SimpleNamespace(name="p", core=core, post=lambda e: self.answers.append(e.owner))
        self.voting.ask(copy, fx.AskVote(1, site))
        return self.answers[-1]

    def vote(self, site: str = "east") -> SiteVote:
        found, _ = held(self.at[site], "p")
        assert found is not None
        return found

    def says(self, site: str, owner: str) -> None:
        """Its table, by its own word."""
        data = table(owner=owner).to_bytes()
        assert self.at[site].create("partitions/p", data)


def _at_once(work: Callable[[], None]) -> None:
    work()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    for coordinator in made.at.values():
        coordinator.close()


def test_who_serves_first_has_the_vote_and_renews_it(rig: Rig) -> None:
    assert rig.ask() == rig.ask() == "east"
    assert rig.vote() == SiteVote("east", "E", 1, MINE)


def test_another_sites_vote_is_not_taken(rig: Rig) -> None:
    rig.holds("east", "west", None)
    rig.cut = True
    assert [rig.ask(after_s=s) for s in (0.0, 9.0, 100.0)] == ["west"] * 3


def test_it_is_if_its_owner_says_that_this_one_serves(rig: Rig) -> None:
    rig.holds("east", "west", OLD)
    rig.says("west", "east")
    assert rig.ask() == "east"


def test_not_by_one_that_leads_no_more(rig: Rig) -> None:
    rig.holds("east", "west", OLD)
    rig.says("west", "east")
    rig.leading = None
    assert rig.ask() == "west"


def test_it_is_if_an_operator_has_overruled_its_owner(rig: Rig) -> None:
    rig.holds("east", "west", None)
    rig.table = table(overruled=("west",))
    rig.cut = True
    assert rig.ask() == "east"


def test_one_that_nobody_renews_is_taken_by_who_has_the_quorum_anyway(rig: Rig) -> None:
    rig.holds("east", "west", None)
    rig.cut, rig.quorum.is_sure = True, True
    assert rig.ask() == "west"
    assert rig.ask(after_s=9.9) == "west"
    rig.holds("east", "west", None)
    assert rig.ask(after_s=0.2) == "west"
    assert rig.ask(after_s=10.0) == "east"


def test_one_that_nobody_renews_since_this_site_took_over_is_taken_though_the_line_is_cut(rig: Rig) -> None:
    """West was switched to east as planned, and then cut off, before its votes had passed: they are of an epoch that
    this site's history has, so nobody has gone on from it elsewhere."""
    rig.holds("east", "west", OLD)
    rig.cut = True
    assert rig.ask() == "west"
    assert rig.ask(after_s=9.9) == "west"
    assert rig.ask(after_s=0.2) == "east"


def test_one_of_an_epoch_that_is_not_in_this_history_is_left_alone(rig: Rig) -> None:
    """West has taken over since."""
    rig.holds("east", "west", EpochId(6, "west", 9))
    rig.cut = True
    assert rig.ask() == rig.ask(after_s=100.0) == "west"


def test_a_node_that_was_replaced_does_not_make_a_vote_look_older(rig: Rig) -> None:
    newer = EpochId(6, "east", 9)
    rig.holds("east", "east", newer)
    assert rig.ask() == "east"
    assert rig.vote().epoch == newer


def test_of_two_that_write_one_is_refused_and_looks_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.holds("west", "east", MINE)
    coordinator, real = rig.at["west"], rig.at["west"].set
    written: list[bytes] = []

    def once(path: str, data: bytes, version: int) -> int:
        if not written:
            written.append(data)
            rig.holds("west", "west", None)
        return real(path, data, version)

    monkeypatch.setattr(coordinator, "set", once)
    rig.says("west", "")
    assert rig.ask("west") == "west"


def test_a_site_out_of_reach_is_nobodys_as_far_as_is_known(rig: Rig) -> None:
    rig.cut = True
    assert rig.ask("west") == ""
    rig.cut = False
    assert rig.ask("west") == ""  # not tried again at once
    assert rig.ask("west", after_s=1.1) == "east"


def test_a_table_of_another_history_gives_nothing(rig: Rig) -> None:
    rig.holds("east", "west", None)
    other = PartitionTable.from_bytes(table(owner="east", log_id="ff" * 16).to_bytes())
    assert rig.at["west"].create("partitions/p", other.to_bytes())
    assert rig.ask() == "west"
