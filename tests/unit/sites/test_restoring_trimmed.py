"""A merge for which one of the logs does not go back far enough is refused before anything is closed (M2, M3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import RefusedError
from halog.metadata import log_holds as retention
from halog.metadata.restore_requests import DONE, restore_of
from halog.ports import TopicPartition
from halog.testing.cluster import Cluster, wait_until
from restore.divergence import Fork, compare, history_of, part_of
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.snapshotting import BY_HAND, on
from tests.unit.sites.test_restoring import coordinator, mend, note, noted, split
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, owners
from tests.unit.sites.two import fly, level, states, west

pytestmark = pytest.mark.feature("M2", "M3", "R8")
__all__ = ["west"]


@pytest.fixture
def east(west: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Both sites keep one record behind a snapshot."""
    west.config = replace(west.config, snapshot=BY_HAND)
    with Cluster(2, partitions=3, registry=registry, site="east", home=west) as cluster:
        cluster.config = replace(cluster.config, snapshot=BY_HAND)
        yield cluster


def parted(west: Cluster, east: Cluster) -> dict[str, int]:
    """Both went on, far; by partition, the last lsn of both."""
    fly(west, *range(12))
    split(west, east)
    for _ in range(3):
        for number in range(12):
            note(west, number, "west"), note(east, number, "east")
    fly(west, 100), fly(east, 200)
    mend(west, east)
    return {name: parted_at(states(west)[name], states(east)[name]) for name in NAMES}


def parted_at(one: ChainState, other: ChainState) -> int:
    found = compare(history_of(one), history_of(other))
    assert isinstance(found, Fork)
    return found.at[0].lsn


def trim(cluster: Cluster, name: str, lsn: int, *, dies: bool = False) -> int:
    """Behind a snapshot, as an active node does it once nobody holds the log any more, so that the record with this
    lsn is the first one; its offset. `dies`: it has only announced it."""
    node = next(n for n in cluster.names if on(cluster, n, name)[1].serving)
    taker, copy = on(cluster, node, name)
    taker.take(copy)
    log, table = cluster.node(cluster.names[0]).runtime.adapters.log, cluster.tables()[name]
    tp = TopicPartition(table.topic, table.index)
    begin, end = log.bounds(tp)
    is_part = part_of(history_of(copy.core.state.chain.state))
    headers = ((records.decode(e.value).header, e.offset) for e in log.read(tp, begin, end))
    lsns = {header.lsn: offset for header, offset in headers if is_part((header.epoch, header.lsn))}
    for held in retention.holds(coordinator(cluster), name):
        retention.release(coordinator(cluster), name, held)
    offset = retention.allowed(coordinator(cluster), name, lsns[lsn])
    assert offset == lsns[lsn]
    if not dies:
        log.trim(tp, offset)
    return offset


def notes(cluster: Cluster) -> dict[int, str]:
    """As its active nodes have them."""
    with cluster.client().transaction() as tx:
        return {f.number: f.note for f in tx.extent(Flight)}


def unchanged(west: Cluster, east: Cluster) -> bool:
    asked = [restore_of(coordinator(c), name) for c in (west, east) for name in NAMES]
    return owners(west) == owners(east) == {""} and asked == [None] * len(asked)


@pytest.mark.parametrize("trimmed", ["west", "east"])
def test_it_is_refused_with_what_is_missing_and_where_and_nothing_is_changed(
    west: Cluster, east: Cluster, trimmed: str
) -> None:
    forks = parted(west, east)
    at, name = {"west": west, "east": east}[trimmed], NAMES[-1]
    fork = forks[name]
    offset = trim(at, name, fork + 2)
    before = notes(west), notes(east)
    said = (
        rf"partition {name}: the log of site {trimmed} goes back to lsn {fork + 2} \(offset {offset}\), and the "
        rf"histories of west and east parted behind lsn {fork}.*Nothing was changed.*halog site demote --to east"
    )
    with pytest.raises(RefusedError, match=said) as refused:
        reuniting(west, east)
    assert refused.value.evidence == {
        "partition": name,
        "site": trimmed,
        "begins": offset,
        "first_lsn": fork + 2,
        "parted_behind": fork,
    }
    assert unchanged(west, east)
    note(west, 1, "serves on"), note(east, 2, "serves on, too")
    assert notes(west) == before[0] | {1: "serves on"}
    assert notes(east) == before[1] | {2: "serves on, too"}


@pytest.mark.parametrize("trimmed", ["west", "east", "both"])
def test_logs_that_begin_with_what_each_did_first_are_merged(west: Cluster, east: Cluster, trimmed: str) -> None:
    forks = parted(west, east)
    for cluster in (west, east):
        for name in NAMES if trimmed in (cluster.site, "both") else ():
            trim(cluster, name, forks[name] + 1)
    assert set(reuniting(west, east).values()) == {DONE}
    wait_until(lambda: owners(west) == {"east"}, "west follows")
    level(west, east)
    assert noted(west) == noted(east)
    assert {100, 200} <= noted(east).keys()


def test_a_log_that_could_be_trimmed_meanwhile_is_held(west: Cluster, east: Cluster) -> None:
    """Between the look and the merge."""
    forks = parted(west, east)
    for cluster in (west, east):
        for name in NAMES:
            trim(cluster, name, forks[name] + 1)
    reuniting(west, east)
    for cluster, other in ((west, "east"), (east, "west")):
        for name in NAMES:
            assert f"merge-{other}" in retention.holds(coordinator(cluster), name)


@pytest.mark.parametrize("announced", [False, True])
def test_a_site_that_did_nothing_is_not_closed_for_what_is_gone_at_the_other_one(
    west: Cluster, east: Cluster, announced: bool
) -> None:
    """Closing would be the fork: its nodes end their epoch by a record that the other site has not. `announced`: a node
    died between saying that it would trim, and doing so."""
    fly(west, *range(12))
    split(west, east)
    for _ in range(3):
        for number in range(12):
            note(east, number, "east")
    mend(west, east)
    name = NAMES[-1]
    fork = states(west)[name].lsn
    trim(east, name, fork + 3, dies=announced)
    with pytest.raises(RefusedError, match=rf"the log of site east goes back to lsn {fork + 3} .*Nothing was changed"):
        reuniting(west, east)
    assert unchanged(west, east)
