"""A node that hosts partitions in the very process that uses objects: work here, work there, reads of its own copy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import halog
from halog.runtime.node.open import RunningNode
from tests.integration.closed import NODE
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait
from tests.integration.objects.shop import Shelf
from tests.integration.site import Site

pytestmark = pytest.mark.timeout(600)

SHOP = "tests.integration.objects.shop"


@pytest.fixture
def both(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, RunningNode]]:
    """Node A is a process, node B is this one."""
    cluster = Cluster(
        tmp_path_factory.mktemp("here"),
        site,
        nodes="AB",
        partitions=4,
        async_=0,
        module="tests.integration.objects.shop",
    )
    try:
        cluster.launch("A")
        with halog.node(cluster.file_of(NODE, cluster.toml), name="B") as node:
            cluster.processes["A"].ready()
            wait(cluster.complete, "both host every partition")
            wait(lambda: all(t.active for t in cluster.tables()), "every partition is served")
            cluster.lead("p-0", "A")
            cluster.lead("p-1", "B")
            yield cluster, node
    finally:
        cluster.close()


@pytest.mark.feature("R5", "D1")
def test_methods_run_here_or_there_and_replica_reads_tell_their_lag(both: tuple[Cluster, RunningNode]) -> None:
    """The same code, whichever node is active; the copy here follows what is committed there."""
    cluster, node = both
    pids = set()
    for i in range(40):
        with node.transaction() as tx:
            shelf = tx.create(Shelf(f"s{i}", 1))
            pids.add(shelf.where())
            shelf.take(1)
    assert pids == {os.getpid(), cluster.processes["A"].pid}

    def level() -> bool:
        with node.transaction(read="local") as tx:
            stocks = [found.stock for i in range(40) if (found := tx.find(Shelf, f"s{i}")) is not None]
            assert tx.lag is not None
            assert tx.lag.records >= 0
            return stocks == [0] * 40

    wait(level, "the copy here is level")


@pytest.mark.feature("D1")
def test_reading_where_active_is_a_matter_of_microseconds(both: tuple[Cluster, RunningNode]) -> None:
    """200,000 reads a second are the bench's business; here only: no request leaves the process."""
    _, node = both
    node.load(Shelf(f"r{i}") for i in range(200))
    mine = [k for i in range(200) if node.backend.is_active(node.space.route(Shelf, (k := f"r{i}",)).partition)]
    assert mine
    best = 1.0
    for _ in range(200):  # some while nobody else has the CPU
        begin = time.perf_counter()
        with node.transaction() as tx:
            for key in mine:
                assert tx.get(Shelf, key).stock == 0
        best = min(best, (time.perf_counter() - begin) / len(mine))
    assert best < 100e-6
