"""R6: what a commit that returned has left on a sync replica, when that process is killed at that very moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from halog.adapters.rocksdb.store import RocksStore
from halog.core.log.records import Commit, decode
from halog.core.state.tail import Tail
from halog.runtime.store.object_table import ObjectTable
from tests.integration.cluster.checker import check, entries
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(600)]

BOTH = pytest.mark.parametrize("policy", ["WRITE_NO_SYNC", pytest.param("SYNC", marks=pytest.mark.long)])
"""For SYNC there are other quick tests: in `test_durability.py`, and in `tests/faults/test_survives.py`."""


def on_disk(cluster: Cluster, node: str, partition: str, under: Path | None = None) -> int:
    """The lsn a dead node's store ends with, or a copy of it in another directory: the pushed records counts."""
    store = RocksStore((under or cluster.directory) / node)
    try:
        log_id = bytes.fromhex(cluster.table(partition).log_id)
        objects = ObjectTable(store, log_id, threading.RLock())
        position, tail = objects.load_position(), Tail()
        if position is None:
            return 0
        tail.adopt(objects.pushed.load(), position.state)
        return tail.tip if tail.run and tail.joins(position.state) else position.state.lsn
    finally:
        store.close()


@BOTH
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


@pytest.mark.feature("R6", "R1")
@BOTH
def test_what_a_replica_acknowledged_while_the_log_stood_still_outlives_all_processes(make: Make, policy: str) -> None:
    """Both nodes are killed, and the broker with what it was sent and has not read: a replica's store alone has it."""
    cluster = make(nodes="AB", partitions=1, async_=0, local_sync="NO_SYNC", remote_sync=policy)
    cluster.timed(append_deadline_ms=30_000)  # no epoch is given up while the broker stands still
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "before") as load:
        load.flows()
    (replica,) = (r.node for r in cluster.table("p-0").replicas)
    site, acknowledged = cluster.site, dict[bytes, int]()
    site.pause("kafka")
    try:
        for number in range(5):
            with cluster.client().transaction() as tx:
                tx.create(Aircraft(tail=f"pushed-{number}"))
            assert tx.id is not None
            assert tx.lsn is not None
            acknowledged[tx.id] = tx.lsn
        for do in (cluster.freeze, cluster.kill):  # none of them is to see the other one die
            for node in "AB":
                do(node)
        assert on_disk(cluster, replica, "p-0") == max(acknowledged.values())
    finally:
        site.kill("kafka")
        site.start_server("kafka")
    cluster.whole()
    history = check(cluster, load)["p-0"]
    assert {tx: history.ids[tx] for tx in acknowledged} == {tx: [lsn] for tx, lsn in acknowledged.items()}
    table = cluster.table("p-0")
    logged = [decode(data) for _, data in entries(site.info.bootstrap, table.topic, table.index)]
    again = {r.header.tx for r in logged if isinstance(r, Commit) and r.origin is not None}
    assert acknowledged.keys() <= again, "the log had them: this shows nothing"
    assert not any("HALOG-1019" in cluster.log_of(node) for node in "AB")
