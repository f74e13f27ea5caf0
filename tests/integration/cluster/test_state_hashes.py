"""`halog doctor` compares the copies of real nodes, and finds the one whose store was altered (U1)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from halog.adapters.rocksdb.store import RocksStore
from halog.runtime.store.object_table import position_key
from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait

pytestmark = [pytest.mark.feature("U1"), pytest.mark.timeout(600)]


@pytest.fixture
def cluster(make: Make) -> Cluster:
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    cluster.whole()
    return cluster


def copies(cluster: Cluster, *args: str, exit_code: int = 0) -> list[dict[str, Any]]:
    """What the doctor says of copies, once every node that is up has answered in time, and has caught up."""
    argv = ["halog.cli.main", "doctor", *args, "--config", str(cluster.toml), "--format", "json"]
    up = {f"{node} says nothing of " for node in cluster.running()}
    found: list[dict[str, Any]] = []

    def told() -> bool:
        ran = forked.run(argv, timeout=120)
        checks = json.loads(ran.stdout)["checks"]
        found[:] = [c for c in checks if c["name"] == "copies"]
        said = [c["detail"] for c in found]
        if any(text in detail for detail in said for text in (*up, "has none in common with others")):
            return False
        assert ran.returncode == exit_code, ran.stdout + ran.stderr
        return True

    wait(told, lambda: f"every node answers the doctor: {found}", 90)
    return found


def alter(cluster: Cluster, node: str, partition: str, *, counted_anew: bool) -> None:
    """Change the last byte of one value in the store of a node that is down."""
    log_id = bytes.fromhex(cluster.table(partition).log_id)
    store = RocksStore(cluster.directory / node)
    try:
        key, data = next(iter(store.scan(log_id[:8] + b"k")))
        items: list[tuple[bytes, bytes | None]] = [(key, data[:-1] + bytes((data[-1] ^ 1,)))]
        if counted_anew:
            at = position_key(log_id)
            position = msgspec.msgpack.decode(store.get(at) or b"")
            assert len(position.pop("state_hash")) == 16
            items.append((at, msgspec.msgpack.encode(position)))
        store.write(items, flush=True)
    finally:
        store.close()


@pytest.mark.parametrize("deep", [True, False], ids=["by a look at what is stored", "by the hash"])
def test_a_store_with_one_altered_value_is_found_and_its_node_makes_it_anew(cluster: Cluster, deep: bool) -> None:
    """The hash that a store keeps is that of the log: what was altered below it, only a look at all that is stored
    finds. A node that counts its objects has the altered one in its hash."""
    args = ("--deep",) if deep else ()
    with Load(cluster.client(), "before") as load:
        load.flows(60)
        cluster.whole()
        (found,) = copies(cluster, *args)
        assert (found["result"], found["detail"][:24]) == ("ok", "4 copies of 2 partitions"), found
    partition = "p-0"
    cluster.whole()
    node = next(n for n in "AB" if n != cluster.table(partition).node_list[0])
    assert cluster.processes[node].terminate() == 0
    alter(cluster, node, partition, counted_anew=not deep)
    cluster.start([node])
    cluster.whole()
    (wrong,) = copies(cluster, *args, exit_code=4)
    other = "B" if node == "A" else "A"
    said = {
        True: f"the store of {node} does not hold what was written to it of {partition}, at lsn ",
        False: f"copy of {partition} on {node} differs from {other}'s at lsn ",
    }
    assert wrong["result"] == "fail"
    assert wrong["detail"].startswith(said[deep])
    assert wrong["advice"].startswith(f"stop {node}, move its data_dir aside, start it")
    assert cluster.processes[node].terminate() == 0
    (cluster.directory / node).rename(cluster.directory / f"{node}-aside")
    cluster.start([node])
    cluster.whole()
    assert [found["result"] for found in copies(cluster, "--deep")] == ["ok"]
    check(cluster, load)


def test_a_node_that_is_down_is_named_and_is_no_difference(cluster: Cluster) -> None:
    cluster.kill("B")
    cluster.client()
    found = copies(cluster)
    assert [f["result"] for f in found] == ["warn"]
    assert found[0]["detail"].startswith("B says nothing of 2 copies: ")
