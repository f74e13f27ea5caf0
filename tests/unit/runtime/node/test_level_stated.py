"""Nodes state the cluster's level in their logs, and raise it again where a log states more (U1)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from halog.core.log import records
from halog.metadata import cluster_level
from halog.metadata.cluster_level import raise_level, read_level
from halog.runtime.store import encoding
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.host.test_faults import REGISTRY, Counter

pytestmark = [pytest.mark.nodes, pytest.mark.feature("U1")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Of a halog that knows level 2."""
    for module in (records, cluster_level, encoding):
        monkeypatch.setattr(module, "LEVEL", 2)
    with Cluster(2, partitions=3, registry=REGISTRY) as made:
        yield made


def stated(cluster: Cluster) -> list[int]:
    """What each copy has read of its history's level."""
    nodes = [cluster.node(name) for name in cluster.names]
    return [c.core.state.chain.state.level for node in nodes for c in node.runtime.copies.values()]


def committed(cluster: Cluster) -> None:
    with cluster.client().transaction() as tx:
        for i in range(6):
            tx.create(Counter(f"c{i}"))


def test_every_log_states_a_level_that_is_raised_and_a_restored_coordinator_lowers_nothing(cluster: Cluster) -> None:
    committed(cluster)
    assert set(stated(cluster)) == {1}
    coordinator = cluster.running["A"].coordinator
    raise_level(coordinator, 2, "ops", 5)
    wait_until(lambda: set(stated(cluster)) == {2}, "every copy has read it")
    found = cluster.tree.get("level")
    assert found is not None
    cluster.tree.set("level", json.dumps({"level": 1}).encode(), found.version)
    wait_until(lambda: read_level(coordinator).level == 2, "it is raised again")
    assert read_level(coordinator).by == "a log that states it"


def test_a_node_that_starts_raises_what_was_lost_while_nobody_ran(cluster: Cluster) -> None:
    raise_level(cluster.running["A"].coordinator, 2, "ops", 5)
    wait_until(lambda: set(stated(cluster)) == {2}, "every copy has read it")
    for name in cluster.names:
        cluster.kill(name)
    found = cluster.tree.get("level")
    assert found is not None
    cluster.tree.delete("level", found.version)
    for name in cluster.names:
        cluster.restart(name)
    wait_until(lambda: cluster.tree.get("level") is not None, "it stands again")
    assert read_level(cluster.running["A"].coordinator).level == 2
