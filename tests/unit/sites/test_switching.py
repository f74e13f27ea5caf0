"""Which site serves: taken over and given back without loss, refused where it might split, told where it has (F6)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from halog.errors import PartitionUnavailableError, RefusedError
from halog.runtime import splits
from halog.runtime.line import POLL_S
from halog.runtime.switching import Switching
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.two import east, flights, fly, heads, level, stands, states, west

pytestmark = pytest.mark.feature("M5")
__all__ = ["east", "west"]
NAMES = [f"test-{i}" for i in range(3)]


def switching(cluster: Cluster, timeout_s: float = 10) -> Switching:
    adapters = cluster.node(cluster.names[0]).runtime.adapters
    return Switching(adapters.coordinator, cluster.site, adapters.reach, timeout_s)


def owners(cluster: Cluster) -> set[str]:
    """Which sites own the logs of a cluster's partitions, by those logs."""
    return {s.owner for s in states(cluster).values()}


def test_the_other_site_takes_over_without_loss_and_is_mirrored(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, *range(20))
    switched = switching(east).promote(NAMES)
    assert [(s.partition, s.taken_over_from, s.may_fork) for s in switched] == [(n, "west", False) for n in NAMES]
    east.settle()
    assert flights(east) == set(range(20))
    fly(east, *range(20, 40))
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    assert flights(west) == set(range(40))
    assert {e.site for e, _ in states(west)["test-0"].lineage} == {"west", "east"}


def test_what_is_only_mirrored_is_refused_at_once_by_name(west: Cluster, east: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(PartitionUnavailableError, match="served by site west"):
        fly(east, 1)
    with pytest.raises(PartitionUnavailableError, match="halog site promote"), east.client().transaction() as tx:
        tx.find(Flight, 1)
    assert time.monotonic() - began < east.config.timing.call_deadline_ms / 2_000


def test_where_keys_belong_stays_while_there_are_mirrors(west: Cluster) -> None:
    node = west.node(west.names[0])
    policy = replace(west.config.policies["test"], ring_size=500)
    with pytest.raises(RefusedError, match="home at site west"):
        node.runtime.operators.rebalance("test", replace(west.config, policies={"test": policy}))


def test_there_and_back(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, *range(10))
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(10, 20))
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    switching(west).promote(NAMES)
    west.settle()
    fly(west, *range(20, 30))
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    level(west, east)
    assert flights(east) == flights(west) == set(range(30))


def test_a_site_that_cannot_be_asked_is_taken_over_from_only_by_who_says_so(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    level(west, east)
    east.cut()
    with pytest.raises(RefusedError, match="--may-fork"):
        switching(east).promote(NAMES)
    assert {t.owner for t in east.tables().values()} == {"west"}
    switched = switching(east).promote(NAMES, may_fork=True)
    assert all(s.may_fork for s in switched)
    east.settle()
    assert flights(east) == set(range(10))
    fly(east, 10)


def test_a_site_that_was_down_gives_its_log_away_when_it_is_back(west: Cluster, east: Cluster) -> None:
    """It has nothing that the other one lacks: no fork, and nobody need decide."""
    west.see(east)
    fly(west, *range(10))
    level(west, east)
    for name in west.names:
        west.kill(name)
    east.cut()
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(10, 20))
    east.mend()
    west.start()
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    assert flights(west) == set(range(20))


def test_two_sites_that_both_went_on_are_told_and_left_as_they_are(west: Cluster, east: Cluster) -> None:
    west.see(east)
    fly(west, *range(10))
    level(west, east)
    east.cut()
    time.sleep(3 * POLL_S)
    fly(west, *range(10, 40))
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(100, 130))
    wait_until(lambda: flights(east) == {*range(10), *range(100, 130)}, "a replica has everything")
    before = heads(east)
    east.mend()
    switching(west).demote(NAMES, "east")

    def told() -> bool:
        found = [stands(west, name) for name in NAMES]
        return all(one is not None and one.parted for one in found)

    wait_until(told, "the split is not told")
    assert heads(east) == before
    assert owners(west) == {""}
    assert flights(west) == set(range(40))
    with pytest.raises(RefusedError, match="have parted"):
        switching(west).promote(NAMES)
    switching(west).promote(NAMES, may_fork=True)
    west.settle()
    fly(west, 50)
    assert heads(east) == before
    assert flights(east) == set(range(10)) | set(range(100, 130))


def test_a_split_is_told_by_both_sites_as_soon_as_they_see_each_other(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more once one of them has stopped."""
    monkeypatch.setattr(splits, "WATCH_S", 0.1)
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    east.cut()
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    assert not any(map(told_parted, (west, east)))
    east.mend()
    wait_until(lambda: told_parted(west) == dict.fromkeys(NAMES, "east"), "west tells it")
    wait_until(lambda: told_parted(east) == dict.fromkeys(NAMES, "west"), "east tells it")
    switching(west).demote(NAMES, "east")
    wait_until(lambda: not told_parted(east), "it is over")


def told_parted(cluster: Cluster) -> dict[str, str]:
    found = splits.parted(cluster.node(cluster.names[0]).runtime.adapters.coordinator)
    return {name: one.site for name, one in found.items()}


def test_what_the_other_site_still_had_to_send_is_there_before_it_is_taken_over(west: Cluster, east: Cluster) -> None:
    """Its nodes are gone, its log is not."""
    fly(west, *range(5))
    level(west, east)
    east.cut()
    time.sleep(3 * POLL_S)
    fly(west, *range(5, 25))
    for name in west.names:
        west.kill(name)
    east.mend()
    switching(east).promote(NAMES)
    east.settle()
    assert flights(east) == set(range(25))
    with east.node(east.names[0]).transaction() as tx:
        assert tx.get(Flight, 7).number == 7
