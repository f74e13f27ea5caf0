"""What tests of requests to other sites do."""

from __future__ import annotations

from typing import Any, Final

from halog.runtime.sites.switchover import Switchover
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight

NAMES: Final = [f"test-{i}" for i in range(3)]
AT_ONCE_S: Final = 12.0
"""Less than a call's deadline of 15 s, and more than two attempts of 1 s on a busy machine."""


def promote(cluster: Cluster, *names: str, may_fork: bool = False) -> None:
    adapters = cluster.node(cluster.names[0]).runtime.adapters
    switching = Switchover(adapters.coordinator, cluster.site, adapters.reach, 10)
    switching.promote(names or NAMES, may_fork=may_fork)
    cluster.settle()


def demote(cluster: Cluster, to: str) -> None:
    adapters = cluster.node(cluster.names[0]).runtime.adapters
    Switchover(adapters.coordinator, cluster.site, adapters.reach, 10).demote(NAMES, to)
    wait_until(lambda: not any(t.active for t in cluster.tables().values()), "it stops")


def apart(cluster: Cluster) -> tuple[int, int]:
    """Two flights that are not in one partition."""
    first = cluster.partition_of(Flight, 0)
    return 0, next(n for n in range(100) if cluster.partition_of(Flight, n) != first)


def rename(node: Any, number: int, note: str) -> None:
    with node.transaction() as tx:
        tx.get(Flight, number).note = note


def note(node: Any, number: int) -> str:
    with node.transaction() as tx:
        return str(tx.get(Flight, number).note)
