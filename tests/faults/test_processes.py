"""kill -9 and SIGSTOP of nodes and clients, while clients work."""

from __future__ import annotations

import pytest

from tests.faults.clients import Clients
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.test_kill import whole_again

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("P10", "R1")]

SERVES_AGAIN_S = 5.0
"""After a node died or fell silent: suspicion takes 1.5 s here (harness), an election tens of ms."""


def active(cluster: Cluster, partition: str = "p-0") -> str:
    found = cluster.table(partition).active
    assert found is not None
    return found.node


def replica(cluster: Cluster, kind: str) -> str:
    return next(r.node for r in cluster.table("p-0").replicas if r.kind == kind)


@pytest.mark.promise(1)
@pytest.mark.quick_fault
@pytest.mark.parametrize("whom", ["active", "sync", "async"])
def test_kill_9(cluster: Cluster, whom: str) -> None:
    """Callers wait a moment; the dead node comes back into its place."""
    victim = active(cluster) if whom == "active" else replica(cluster, whom)
    with Clients(cluster.client(), f"kill-{whom}") as clients:
        cluster.kill(victim)
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        whole_again(cluster)
        clients.flows(SERVES_AGAIN_S)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)
