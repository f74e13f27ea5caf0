"""Sites that go on by themselves where nobody hears of the other one: by votes, or each (Q1, M5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from halog.errors import HalogError, SitesError
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.sites.split_watch import parted
from halog.runtime.sites.voting import held
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import flights, fly, level

pytestmark = pytest.mark.feature("Q1", "M5", "P5")

AFTER_MS = 2_000
SOON_S = 40.0
"""For a takeover, by which time a busy machine has come to it, too."""
WAITS_S = 2.5 * AFTER_MS / 1000
"""Long enough for a takeover that is not to be."""


def site(
    name: str,
    takeover: str,
    votes: Mapping[str, int] = MappingProxyType({}),
    home: Cluster | None = None,
    paces: Paces = PACES,
) -> Cluster:
    others = tuple(n for n in votes if n != name)
    return Cluster(
        2,
        partitions=3,
        registry=registry,
        site=name,
        home=home,
        others=others,
        takeover=takeover,
        takeover_after_ms=AFTER_MS,
        votes=votes,
        paces=paces,
    )


@pytest.fixture(params=[("quorum", 2)])
def sites(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Cluster]]:
    """West, which serves, and east; so many of three votes are east's."""
    takeover, easts = request.param
    votes = {"west": 3 - easts, "east": easts}
    with site("west", takeover, votes) as west, site("east", takeover, votes, west) as east:
        west.see(east)
        asked = {"west" if takeover != "operator" else ""}
        wait_until(lambda: holders(west) == holders(east) == asked, "west has all votes", SOON_S)
        yield west, east


easts = pytest.mark.parametrize("sites", [("quorum", 2)], indirect=True)
wests = pytest.mark.parametrize("sites", [("quorum", 1)], indirect=True)
both = pytest.mark.parametrize("sites", [("always", 1)], indirect=True)
nobodys = pytest.mark.parametrize("sites", [("operator", 2)], indirect=True)


def holders(cluster: Cluster) -> set[str]:
    """Who has this site's votes."""
    coordinator = cluster.node(cluster.names[0]).runtime.adapters.coordinator
    found = [held(coordinator, name)[0] for name in NAMES]
    return {"" if one is None else one.site for one in found}


def is_sure(cluster: Cluster) -> bool:
    """Do the votes that its active nodes have renewed count for them? Their znodes are written before that."""
    copies = [copy for name in cluster.running for copy in cluster.node(name).runtime.copies.values()]
    leading = [copy.core.leading for copy in copies if copy.core.leading is not None]
    return len(leading) == len(NAMES) and all(one.sites.quorum.held for one in leading)


def serves(cluster: Cluster) -> bool:
    return all(not t.owner and t.active is not None for t in cluster.tables().values())


def takes(cluster: Cluster) -> None:
    wait_until(lambda: serves(cluster), f"{cluster.site} takes over", SOON_S)
    cluster.settle()


