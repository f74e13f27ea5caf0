"""What the tests of this suite share: who is who in a cluster, and within what time it must serve again."""

from __future__ import annotations

from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait

SERVES_AGAIN_S = 30.0
"""After a node died or fell silent: suspicion takes 1.5 s here (harness), an election tens of ms; the rest is a busy
machine. A call is given up after 40 s: who waited for that, or for an operator, is found out. How long it takes is told
by benchmarks."""
GIVES_UP_S = 35.0
"""After the log fell silent: the append deadline is 5 s, then an epoch is begun anew."""
SERVER_BACK_S = 35.0
"""After a server answers again: sessions, producers and consumers are made anew."""


def active(cluster: Cluster, partition: str = "p-0") -> str:
    """The node that should be active."""
    found = cluster.table(partition).active
    assert found is not None, f"nobody is active for {partition}"
    return found.node


def replica(cluster: Cluster, kind: str, partition: str = "p-0") -> str:
    return next(r.node for r in cluster.table(partition).replicas if r.kind == kind)


def epochs(cluster: Cluster) -> dict[str, int]:
    return {t.name: t.epoch.number for t in cluster.tables()}


def complete(cluster: Cluster, limit_s: float = 90.0) -> None:
    """Every partition has its whole node list again."""
    wait(cluster.complete, "every node list is complete again", limit_s)


def replaced(cluster: Cluster, node: str, limit_s: float = SERVES_AGAIN_S) -> None:
    """The node is active for nothing."""
    wait(lambda: cluster.led_by(node) == [], f"{node} is replaced", limit_s)
