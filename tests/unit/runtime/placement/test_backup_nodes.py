"""A policy over two zones whose backup nodes have the replicas, on a running cluster (P5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from halog.config import TimingConfig, ZoneConfig
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("P5", "P1")

BACKUP = {"C", "D"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(4, partitions=6, registry=REGISTRY)
    zones = {"west": ZoneConfig(("A", "B")), "east": ZoneConfig(("C", "D"))}
    policy = dataclasses.replace(
        made.config.policies["test"], zone="", zones=("west", "east"), backup=("[CD]",), async_replicas=0
    )
    made.config = dataclasses.replace(
        made.config, zones=zones, policies={"test": policy}, timing=TimingConfig(min_stay_ms=100)
    ).validate()
    with made:
        yield made


def leaders(cluster: Cluster) -> set[str]:
    return {t.active.node for t in cluster.tables().values() if t.active is not None}


def test_backup_nodes_take_over_and_give_the_role_back(cluster: Cluster) -> None:
    placed = [t.configured for t in cluster.tables().values()]
    assert sorted(nodes[0] for nodes in placed) == ["A"] * 3 + ["B"] * 3
    assert {nodes[1] for nodes in placed} == BACKUP
    with cluster.client().transaction() as tx:
        for i in range(12):
            tx.create(Counter(str(i), i))
    for name in "AB":
        cluster.kill(name)
    wait_until(lambda: leaders(cluster) == BACKUP, "the backup nodes do not take over")
    with cluster.client().transaction() as tx:
        assert sum(c.value for c in tx.extent(Counter)) == sum(range(12))
    for name in "AB":
        cluster.restart(name)
    wait_until(lambda: leaders(cluster) == {"A", "B"}, "the primary nodes are not active again")
    cluster.settle()
    assert [t.configured for t in cluster.tables().values()] == placed
