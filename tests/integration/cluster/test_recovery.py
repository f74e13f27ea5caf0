"""ZooKeeper's data are lost, Kafka's and the nodes' are not: nothing is begun anew over them, and `halog recover` finds
the cluster again (R1, R6, P10)."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rocksdict
from kazoo.exceptions import NotEmptyError

from halog.adapters.rocksdb.options import options
from halog.embedded import EmbeddedSite
from tests import forked
from tests.faults.dying import run_dying
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_quorum import halog

pytestmark = [pytest.mark.feature("R1", "P10"), pytest.mark.timeout(600)]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """On servers of its own, whose data this test may lose."""
    site = EmbeddedSite(tmp_path / "site")
    with site:
        cluster = Cluster(tmp_path, site, nodes="AB", partitions=4, async_=0)
        try:
            yield cluster
        finally:
            cluster.close()


def run(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    argv = ["halog.cli.main", *args, "--config", str(cluster.toml)]
    return forked.run(argv, timeout=120)


def stop(cluster: Cluster) -> None:
    for node in cluster.running():
        cluster.processes[node].terminate()
    cluster.forget()


def objects(cluster: Cluster) -> dict[str, int]:
    node = cluster.client()
    with node.transaction():
        return {found.tail: found.landings for found in node.extent(Aircraft)}


def forgets(cluster: Cluster) -> None:
    """ZooKeeper has nothing of this cluster any more; others on these servers go on."""

    def deleted() -> bool:
        try:
            cluster.zk.delete(f"/halog/{cluster.name}", recursive=True)
        except NotEmptyError:  # a session that has not ended
            return False
        return True

    wait(deleted, "it is all deleted")


def test_nothing_is_begun_anew_and_the_cluster_goes_on_where_its_logs_end(own: Cluster) -> None:
    """ZooKeeper's data directory is emptied. Its mapping had been changed, and a partition moved."""
    own.start()
    own.whole()
    with Load(own.client(), "before") as load:
        load.flows(60)
    more = own.configuration("more.toml", partitions=6)
    run(own, "plan", "create")
    halog_with(own, more, "rebalance", "--policy", "p")
    own.toml.write_text(more.read_text())
    own.values["partitions"] = 6
    wait(lambda: b'"changing"' not in (own.znode("policies/p") or b""), "the mapping has changed")
    halog(own, "partition", "migrate", "p-0", "--nodes", "B,A")
    wait(lambda: own.table("p-0").configured == ("B", "A"), "it has moved")
    own.whole()
    before, had = own.tables(), objects(own)
    wait_noted(own)
    stop(own)
    site: Any = own.site
    site.stop()
    shutil.rmtree(Path(site.data_dir) / "zookeeper" / "data")
    site.start()

    said = run(own, "status")
    assert said.returncode == 3
    assert "halog recover --from-logs" in said.stderr
    refused = own.launch("A").exit_code(60)
    assert refused == 5
    assert "halog recover --from-logs" in own.log_of("A")
    assert own.znode("partitions/p-0") is None

    dry = halog(own, "recover", "--from-logs", "--dry-run")
    assert (dry["dry_run"], dry["done"], dry["problems"], dry["may_lose"]) == (True, False, [], {})
    assert own.znode("partitions/p-0") is None
    done = halog(own, "recover", "--from-logs")
    assert {p["partition"] for p in done["partitions"] if p["table_made"]} == {t.name for t in before}
    assert done["policies"]["p"] == {"mapping": 1, "by": "a store"}
    assert any("holds of logs" in text for text in done["lost"])
    assert halog(own, "recover", "--from-logs")["nothing_to_do"]
    for was, now in zip(before, own.tables(), strict=True):
        assert (now.log_id, now.configured) == (was.log_id, was.configured)
        assert now.epoch.number > was.epoch.number
    own.start()
    own.whole()
    assert objects(own) == had
    with Load(own.client(), "after") as after:
        after.flows(30)
    check(own, load, after)
    wait(lambda: "HALOG-1124" in {e["code"] for e in halog(own, "events")}, "the history has it")
    wait(lambda: run(own, "status").returncode == 0, "an operator is told that all is well")


