"""Two changes of placement at once: objects change partitions while partitions change nodes, and one of them dies."""

from __future__ import annotations

import pytest

from halog.testing.cluster import wait_until
from tests.unit.runtime.keys.remapped import POLICY, Traffic, changed, check, cluster_of, mapping, wait_done

PATIENCE_S = 40.0


@pytest.mark.feature("P6", "P12", "P13")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("victim", ["A", "C", "D"])
def test_the_ring_changes_while_every_partition_migrates_and_a_node_dies(victim: str) -> None:
    """Applications use all of it meanwhile. Nothing is lost, doubled or misplaced, both changes are completed, and the
    node that is back has its place."""
    with cluster_of(4, move_objects=5) as cluster:
        traffic = Traffic(cluster.client(), 120)
        traffic.fill()
        with traffic.running(4):
            cluster.config = changed(cluster.config, ring_size=999)
            operators = cluster.node("B").runtime.operators
            operators.rebalance(POLICY, cluster.config)
            wished = {}
            for name, table in sorted(cluster.tables().items()):
                new = next(n for n in cluster.names if n not in table.configured)
                wished[name] = (new, *table.configured[1:])
                operators.migrate(name, wished[name])
            wait_until(lambda: mapping(cluster).next is not None or mapping(cluster).version == 1, "it is not open")
            cluster.kill(victim)
            wait_done(cluster, 1, PATIENCE_S)
            cluster.restart(victim)
            wait_until(lambda: all(t.target is None for t in cluster.tables().values()), "not moved", PATIENCE_S)
        traffic.finished()
        cluster.settle(PATIENCE_S)
        assert {name: t.configured for name, t in cluster.tables().items()} == wished
        check(cluster, cluster.config)
