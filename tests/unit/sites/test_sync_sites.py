"""Commits that are in the other site's log before they return: whatever dies or is cut, and whoever takes over (M5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from halog.adapters.memory import MemoryLog
from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain
from halog.core.results import Shortage
from halog.errors import HalogError, RefusedError, SitesError
from halog.metadata.restore_requests import DONE
from halog.metadata.sync_waits import awaited
from halog.ports import Coordinator, TopicPartition
from halog.runtime.node.paces import Paces
from halog.runtime.sites.acknowledgements import MirroredPositions
from halog.runtime.sites.mirror_link import POLL_S
from halog.runtime.sites.split_watch import parted
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.losing import lose, lost_with_the_site
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import restore
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import flights, fly, level, states

pytestmark = pytest.mark.feature("M5", "R1")

BOTH = ("west", "east")
SOON_MS, LATE_MS = 2_000, 10_000
"""A site is away: soon, where that is what a test is about; else not because this machine is busy."""


@pytest.fixture(params=[("refuse", LATE_MS)])
def west(request: pytest.FixtureRequest, paces: Paces) -> Iterator[Cluster]:
    away, away_ms = request.param
    with Cluster(
        2,
        partitions=3,
        registry=registry,
        site="west",
        others=("east",),
        sync_sites=BOTH,
        sync_site_away=away,
        sync_site_away_ms=away_ms,
        paces=paces,
    ) as cluster:
        yield cluster


@pytest.fixture
def east(west: Cluster, paces: Paces) -> Iterator[Cluster]:
    policy = west.config.policies["test"]
    with Cluster(
        2,
        partitions=3,
        registry=registry,
        site="east",
        home=west,
        sync_sites=BOTH,
        sync_site_away=policy.sync_site_away,
        sync_site_away_ms=policy.sync_site_away_ms,
        paces=paces,
    ) as cluster:
        west.see(cluster)
        synced(west, "east")
        yield cluster


soon = pytest.mark.parametrize("west", [("refuse", SOON_MS)], indirect=True)
drops = pytest.mark.parametrize("west", [("drop", SOON_MS)], indirect=True)


def synced(cluster: Cluster, *sites: str) -> None:
    """The tables say that these sites have everything."""
    wait_until(lambda: {t.synced for t in cluster.tables().values()} == {sites}, f"commits wait for {sites}")


def seen(cluster: Cluster) -> set[int]:
    """By transactions at the site that serves."""
    with cluster.client().transaction() as tx:
        return {f.number for f in tx.extent(Flight)}


def logged(cluster: Cluster, partition: str) -> int:
    """The last lsn that this site's log has accepted."""
    table, log = cluster.tables()[partition], MemoryLog(cluster.broker)
    chain, tp = Chain(table.beginning(cluster.site)), TopicPartition(table.topic, table.index)
    for entry in log.read(tp, *log.bounds(tp)):
        chain.read(records.decode(entry.value), digest(entry.value))
    return chain.state.lsn


def arrives(cluster: Cluster, other: Cluster, number: int) -> None:
    """A commit that has returned is in the other site's log."""
    with cluster.node(cluster.names[0]).transaction() as tx:
        tx.create(Flight(number))
    assert tx.lsn is not None
    assert logged(other, cluster.partition_of(Flight, number)) >= tx.lsn > 0


def has(cluster: Cluster, *numbers: int) -> None:
    """Its first node's copies come to have these, and no others."""
    wait_until(lambda: flights(cluster) == set(numbers), f"{cluster.site} has {numbers}")


def flies(cluster: Cluster, number: int) -> bool:
    try:
        fly(cluster, number)
    except HalogError:
        return False
    return True


def closed(cluster: Cluster) -> bool:
    """Does no partition take commits, for want of a site?"""
    copies = [c for n in cluster.names for c in cluster.node(n).runtime.copies.values()]
    leading = [c.core.leading for c in copies if c.core.leading is not None]
    return len(leading) == len(NAMES) and all(isinstance(one.writer.closed, Shortage) for one in leading)


def waits(cluster: Cluster, waits_: bool) -> None:
    """This site has noted whether commits at the other one wait for it."""
    coordinator = cluster.node(cluster.names[0]).runtime.adapters.coordinator

    def noted() -> bool:
        found = [awaited(coordinator, name, "west") for name in NAMES]
        return all(one is not None and one.waits is waits_ for one in found)

    wait_until(noted, f"it is noted that commits wait: {waits_}")


