"""Local NO_SYNC with real processes: what the replicas acknowledged outlives the active, log or no log (R6)."""

from __future__ import annotations

import pytest

from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(180)]


@pytest.fixture
def unlogged(make: Make) -> Cluster:
    cluster = make(nodes="ABC", partitions=3, sync=1, async_=1, local_sync="NO_SYNC")
    cluster.start()
    cluster.whole()
    return cluster


@pytest.mark.feature("R1", "P10")
def test_active_nodes_are_killed_in_turn_and_nothing_acknowledged_is_missing(unlogged: Cluster) -> None:
    with Load(unlogged.client(), "turn", pause_s=0.0) as load:
        for node in "ABC":
            load.flows(40)
            unlogged.kill(node)
            load.flows(40)
            unlogged.start([node])
            unlogged.whole()
    assert load.errors == []
    check(unlogged, load)
