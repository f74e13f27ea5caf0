"""A cluster that has split into two, each of several nodes: which is the source, and which initiates, is said for each
partition (M4)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from halog.core.log.records import EpochMerged, decode
from halog.metadata.restore_requests import DONE
from halog.ports import TopicPartition
from halog.testing.cluster import Cluster
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import note, noted
from tests.unit.sites.test_restoring_hindered import reuniting_of
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import flights, fly, level

pytestmark = pytest.mark.feature("M4", "M2")


@pytest.fixture
def halves() -> Iterator[tuple[Cluster, Cluster]]:
    """Two sites of three nodes each, over which the partitions' active nodes are spread."""
    with (
        Cluster(3, partitions=6, registry=registry, site="west", others=("east",)) as west,
        Cluster(3, partitions=6, registry=registry, site="east", home=west) as east,
    ):
        west.see(east)
        yield west, east


def active(cluster: Cluster) -> dict[str, str]:
    """By partition."""
    return {name: t.active.node for name, t in cluster.tables().items() if t.active is not None and not t.owner}


def spread(cluster: Cluster) -> None:
    """Each node serves two partitions: which of them comes first is chance."""
    cluster.settle()
    operators = cluster.node(cluster.names[0]).runtime.operators
    for n, name in enumerate(sorted(cluster.tables())):
        if active(cluster)[name] != (node := cluster.names[n % 3]):
            operators.hand_over(name, node)
    cluster.settle()
    assert set(active(cluster).values()) == set(cluster.names)


def merged(cluster: Cluster) -> dict[str, int]:
    """How many merges a site's log holds, by partition."""
    log, found = cluster.node(cluster.names[0]).runtime.adapters.log, {}
    for name, table in cluster.tables().items():
        tp = TopicPartition(table.topic, table.index)
        entries = log.read(tp, 0, log.bounds(tp)[1])
        found[name] = sum(isinstance(decode(e.value), EpochMerged) for e in entries)
    return found


def test_each_side_is_the_source_of_some_partitions_and_initiates_others_at_the_same_time(
    halves: tuple[Cluster, Cluster],
) -> None:
    """Different nodes serve different partitions at both sides; each merges those it is the source of, once."""
    west, east = halves
    numbers = range(60)
    fly(west, *numbers)
    level(west, east)
    east.cut()
    names = sorted(west.tables())
    switching(east).promote(names, may_fork=True)
    spread(west), spread(east)
    for number in numbers:
        note(west, number, "west"), note(east, number, "east")
    fly(west, 100), fly(east, 200)
    east.mend()
    at_west, at_east = names[::2], names[1::2]
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(reuniting_of, east, west, at_west)
        other = pool.submit(reuniting_of, west, east, at_east)
        ended = {**one.result(60), **other.result(60)}
    assert ended == dict.fromkeys(names, DONE)
    west.settle(), east.settle()
    level(west, east)
    assert (sorted(active(west)), sorted(active(east))) == (at_west, at_east)
    assert merged(west) == merged(east) == dict.fromkeys(names, 1)
    stands_at = {n: west.site if west.partition_of(Flight, n) in at_west else east.site for n in numbers}
    assert noted(west) == noted(east) == stands_at | {100: "", 200: ""}
    fly(west, 300), fly(east, 301)  # each asks the other one for what that serves
    level(west, east)
    assert {300, 301} <= flights(west)
