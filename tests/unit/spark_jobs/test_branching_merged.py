"""Logs of histories that were merged and have parted once more: Spark's executors find what is found plainly (S1)."""

from __future__ import annotations

import pytest

from halog.core.log.chain_state import ChainState
from halog.metadata.restore_requests import DONE
from halog.ports import Entry, TopicPartition
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.node.paces import Paces
from halog.testing.cluster import Cluster
from restore.branch import side
from restore.branches import compared
from spark_jobs.branching import INITIATING, SIDES, SOURCE
from spark_jobs.snapshot import Place
from tests.unit.sites.test_restoring import mend, note, restore, split
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.two import east, fly, level, west
from tests.unit.spark_jobs.following import Job
from tests.unit.spark_jobs.test_classifying import as_row, classified, plainly

pytestmark = [pytest.mark.feature("S1", "M3"), pytest.mark.timeout(60)]
__all__ = ["east", "west"]


@pytest.fixture
def paces() -> Paces:
    return Paces(merges=MergePaces(close_s=5.0))


def check(west: Cluster, east: Cluster, size: int) -> int:
    """Of all partitions; how many keys both have found."""
    clusters, found = {SOURCE: east, INITIATING: west}, 0
    for name in NAMES:
        logs: dict[int, list[Entry]] = {}
        places: dict[int, Place] = {}
        sides = []
        for s in SIDES:
            table, log = clusters[s].tables()[name], clusters[s].node(clusters[s].names[0]).runtime.adapters.log
            site, tp = clusters[s].site, TopicPartition(table.topic, table.index)
            begin: ChainState = table.beginning(site)
            sides.append(side(site, log, tp, begin))
            logs[s] = list(log.read(tp, 0, sides[-1].end))
            places[s] = Place("p-0", 0, table.topic, "", table.log_id, site, begin.owner)
        expected = compared(*sides)
        job = Job(logs, places, size)
        parted, folded = job.run()
        assert (parted.forked, parted.lsn) == (expected.forked, expected.fork_lsn)
        assert job.before.get(SOURCE) == job.before.get(INITIATING)
        keys = sorted(map(plainly, classified(folded, [size], job.gone)), key=lambda row: row["key"])
        assert keys == [as_row(d) for d in expected.keys]
        found += len(keys)
    return found


def part(west: Cluster, east: Cluster) -> None:
    west.cut()
    east.cut()
    switching(west, 1).promote(NAMES, may_fork=True)
    west.settle()


@pytest.mark.parametrize("follows", [True, False])
def test_both_go_on_behind_a_merge_or_one_of_them_before_it_saw_it(west: Cluster, east: Cluster, follows: bool) -> None:
    """Who never followed the merge parts where it was closed: all that the merge did is the other one's branch."""
    fly(west, *range(6))
    split(west, east)
    for cluster in (east, west):
        for number in range(4):
            note(cluster, number, cluster.site)
    fly(west, 10)
    fly(east, 11)
    mend(west, east)
    assert check(west, east, 5) >= 6
    assert {r.phase for r in restore(west, east).values()} == {DONE}
    if follows:
        level(west, east)
    part(west, east)
    note(west, 1, "alone")
    fly(east, 40)
    mend(west, east)
    for size in (1, 7, 1_000):
        assert check(west, east, size) >= 2