def halog_with(cluster: Cluster, toml: Path, *args: str) -> None:
    argv = ["halog.cli.main", *args, "--config", str(toml)]
    ran = forked.run(argv, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def wait_noted(cluster: Cluster) -> None:
    """What nodes note of ZooKeeper is some seconds old."""
    paths = ["policies/p", *(f"partitions/{name}" for name in cluster.partitions())]

    def noted() -> bool:
        now = {path: cluster.znode(path) for path in paths}
        return all(_noted_by(cluster, node, paths) == now for node in cluster.running())

    wait(noted, "every node has noted what ZooKeeper has")


def _noted_by(cluster: Cluster, node: str, paths: list[str]) -> dict[str, bytes | None]:
    """What the store of a node that runs has by now; empty if its files change just then."""
    try:
        db = rocksdict.Rdict(
            str(cluster.directory / node / "db"), options(), access_type=rocksdict.AccessType.read_only()
        )
        found: dict[str, Any] = {path: db.get(f"halog:znode:{path}".encode()) for path in paths}
        db.close()
    except Exception:
        return {}
    return {path: data and msgspec.msgpack.decode(data)[1] for path, data in found.items()}


@pytest.fixture
def unlogged(make: Make) -> Cluster:
    """Its callers give up after some seconds: each test waits for those whose nodes are killed."""
    syncs = {"local_sync": "NO_SYNC", "remote_sync": "WRITE_NO_SYNC"}
    cluster = make(nodes="AB", partitions=2, async_=0, deadline_ms=6_000, **syncs)
    cluster.start()
    cluster.whole()
    return cluster


def lose_unlogged(cluster: Cluster) -> Load:
    """The broker stands still, commits go on, and all processes are killed; then ZooKeeper knows nothing any more."""
    cluster.site.pause("kafka")
    try:
        with Load(cluster.client(), "unlogged") as load:
            load.flows(40)
            for do in (cluster.freeze, cluster.kill):
                for node in "AB":
                    do(node)
    finally:
        cluster.site.resume("kafka")
    cluster.forget()
    forgets(cluster)
    return load


@pytest.mark.long
@pytest.mark.feature("R6")
def test_what_only_stores_hold_goes_into_the_logs_and_a_missing_store_is_named(unlogged: Cluster) -> None:
    load = lose_unlogged(unlogged)
    away = unlogged.directory / "B-away"
    (unlogged.directory / "B").rename(away)
    refused = run(unlogged, "recover", "--from-logs")
    assert refused.returncode == 5
    assert "HALOG-1018" in refused.stderr
    assert "node B" in refused.stderr
    assert f"--accept-loss B --cluster {unlogged.name}" in refused.stderr
    assert unlogged.znode("partitions/p-0") is None
    done = halog(unlogged, "recover", "--from-logs", "--store", f"B={away}")
    assert done["may_lose"] == {}
    away.rename(unlogged.directory / "B")
    unlogged.start()
    unlogged.whole()
    check(unlogged, load)
    assert all("HALOG-1019" not in unlogged.log_of(node) for node in "AB")


@pytest.mark.feature("R6")
def test_going_on_without_a_store_is_confirmed_and_told(unlogged: Cluster) -> None:
    lose_unlogged(unlogged)
    shutil.rmtree(unlogged.directory / "B")
    alone = ("recover", "--from-logs", "--accept-loss", "B")
    assert run(unlogged, *alone).returncode == 5
    assert run(unlogged, *alone, "--cluster", "other").returncode == 5
    assert unlogged.znode("partitions/p-0") is None
    halog(unlogged, *alone, "--cluster", unlogged.name)
    unlogged.start()
    unlogged.whole()

    def told() -> list[Any]:
        return [e for e in halog(unlogged, "events") if e["code"] == "HALOG-1019" and "recovery" in e["cause"]]

    wait(lambda: {e["partition"] for e in told()} == {"p-0", "p-1"}, "the history has it of both")
    assert all(e["more"]["given_up"] == ["B"] for e in told())
    with Load(unlogged.client(), "after") as load:
        load.flows(20)
    check(unlogged, load)


@pytest.mark.long
@pytest.mark.feature("R6")
def test_killed_in_the_log_and_in_the_tables_it_is_repeated_to_the_end(unlogged: Cluster) -> None:
    """A process dies between the appends to two logs, and the next one between two tables. (In front of each step that
    there is: `tests/unit/runtime/node/test_cluster_recovery_unlogged.py`, and the long test below.)"""
    load = lose_unlogged(unlogged)
    argv = ["halog.cli.main", "recover", "--from-logs", "--config", str(unlogged.toml)]
    for number, where in enumerate((r"append \S+ 1", r"create partitions/p-1.*")):
        ran = run_dying(unlogged.directory / f"steps{number}", rf"\d+ {where}", argv)
        assert ran.died
        assert any("append" in step for step in ran.steps)
        wait(lambda: unlogged.znode("recovering") is None, "its session has ended")
        assert unlogged.launch("A").exit_code(60) == 5
        assert "being recovered from its logs" in unlogged.log_of("A")
    halog(unlogged, "recover", "--from-logs")
    assert unlogged.znode("recovery") is None
    unlogged.start()
    unlogged.whole()
    check(unlogged, load)


@pytest.mark.long
@pytest.mark.feature("R6")
def test_killed_at_each_of_its_steps_it_is_repeated_to_the_end(unlogged: Cluster) -> None:
    """Each run dies one step later than the one before, until one ends; no node starts in between."""
    load = lose_unlogged(unlogged)
    for at in itertools.count(1):
        argv = ["halog.cli.main", "recover", "--from-logs", "--config", str(unlogged.toml)]
        ran = run_dying(unlogged.directory / "steps", rf"{at} .*", argv)
        if not ran.died:
            break
        wait(lambda: unlogged.znode("recovering") is None, "its session has ended")
        if unlogged.znode("recovery") is not None and at % 4 == 0:
            assert unlogged.launch("A").exit_code(60) == 5
            assert "being recovered from its logs" in unlogged.log_of("A")
    assert at > 4
    assert unlogged.znode("recovery") is None
    unlogged.start()
    unlogged.whole()
    check(unlogged, load)


@pytest.mark.feature("N2")
def test_a_mistyped_cluster_name_finds_the_data_directory_of_another_one(make: Make) -> None:
    cluster = make(nodes="A", partitions=2, sync=0, async_=0)
    cluster.start()
    cluster.whole()
    had = objects(cluster)
    stop(cluster)
    typo = cluster.configuration("typo.toml", name=f"{cluster.name}x")
    assert cluster.launch("A", typo).exit_code(60) == 5
    assert f"belongs to cluster {cluster.name}" in cluster.log_of("A")
    assert cluster.zk.exists(f"/halog/{cluster.name}x/partitions") is None
    cluster.start()
    cluster.whole()
    assert objects(cluster) == had


@pytest.mark.long
def test_it_is_lost_while_the_nodes_run(make: Make) -> None:
    """Nobody makes anything anew: they are stopped as ever, and what they had noted is there for the recovery."""
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "before") as load:
        load.flows(40)
    had, before = objects(cluster), cluster.tables()
    wait_noted(cluster)
    cluster.forget()
    forgets(cluster)
    time.sleep(5)  # they notice, and look again and again
    assert cluster.znode("partitions/p-0") is None
    refused = run(cluster, "status")
    assert refused.returncode == 3
    assert "halog recover --from-logs" in refused.stderr
    running = run(cluster, "recover", "--from-logs")
    assert running.returncode == 5, "their stores are in use"
    assert [cluster.processes[node].terminate() for node in "AB"] == [0, 0]
    done = halog(cluster, "recover", "--from-logs")
    assert all(p["remembered"] for p in done["partitions"])
    assert [t.configured for t in cluster.tables()] == [t.configured for t in before]
    cluster.start()
    cluster.whole()
    assert objects(cluster) == had
    check(cluster, load)