def test_what_has_returned_is_in_the_other_sites_log(west: Cluster, east: Cluster) -> None:
    for number in range(20):
        arrives(west, east, number)


def test_so_it_is_for_several_threads(west: Cluster, east: Cluster) -> None:
    missing: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 10):
            try:
                arrives(west, east, number)
            except AssertionError:
                missing.append(number)

    threads = [threading.Thread(target=work, args=(100 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not missing


def test_what_is_over_several_partitions_is_there_as_a_whole_when_the_site_is_lost(
    west: Cluster, east: Cluster
) -> None:
    fly(west, 1)
    with west.node(west.names[0]).transaction() as tx:
        for number in range(100, 110):
            tx.create(Flight(number))
    lose(west, east)
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    assert seen(east) == {1, *range(100, 110)}


@soon
def test_commits_are_refused_by_name_while_the_line_is_cut(west: Cluster, east: Cluster) -> None:
    """Nothing happened, and they go on by themselves."""
    fly(west, 1)
    east.cut()
    wait_until(lambda: closed(west), "commits are refused")
    with pytest.raises(SitesError, match="site east") as error:
        fly(west, 2)
    assert error.value.happened is False
    assert error.value.evidence["sites"] == ["east"]
    with pytest.raises(SitesError, match="site east"), west.client().transaction() as tx:
        tx.create(Flight(2))
    assert seen(west) == {1}
    east.mend()
    wait_until(lambda: flies(west, 3), "commits go on")
    has(east, 1, 3)


@soon
def test_one_in_flight_waits_until_the_line_is_back(west: Cluster, east: Cluster) -> None:
    east.cut()
    done = threading.Event()

    def work() -> None:
        fly(west, 1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: closed(west), "commits are refused")
    assert not done.is_set()
    east.mend()
    thread.join()
    assert done.is_set()
    has(east, 1)


def test_nothing_acknowledged_is_missing_where_a_lost_site_is_taken_over(west: Cluster, east: Cluster) -> None:
    """That is said, too; this site goes on alone, and waits for the other one once that has caught up."""
    waits(east, True)
    acknowledged = {number for number in range(20) if flies(west, number)}
    lose(west, east)
    with pytest.raises(RefusedError, match="What it acknowledged is here"):
        switching(east).promote(NAMES)
    switched = switching(east).promote(NAMES, may_fork=True)
    assert [(s.may_fork, s.lacks) for s in switched] == [(True, "")] * 3
    east.settle()
    assert seen(east) == acknowledged == set(range(20))
    fly(east, *range(20, 30))
    assert {t.let_go for t in east.tables().values()} == {("west",)}
    east.mend()
    west.start()
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    synced(east, "west")
    wait_until(lambda: {t.let_go for t in east.tables().values()} == {()}, "none is let go of")
    for number in range(30, 40):
        arrives(east, west, number)


def test_nor_in_the_middle_of_traffic() -> None:
    assert lost_with_the_site() == ""


def test_a_failover_at_home_finds_anew_what_the_other_site_has(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    west.kill(west.names[1])
    west.settle()
    for number in range(10, 20):
        arrives(west, east, number)
    synced(west, "east")


def test_the_node_that_confirms_is_killed_and_the_next_one_does(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    east.kill(east.names[0])
    for number in range(2, 12):
        arrives(west, east, number)


def test_what_is_no_word_of_a_site_is_passed_over(west: Cluster, east: Cluster) -> None:
    """Nor does it count what a site says that is not waited for, or of what there is not."""
    session = MemoryLog(west.broker).session()
    epoch = states(west)["test-0"].epoch
    far = [(name, epoch, 1_000_000) for name in (*NAMES, "no-such-partition")]
    for data in (
        b"\xff no JSON",
        b"{}",
        b'{"site":"east","by":"x","items":[["test-0",["a"],1]]}',
        msgspec.json.encode(MirroredPositions("north", "x", far)),
        msgspec.json.encode(MirroredPositions("east", "x", far)),
    ):
        session.append(TopicPartition("test.arrived", 0), data, lambda offset, why: None)
    for number in range(10):
        arrives(west, east, number)


def test_the_site_that_serves_next_waits_for_the_one_that_served(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    switched = switching(east).promote(NAMES)
    assert [(s.may_fork, s.lacks) for s in switched] == [(False, "")] * 3
    east.settle()
    for number in range(2, 10):
        arrives(east, west, number)
    synced(east, "west")
    switching(west).promote(NAMES)
    west.settle()
    fly(west, 10)
    has(east, *range(1, 11))


@soon
def test_a_site_that_was_taken_over_from_acknowledges_nothing_more(west: Cluster, east: Cluster) -> None:
    """Its nodes serve on, the line is whole again, and what it sends there counts for nothing; it is told so."""
    fly(west, 1)
    level(west, east)
    east.cut()
    switching(east).promote(NAMES, may_fork=True)
    east.settle()
    east.mend()
    wait_until(lambda: closed(west), "commits are refused")
    assert not flies(west, 2)
    fly(east, 3)
    assert seen(east) == {1, 3}
    wait_until(lambda: set(parted(coordinator_of(west), west.tables().values())) == set(NAMES), "west is told")


def coordinator_of(cluster: Cluster) -> Coordinator:
    return cluster.node(cluster.names[0]).runtime.adapters.coordinator


@soon
def test_an_operator_lets_go_of_a_site_and_it_is_waited_for_again_when_it_is_back(west: Cluster, east: Cluster) -> None:
    waits(east, True)
    fly(west, 1)
    with pytest.raises(RefusedError, match="served by site west"):
        switching(east).let_go(NAMES, "west")
    east.cut()
    wait_until(lambda: closed(west), "commits are refused")
    assert switching(west).let_go(NAMES, "east") == NAMES
    wait_until(lambda: flies(west, 2), "commits go on")
    assert switching(west).let_go(NAMES, "east") == []
    east.mend()
    synced(west, "east")
    fly(west, 3)
    has(east, 1, 2, 3)


@drops
def test_a_site_that_may_be_dropped_is_and_whoever_takes_over_there_is_told(west: Cluster, east: Cluster) -> None:
    waits(east, True)
    fly(west, 1)
    has(east, 1)
    east.cut()
    synced(west)
    fly(west, 2)
    lose(west, east)
    switched = switching(east).promote(NAMES, may_fork=True)
    assert all("went on without this site" in s.lacks for s in switched)
    east.settle()
    assert seen(east) == {1}


@drops
def test_a_site_that_was_dropped_is_waited_for_again_when_it_is_back(west: Cluster, east: Cluster) -> None:
    fly(west, 1)
    east.cut()
    fly(west, *range(2, 6))  # what is in flight waits until the site is dropped
    synced(west)
    east.mend()
    synced(west, "east")
    waits(east, True)
    for number in range(6, 12):
        arrives(west, east, number)


@soon
def test_what_two_sites_did_becomes_one_history_and_commits_wait_for_it_again(west: Cluster, east: Cluster) -> None:
    """A record that was in flight when the line was cut is in one log only: a fork, which is merged as any other one
    is, though a caller still waits."""
    fly(west, 1)
    level(west, east)
    west.cut()
    east.cut()
    time.sleep(3 * POLL_S)
    caller = threading.Thread(target=flies, args=(west, 2), daemon=True)
    caller.start()
    switching(east, 1).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, 3)
    wait_until(lambda: closed(west), "commits are refused")
    west.mend()
    east.mend()
    found = restore(west, east)
    assert {r.phase for r in found.values()} <= {DONE}, found
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    synced(east, "west")
    fly(east, 4)
    assert seen(east) == {1, 2, 3, 4}
    has(west, 1, 2, 3, 4)


@drops
def test_what_is_merged_into_the_site_that_went_on_is_confirmed_too(west: Cluster, east: Cluster) -> None:
    """The epoch that stands on both branches is confirmed as any other one."""
    fly(west, 1)
    level(west, east)
    west.cut()
    east.cut()
    switching(east, 1).promote(NAMES, may_fork=True)
    east.settle()
    fly(east, *range(10, 20))
    fly(west, *range(20, 30))
    synced(west)
    west.mend()
    east.mend()
    found = restore(east, west)
    assert {r.phase for r in found.values()} <= {DONE}, found
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    synced(west, "east")
    fly(west, 30)
    assert seen(west) == {1, *range(10, 31)}
    has(east, 1, *range(10, 31))
