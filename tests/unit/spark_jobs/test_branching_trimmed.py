"""Logs whose beginnings are trimmed: executors follow them from their snapshots on, and find the same (S1, M3)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from halog.errors import LogError
from halog.ports import Log, TopicPartition
from halog.runtime.host.snapshotter import Snapshots
from halog.runtime.topics.topic_names import state_topic
from halog.testing.cluster import Cluster
from restore.branch import Side, read_on
from restore.branches import compared
from spark_jobs.branching import INITIATING, SOURCE
from spark_jobs.snapshot import Place, begins_at
from tests.unit.sites.model import Flight
from tests.unit.sites.snapshotting import BY_HAND, on, second_site
from tests.unit.sites.test_restoring import mend, note, split
from tests.unit.sites.test_switching import NAMES
from tests.unit.sites.two import fly, level, west
from tests.unit.spark_jobs.following import Job
from tests.unit.spark_jobs.test_classifying import as_row, classified, plainly

pytestmark = [pytest.mark.feature("S1", "M3", "M5"), pytest.mark.timeout(60)]
__all__ = ["west"]


@pytest.fixture
def east(west: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Only the test takes snapshots."""
    monkeypatch.setattr(Snapshots, "tend", lambda self, copies: None)
    with second_site(west, BY_HAND) as cluster:
        yield cluster


def trim(cluster: Cluster) -> None:
    """Every log, as far as a snapshot of it goes."""
    for name in NAMES:
        active = cluster.tables()[name].active
        taker, copy = on(cluster, cluster.names[0] if active is None else active.node, name)
        taker.take(copy)
        place = place_of(cluster, name)
        taker.log.trim(copy.tp, begins_at(Marked(taker.log), place)[0].next_offset)
        assert taker.log.bounds(copy.tp)[0] > 0


class Marked:
    """A log, as if it had been trimmed."""

    def __init__(self, log: Log) -> None:
        self.read_keyed = log.read_keyed
        self._log = log

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        return 1, self._log.bounds(tp)[1]


def place_of(cluster: Cluster, name: str) -> Place:
    table = cluster.tables()[name]
    begin = table.beginning(cluster.site)
    state = state_topic(cluster.config, table.policy)
    return Place(name, table.index, table.topic, state, table.log_id, cluster.site, begin.owner)


def job_of(name: str, west: Cluster, east: Cluster, size: int) -> tuple[Job, list[Side]]:
    """And the sides as one process has them, from there as well."""
    logs, places, begin, sides = {}, {}, {}, []
    for s, cluster in ((SOURCE, east), (INITIATING, west)):
        log, place = cluster.node(cluster.names[0]).runtime.adapters.log, place_of(cluster, name)
        tp = TopicPartition(place.log, place.index)
        at, end = begins_at(log, place)
        begin[s] = at
        sides.append(read_on(Side(cluster.site, log, tp, at.state, at.next_offset), end))
        logs[s] = list(log.read(tp, at.next_offset, end))
        places[s] = msgspec.structs.replace(place, name="p-0", index=0)
    return Job(logs, places, size, begin), sides


def test_it_begins_at_the_snapshots_of_both_sites(west: Cluster, east: Cluster) -> None:
    fly(west, *range(9))
    level(west, east)
    trim(west), trim(east)
    fly(west, 20)
    split(west, east)
    for cluster in (east, west):
        for number in range(6):
            note(cluster, number, cluster.site if number % 2 else "alike")
    fly(west, 30), fly(east, 31)
    mend(west, east)
    touched = 0
    for name in NAMES:
        for size in (1, 5, 1_000):
            job, sides = job_of(name, west, east, size)
            expected, (found, folded) = compared(*sides), job.run()
            assert found.forked
            assert found.lsn == expected.fork_lsn
            keys = sorted(map(plainly, classified(folded, [size], job.gone)), key=lambda row: row["key"])
            assert keys == [as_row(d) for d in expected.keys]
            touched += len(keys)
    assert touched == 3 * 8


def test_histories_that_parted_before_the_snapshot_cannot_be_read_forwards(west: Cluster, east: Cluster) -> None:
    fly(west, *range(9))
    split(west, east)
    note(west, 1, "west"), note(east, 1, "east")
    trim(west)
    mend(west, east)
    name = west.partition_of(Flight, 1)
    with pytest.raises(LogError, match="before their snapshots"):
        job_of(name, west, east, 5)[0].run()
