"""Cuts, silence, delay and flapping between any two of node, broker, ZooKeeper and client, by proxies."""

from __future__ import annotations

import pytest

from tests.faults.clients import Clients
from tests.faults.judge import judge
from tests.faults.mesh import Mesh
from tests.faults.test_processes import SERVES_AGAIN_S, active, replica
from tests.integration.cluster.test_kill import whole_again

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("R4", "N4", "P10")]


@pytest.mark.promise(1)
@pytest.mark.quick_fault
def test_active_and_sync_replica_cannot_reach_each_other(mesh: Mesh) -> None:
    """Commits go on without the replica, or with the replica as active; healed, both are members again."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    with Clients(mesh.client, "cut") as clients:
        for link in mesh.between(one, other):
            link.cut()
        clients.flows(SERVES_AGAIN_S)
        mesh.heal()
        whole_again(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)
