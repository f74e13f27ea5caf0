"""Which site serves: taken over and given back without loss, refused where it might split, told where it has (F6)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from halog.errors import DeadlineError, RefusedError
from halog.metadata.partition_tables import change_table, table_of
from halog.ports import Coordinator
from halog.runtime.node.paces import Paces
from halog.runtime.sites import split_watch as splits
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.mirror_link import POLL_S
from halog.runtime.sites.site_paces import SitePaces
from halog.runtime.sites.switchover import Switchover
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.two import east, flights, fly, heads, level, stands, states, west

pytestmark = pytest.mark.feature("M5")
__all__ = ["east", "west"]
NAMES = [f"test-{i}" for i in range(3)]


def switching(cluster: Cluster, timeout_s: float = 10, **how: Any) -> Switchover:
    """A command at this site; `how`: see `Switchover`."""
    adapters = cluster.node(cluster.names[0]).runtime.adapters
    return Switchover(adapters.coordinator, cluster.site, adapters.reach, timeout_s, **how)


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


@pytest.mark.parametrize("paces", [Paces(SitePaces(watch_s=0.1))])
def test_a_split_is_told_by_both_sites_as_soon_as_they_see_each_other(west: Cluster, east: Cluster) -> None:
    """And go on to tell it where one of them has stopped, and has what the other one lacks: its last record."""
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
    wait_until(lambda: all(s is not None and s.parted for s in (stands(west, n) for n in NAMES)), "west has closed it")
    wait_until(lambda: told_parted(west) == dict.fromkeys(NAMES, "east"), "west tells it")
    wait_until(lambda: told_parted(east) == dict.fromkeys(NAMES, "west"), "east tells it")


def told_parted(cluster: Cluster) -> dict[str, str]:
    """What is told as parted, with the other site."""
    found = splits.parted(cluster.node(cluster.names[0]).runtime.adapters.coordinator, cluster.tables().values())
    return {name: told.site for name, told in found.items()}


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


def test_two_operators_who_make_each_site_take_over_do_not_both_get_it(west: Cluster, east: Cluster) -> None:
    """While east's waits until it is level, somebody has west serve again."""
    west.see(east)
    there = west.node(west.names[0]).runtime.adapters.coordinator

    class Overtaken(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            _own(there, self.partition, "")
            return True

    with pytest.raises(RefusedError, match="somebody else has made site west serve it meanwhile"):
        switching(east, level_by=Overtaken).promote(NAMES[:1])
    here = east.node(east.names[0]).runtime.adapters.coordinator
    assert (table_of(here, NAMES[0]).owner, table_of(there, NAMES[0]).owner) == ("west", "")


def test_a_switch_that_failed_takes_nothing_back_that_another_one_has_reached(west: Cluster, east: Cluster) -> None:
    """Asked for twice: the second one has made east serve, then the first one gives up."""
    west.see(east)
    here, there = (c.node(c.names[0]).runtime.adapters.coordinator for c in (east, west))

    class TooLate(CatchUp):
        def step(self, *, may_fence: bool = True) -> bool:
            _own(here, self.partition, "")
            raise DeadlineError("not level")

    with pytest.raises(DeadlineError):
        switching(east, level_by=TooLate).promote(NAMES[:1])
    assert (table_of(here, NAMES[0]).owner, table_of(there, NAMES[0]).owner) == ("", "east")


@pytest.mark.parametrize("back", [False, True])
def test_what_was_given_and_never_taken_is_served_by_whoever_is_asked_next(
    west: Cluster, east: Cluster, back: bool
) -> None:
    """The command at east died in between: asked again it goes on, and asked for at west it is called off."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    switching(west).demote(NAMES, "east")
    wait_until(lambda: not any(t.active for t in west.tables().values()), "west stops")
    serving = west if back else east
    assert not any(s.may_fork for s in switching(serving).promote(NAMES))
    serving.settle()
    fly(serving, 5)
    level(west, east)
    assert flights(west) == flights(east) == set(range(6))


def _own(coordinator: Coordinator, partition: str, owner: str) -> None:
    change_table(coordinator, partition, lambda now: msgspec.structs.replace(now, owner=owner))
