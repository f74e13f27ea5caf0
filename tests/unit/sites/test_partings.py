"""Two sites have both gone on: where they parted, and how much each has touched since, is told and kept up (M1)."""

from __future__ import annotations

import pytest

from halog.core.log.chain import ChainState
from halog.errors import LogError
from halog.events import Event
from halog.ports import TopicPartition
from halog.runtime.node.paces import Paces
from halog.runtime.sites import split_watch as splits
from halog.runtime.sites.site_paces import SitePaces
from halog.runtime.sites.split_watch import Split
from halog.runtime.topics.topic_names import events_topic
from halog.testing.cluster import Cluster, wait_until
from restore import touched
from tests.unit.sites.test_restoring import drop, mend, note, restore, split
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.two import east, fly, level, states, west

pytestmark = pytest.mark.feature("M1")
__all__ = ["east", "west"]


OFTEN = SitePaces(watch_s=0.05, count_s=0.05, recount_s=0.1)


@pytest.fixture
def paces() -> Paces:
    """Nothing waits for its next look."""
    return Paces(OFTEN)


def told(cluster: Cluster) -> dict[str, Split]:
    return splits.parted(cluster.node(cluster.names[0]).runtime.adapters.coordinator, cluster.tables().values())


def known_ms(parted: Split) -> int:
    assert parted.there is not None
    return parted.there.at_ms


def objects(cluster: Cluster) -> tuple[int, int]:
    """(touched here, touched there), all partitions together; (-1, -1) while it is not known of all of them."""
    found = [p for p in told(cluster).values() if p.here is not None and p.there is not None]
    if len(found) < len(NAMES):
        return -1, -1
    return sum(p.here.objects for p in found if p.here), sum(p.there.objects for p in found if p.there)


def counts(cluster: Cluster, here: int, there: int) -> None:
    wait_until(lambda: objects(cluster) == (here, there), f"{cluster.site} has not told {here} here, {there} there")


def ends(cluster: Cluster) -> dict[str, ChainState]:
    return states(cluster)


def test_both_sites_tell_where_they_parted_and_what_each_has_touched(west: Cluster, east: Cluster) -> None:
    """An object counts once, however often it was written; what is deleted counts; and it goes on as they go on."""
    fly(west, *range(10))
    split(west, east)
    fork = {name: s.lsn for name, s in ends(west).items()}
    fly(west, *range(10, 15)), note(west, 10, "again"), note(west, 1, "west"), drop(west, 2)
    fly(east, *range(20, 23)), note(east, 1, "east")
    mend(west, east)
    counts(west, 7, 4), counts(east, 4, 7)
    for cluster in (west, east):
        assert {name: p.fork.lsn for name, p in told(cluster).items() if p.fork} == fork
        assert {p.fork.site for p in told(cluster).values() if p.fork} == {"west"}
        assert not any(side.at_least for p in told(cluster).values() for side in (p.here, p.there) if side)
    fly(west, 30), note(west, 11, "later"), note(east, 3, "later")
    counts(west, 8, 5), counts(east, 5, 8)


def test_it_is_told_as_an_event_once_with_the_numbers(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    split(west, east)
    fly(west, 10), fly(east, 11, 12)
    mend(west, east)
    counts(west, 1, 2)
    fly(east, 13)
    counts(west, 1, 3)
    wait_until(lambda: len(numbers(west)) >= len(NAMES), "it is written")
    found = numbers(west)
    assert {e.partition for e in found} == set(NAMES)
    assert len(found) == len(NAMES)
    assert sum(int(e.more["here"]) for e in found) == 1
    assert all(f"behind lsn {e.more['fork']}" in e.text for e in found)


def test_a_site_that_has_stopped_tells_it_too_and_so_does_the_one_that_serves(west: Cluster, east: Cluster) -> None:
    fly(west, *range(10))
    split(west, east)
    fly(west, *range(10, 40)), fly(east, *range(50, 70))
    mend(west, east)
    switching(west).demote(NAMES, "east")
    wait_until(lambda: all(t.owner == "east" for t in west.tables().values()), "west has stopped")
    counts(west, 30, 20)
    counts(east, 20, 30)
    fly(east, 80)
    counts(west, 30, 21)
    counts(east, 21, 30)


def test_what_is_one_again_has_no_numbers_left(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 11)
    mend(west, east)
    counts(west, 1, 1), counts(east, 1, 1)
    restore(west, east)
    level(west, east)
    for cluster in (west, east):
        wait_until(lambda c=cluster: not children(c), "it is still told")  # type: ignore[misc]


def test_a_site_that_cannot_be_reached_any_more_is_told_as_it_was_known(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 11, 12)
    mend(west, east)
    counts(west, 1, 2)
    west.cut(), east.cut()
    fly(west, 13), fly(east, 14)
    counts(west, 2, 2)
    wait_until(lambda: all("east" in p.why for p in told(west).values()), "it is not said why")
    was = {name: known_ms(p) for name, p in told(west).items()}
    mend(west, east)
    counts(west, 2, 3)
    wait_until(lambda: not any(p.why for p in told(west).values()), "it is known again")
    assert all(known_ms(p) > was[name] for name, p in told(west).items())


def test_another_node_counts_on_where_the_active_one_died(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    fly(west, *range(10, 20)), fly(east, 30)
    mend(west, east)
    counts(west, 10, 1)
    west.kill(west.names[1])
    west.settle()
    fly(west, 20)
    counts(west, 11, 1)
    wait_until(lambda: {p.by for p in told(west).values()} == {west.names[0]}, "it counts each of them")


@pytest.mark.parametrize("paces", [Paces(OFTEN._replace(most=4))])
def test_beyond_the_limit_it_is_a_lower_bound(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    fly(west, *range(10, 60)), fly(east, *range(60, 63))
    mend(west, east)
    wait_until(lambda: objects(west)[0] > 0, "nothing is told")
    for p in told(west).values():
        assert p.here is not None
        assert (p.here.at_least, p.here.objects <= 4) == (True, True)


def test_a_log_that_cannot_be_read_up_to_the_fork_is_said(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And looked at again later, not again and again; that they have parted is told all the same."""
    begun: list[str] = []
    count_behind = touched.TouchCounter.count_behind

    def broken(self: touched.TouchCounter, place: object) -> object:
        begun.append(self.site)
        raise LogError("it was trimmed")

    monkeypatch.setattr(touched.TouchCounter, "count_behind", broken)
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 11)
    mend(west, east)
    wait_until(lambda: [p.why for p in told(west).values()] == ["it was trimmed"] * len(NAMES), "it is not said")
    assert not any(p.fork for p in told(west).values())
    monkeypatch.setattr(touched.TouchCounter, "count_behind", count_behind)
    counts(west, 1, 1)


def numbers(cluster: Cluster) -> list[Event]:
    node = cluster.node(cluster.names[0])
    tp = TopicPartition(events_topic(cluster.config.cluster.name), 0)
    log = node.runtime.adapters.log
    events = [Event.from_bytes(e.value) for e in log.read(tp, 0, log.bounds(tp)[1])]
    return [e for e in events if e.code == "HALOG-1047"]


def children(cluster: Cluster) -> list[str]:
    """Partitions of which something is told, whether or not it holds."""
    return cluster.node(cluster.names[0]).runtime.adapters.coordinator.children("parted")
