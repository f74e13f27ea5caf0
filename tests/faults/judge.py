"""What must hold after every fault: nothing acknowledged is lost, nothing failed is seen, every copy
holds what the log says, what clients saw has an explanation, and no thread, file or znode is left over.

The log, its lsns and hash chain, and the copies are compared by the integration tests' judge, which shares no code with
halog's readers.
"""

from __future__ import annotations

from tests.faults.clients import Clients, History
from tests.faults.leaks import given_back
from tests.faults.recorder import Pair
from tests.faults.verdict import explained, told_the_truth
from tests.integration.cluster import checker
from tests.integration.cluster.harness import Cluster


def judge(cluster: Cluster, clients: Clients, *others: History, copies: bool = True) -> list[Pair]:
    """Everything; the transactions that were judged, for what a test wants to know besides."""
    assert clients.errors == []
    clients.read_all(cluster.client())
    found = [p for h in (clients, *others) for p in h.pairs()]
    settled = checker.check(cluster, copies=copies)
    given_back(cluster, {pid: held for h in (clients, *others) for pid, held in h.before.items()})
    told_the_truth(found, settled)
    explained(found)
    return found