class Traffic:
    """Commits of new flights at a site, one behind the other; what was acknowledged, and when."""

    def __init__(self, cluster: Cluster, first: int) -> None:
        self._cluster = cluster
        self._number = first
        self.told: dict[int, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        node = self._cluster.node(self._cluster.names[0])
        while not self._end.wait(0.002):
            self._number += 1
            try:
                with node.transaction() as tx:
                    tx.create(Flight(self._number))
                self.told[self._number] = time.monotonic()
            except HalogError:
                self._end.wait(0.05)


@easts
def test_the_side_with_the_votes_goes_on_and_the_other_stops(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, *range(5))
    level(west, east)
    with Traffic(west, 100) as at_west:
        wait_until(lambda: at_west.told, "west serves")
        west.cut_off()
        with Traffic(east, 1000) as at_east:
            wait_until(lambda: at_east.told, "east takes over", SOON_S)
        assert serves(west)  # nobody told it
        with pytest.raises(SitesError, match="1 votes of sites, and needs 2") as refused:
            fly(west, 1)
        assert refused.value.evidence["sites"] == ["east"]
    assert max(at_west.told.values()) < min(at_east.told.values())
    west.mend()
    wait_until(lambda: all(t.owner == "east" for t in west.tables().values()), "west gives it up", SOON_S)


@easts
def test_one_that_was_taken_over_from_follows_if_nothing_was_in_the_air(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, *range(5))
    level(west, east)
    west.cut_off()
    takes(east)
    fly(east, *range(5, 10))
    west.mend()
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east", SOON_S)
    level(west, east)
    assert flights(west) == set(range(10))
    switching(west).promote(NAMES)
    west.settle()
    fly(west, 10)
    level(west, east)
    wait_until(lambda: holders(west) == holders(east) == {"west"}, "west has all votes", SOON_S)


@wests
def test_a_site_without_the_votes_does_not_take_over(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    west.cut_off()
    time.sleep(WAITS_S)
    assert not any(serves(c) for c in [east])
    fly(west, 1)
    west.mend()
    level(west, east)


@nobodys
def test_nobody_does_unless_the_policy_says_so(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    west.cut_off()
    time.sleep(WAITS_S)
    assert not serves(east)
    fly(west, 1)


@both
def test_with_the_quorum_off_both_go_on(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, *range(5))
    level(west, east)
    west.cut_off()
    takes(east)
    fly(west, 5), fly(east, 6)
    west.mend()
    coordinator = east.node(east.names[0]).runtime.adapters.coordinator
    wait_until(lambda: parted(coordinator, east.tables().values()), "they have parted", SOON_S)
    assert serves(west)
    assert serves(east)


@easts
def test_where_only_the_nodes_are_gone_nothing_parts(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, *range(5))
    for name in west.names:
        west.kill(name)
    takes(east)
    assert flights(east) == set(range(5))
    fly(east, 5)
    for name in west.names:
        west.restart(name)
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east", SOON_S)
    level(west, east)
    assert flights(west) == set(range(6))


@easts
def test_a_failover_inside_the_site_keeps_the_votes(sites: tuple[Cluster, Cluster]) -> None:
    west, _ = sites
    fly(west, 1)
    west.kill(west.names[1])
    fly(west, *range(2, 12))
    assert holders(west) == {"west"}


@easts
def test_a_short_cut_takes_nothing_away(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, 1)
    for _ in range(3):
        west.cut_off()
        time.sleep(AFTER_MS / 4000)
        west.mend()
        time.sleep(AFTER_MS / 2000)
    wait_until(lambda: not serves(east) and _flies(west), "west serves", SOON_S)


@easts
def test_an_operator_may_overrule_the_votes_of_a_lost_site(sites: tuple[Cluster, Cluster]) -> None:
    west, east = sites
    fly(west, 1)
    for name in east.names:
        east.kill(name)
    west.cut_off()
    wait_until(lambda: not _flies(west), "west refuses", SOON_S)
    switching(west).let_go(NAMES, "east")
    wait_until(lambda: _flies(west), "west goes on", SOON_S)
    for name in east.names:
        east.restart(name)
    west.mend()
    wait_until(lambda: not any(t.overruled for t in west.tables().values()), "east's votes count again", SOON_S)


def _flies(cluster: Cluster) -> bool:
    node = cluster.node(cluster.names[0])
    try:
        with node.transaction() as tx:
            tx.create(Flight(time.monotonic_ns()))
    except HalogError:
        return False
    return True


def test_sites_that_go_by_different_votes_take_nothing_over(caplog: pytest.LogCaptureFixture) -> None:
    """Each would have more than half of what it takes for all."""
    with (
        site("west", "quorum", {"west": 2, "east": 1}) as west,
        site("east", "quorum", {"west": 1, "east": 2}, west) as east,
    ):
        west.see(east)
        wait_until(lambda: holders(west) == holders(east) == {"west"}, "west has all votes", SOON_S)
        west.cut_off()
        time.sleep(WAITS_S)
        assert not serves(east)
        fly(west, 1)
    assert (
        "its rule is (quorum 2000 ms, east: 2, west: 1), that of site west is (quorum 2000 ms, east: 1, west: 2)"
        in caplog.text
    )


# --- three sites ---

FOLLOWS_S = 2 * SOON_S
"""A third site follows once it has missed the one it mirrors for ten seconds, and asked the others."""


VOTES = {"west": 1, "east": 1, "dr": 1}


@pytest.fixture
def three() -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    with (
        site("west", "quorum", VOTES) as west,
        site("east", "quorum", VOTES, west) as east,
        site("dr", "quorum", VOTES, west) as dr,
    ):
        west.see(east), west.see(dr), east.see(dr), dr.see(east)
        wait_until(lambda: holders(west) == holders(east) == holders(dr) == {"west"}, "west has all votes", SOON_S)
        wait_until(lambda: is_sure(west), "they count", SOON_S)
        yield west, east, dr


def test_of_three_sites_two_go_on_and_one_of_them_serves(three: tuple[Cluster, Cluster, Cluster]) -> None:
    west, east, dr = three
    fly(west, *range(5))
    level(west, east), level(west, dr)
    west.cut_off()
    wait_until(lambda: serves(east) or serves(dr), "one of the two takes over", SOON_S)
    one, other = (east, dr) if serves(east) else (dr, east)
    one.settle()
    fly(one, *range(5, 10))
    wait_until(lambda: owners(other) == {one.site}, "the other one follows", FOLLOWS_S)
    assert not serves(other)
    west.mend()
    wait_until(lambda: owners(west) == {one.site}, "west follows", SOON_S)
    level(one, west), level(one, other)
    assert flights(west) == flights(other) == set(range(10))
    wait_until(lambda: holders(west) == holders(other) == {one.site}, "it has all votes", SOON_S)


def test_a_site_that_two_others_lose_one_after_the_other_serves_on(three: tuple[Cluster, Cluster, Cluster]) -> None:
    west, east, dr = three
    west.cut_off("east")
    time.sleep(WAITS_S)
    fly(west, 1)
    assert not serves(east)
    assert not serves(dr)
    west.mend("east")
    wait_until(lambda: holders(east) == {"west"}, "west has east's votes", SOON_S)
    west.cut_off("dr")
    time.sleep(AFTER_MS / 1000)
    fly(west, 2)


def test_a_planned_switch_brings_the_votes_along(three: tuple[Cluster, Cluster, Cluster]) -> None:
    west, east, dr = three
    for there in (east, dr, west):
        switching(there).promote(NAMES)
        there.settle()
        wait_until(lambda at=there: {*owners(west), *owners(east), *owners(dr)} == {"", at.site}, "all follow")  # type: ignore[misc]
        fly(there, time.monotonic_ns())
        wait_until(
            lambda at=there: {*holders(west), *holders(east), *holders(dr)} == {at.site},  # type: ignore[misc]
            "it has all votes",
            SOON_S,
        )
