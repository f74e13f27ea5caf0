"""R6: what a commit that returned has left on a sync replica, when that process is killed at that very moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from halog.adapters.rocks_store import RocksStore
from halog.runtime.objects import ObjectTable
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(180)]


def on_disk(cluster: Cluster, node: str, partition: str, under: Path | None = None) -> int:
    """The lsn a dead node's store ends with, or a copy of it in another directory."""
    store = RocksStore((under or cluster.directory) / node)
    try:
        log_id = bytes.fromhex(cluster.table(partition).log_id)
        position = ObjectTable(store, log_id, threading.RLock()).load_position()
        return 0 if position is None else position.state.lsn
    finally:
        store.close()


@pytest.mark.parametrize("policy", ["WRITE_NO_SYNC", "SYNC"])
def test_a_killed_replica_has_stored_all_it_acknowledged(make: Make, policy: str) -> None:
    """It is killed in the middle of the load, again and again; not one acknowledged commit is missing in its store."""
    cluster = make(nodes="AB", partitions=1, async_=0, local_sync="WRITE_NO_SYNC", remote_sync=policy)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "stored", pause_s=0.0) as load:
        for _ in range(3):
            table = cluster.table("p-0")
            (victim,) = (r.node for r in table.replicas)
            load.flows()
            acked = max(lsn for _, lsn in list(load.acked.values()))
            cluster.kill(victim)
            assert on_disk(cluster, victim, "p-0") >= acked
            cluster.start(victim)
            cluster.whole()
    assert load.errors == []
    check(cluster, load)
