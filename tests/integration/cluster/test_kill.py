"""kill -9 under load: nothing acknowledged is lost or doubled, and nobody but the log is asked."""

from __future__ import annotations

import pytest

from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(180)


@pytest.mark.feature("P10", "R1", "P1")
def test_a_killed_active_is_replaced_and_comes_back_into_its_place(cluster: Cluster) -> None:
    """The next node is active, the dead one leaves the node list; restarted it reads only what it missed, and stands
    again where the configuration places it."""
    led = cluster.led_by("A")
    assert led
    with Load(cluster.client(), "kill") as load:
        cluster.kill("A")
        load.flows()
        for table in cluster.tables():
            assert table.active is not None
            assert table.active.node in table.configured
            assert "A" not in table.node_list
        cluster.start("A")
        wait(lambda: all(cluster.complete(t) for t in cluster.tables()), "A is in every node list again")
        load.flows()
    assert load.errors == []
    for table in cluster.tables():
        others = [n for n in table.configured if table.active is None or n != table.active.node]
        assert [r.node for r in table.replicas] == others, "the configured order"
        assert [r.kind for r in table.replicas] == ["sync", "async"]
    check(cluster, load)
