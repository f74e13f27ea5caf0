"""On purpose: the active role changes hands, or a node leaves in order, and no caller notices."""

from __future__ import annotations

import pytest

from halog.errors import RefusedError, UnknownNameError
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.test_kill import whole_again

pytestmark = pytest.mark.timeout(600)


@pytest.mark.containers
@pytest.mark.feature("P10", "R1")
def test_a_partition_handed_over_back_and_forth_under_load(cluster: Cluster) -> None:
    """Each hand-over is the last record of its epoch, the next is opened by the named node; nobody gets an error."""
    with Load(cluster.client(), "hand") as load:
        before = times_handed(cluster)
        for _ in range(2):
            for to in cluster.table("p-0").configured:
                cluster.lead("p-0", to)
        load.flows()
    assert load.errors == []
    assert times_handed(cluster) >= before + 4
    check(cluster, load)


def times_handed(cluster: Cluster) -> int:
    return check(cluster, copies=False)["p-0"].kinds.count("HandedOver")


@pytest.mark.feature("P10", "P1")
def test_only_an_available_replica_is_handed_the_partition(cluster: Cluster) -> None:
    """An unknown node and the active node itself are refused, and nothing changes."""
    cluster.in_place()
    before = cluster.table("p-0")
    for to, error in (("X", UnknownNameError), (before.node_list[0], RefusedError)):
        with pytest.raises(error):
            cluster.client().runtime.operators.hand_over("p-0", to)
    assert cluster.table("p-0") == before


@pytest.mark.feature("P10", "R1", "R5")
def test_a_terminated_active_hands_over_and_leaves(cluster: Cluster) -> None:
    """SIGTERM under load: exit code 0, its registration is gone, every partition it led was handed over, and callers
    have seen nothing."""
    leader = cluster.table("p-0").node_list[0]
    led = cluster.led_by(leader)
    assert led
    before = check(cluster, copies=False)
    with Load(cluster.client(), "term") as load:
        assert cluster.processes[leader].terminate() == 0
        assert leader not in cluster.registered()
        assert cluster.led_by(leader) == []
        load.flows()
        cluster.start([leader])
        whole_again(cluster)
        load.flows()
    assert load.errors == []
    after = check(cluster, load)
    for partition in led:
        assert after[partition].kinds.count("HandedOver") > before[partition].kinds.count("HandedOver")
