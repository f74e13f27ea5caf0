"""Snapshots at a site that only mirrors: taken by one node, and enough for a lost disk."""

from __future__ import annotations

import msgspec
import pytest

from halog.runtime.host.snapshotter import Snapshots
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.snapshotting import begins, calm, east, level, lose, marked, on, same, trimmed
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import flights, fly, states, west

pytestmark = pytest.mark.feature("M5")
__all__ = ["calm", "east", "west"]


@pytest.mark.feature("N4")
def test_one_node_of_a_site_that_mirrors_takes_snapshots_and_trims_its_log(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    takers: dict[str, set[str]] = {name: set() for name in NAMES}
    real = Snapshots.take

    def take(self: Snapshots, copy: Copy) -> None:
        real(self, copy)
        takers[copy.name].add(copy.node.me.node)

    monkeypatch.setattr(Snapshots, "take", take)
    flown = trimmed(west, east)
    takers.update({name: set() for name in NAMES})  # until all copies were there another node may have been the first
    while not all(takers.values()):
        fly(west, *range(flown, flown + 10))
        level(west, east)
        flown += 10
    assert takers == {name: {east.tables()[name].present[0]} for name in NAMES}
    assert set(begins(west).values()) == {0}


@pytest.mark.feature("P10")
def test_a_lost_disk_comes_back_from_snapshot_and_log_and_takes_over(west: Cluster, east: Cluster) -> None:
    """It has what the home has, judges the log as the others do, mirrors on, and serves all of it when asked to. The
    other site reads on in the trimmed log, from the place that is offered, and gets everything back."""
    flown = trimmed(west, east)
    for name in east.names:
        trimmed_to = begins(east)  # the other node may trim more of them, while this one is away and after it is back
        lose(east, name)
        same(west, east, name)
        copies = east.node(name).runtime.copies
        assert all(c.began_at >= trimmed_to[n] > 0 for n, c in copies.items())
        assert all(c.core.state.chain.state == states(east)[n] for n, c in copies.items())
    fly(west, *range(flown, flown + 10))
    level(west, east)
    switching(east).promote(NAMES)
    east.settle()
    with east.node(east.names[0]).transaction() as tx:
        assert {f.number for f in tx.extent(Flight)} == set(range(flown + 10))
    fly(east, *range(100_000, 100_010))
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east, whose log is trimmed")
    level(west, east)
    switching(west).promote(NAMES)
    west.settle()
    fly(west, *range(200_000, 200_010))
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    level(west, east)
    assert flights(east) == {*range(flown + 10), *range(100_000, 100_010), *range(200_000, 200_010)}


@pytest.mark.feature("P10")
def test_a_site_that_gave_its_log_away_takes_snapshots_of_what_it_mirrors(west: Cluster, calm: Cluster) -> None:
    """A copy made from one knows that the log is the other site's, and which epochs of its own are dead."""
    fly(west, *range(10))
    level(west, calm)
    switching(calm).promote(NAMES)
    calm.settle()
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    fly(calm, *range(10, 20))
    level(west, calm)
    for name in NAMES:
        taker, copy = on(west, west.names[0], name)
        taker.policy = msgspec.structs.replace(taker.policy, keep_records=1)
        taker.take(copy)
    offset, state = marked(west)
    assert (state.owner, state.site, state.fenced > 0) == ("east", "west", True)
    lose(west, west.names[1])
    other = west.node(west.names[1]).runtime.copies
    assert other["test-0"].began_at == offset
    level(west, calm)
    assert {n: c.core.state.chain.state for n, c in other.items()} == states(west)
    fly(calm, *range(20, 30))
    level(west, calm)
    same(calm, west, west.names[1])


# --- two at once, and old ones ---
