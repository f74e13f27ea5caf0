"""Partitions that the application places, and replicas copied anew, with real processes and servers, under load."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halog.errors import RefusedError
from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import DIED

pytestmark = pytest.mark.timeout(600)

P = "p-0"


@pytest.fixture
def unplaced(make: Make) -> Cluster:
    """Three nodes; the configuration names the partition, and places it nowhere."""
    cluster = make(partitions=1, async_=0)
    text = cluster.toml.read_text().replace("partitions = 1", 'kind = "static"').replace("async_replicas = 0\n", "")
    cluster.toml.write_text(f"{text}[policies.p.partitions]\n{P} = []\n")
    cluster.start()
    return cluster


def run(cluster: Cluster, *args: str, code: int = 0) -> Any:
    argv = ["halog.cli.main", "partition", *args, "--config", str(cluster.toml)]
    done = forked.run([*argv, "--format", "json"], timeout=120)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def define(cluster: Cluster, node: str, nodes: str) -> Any:
    run(cluster, "define", P, "--node", node, "--nodes", nodes)
    return run(cluster, "enable", P, "--node", node)


def is_on(cluster: Cluster, *nodes: str) -> bool:
    table = cluster.table(P)
    return (table.configured, table.node_list, table.target) == (nodes, nodes, None)


@pytest.mark.feature("P7", "P8", "P12")
def test_a_partition_is_defined_moved_and_disabled_under_load(unplaced: Cluster, control: Control) -> None:
    """A, B, then C, B as in the manual's example; a restarted B stays out until it says so again; then the active node
    disables it. No caller gets an error, and nothing is lost or doubled."""
    cluster = unplaced

    def seen() -> list[tuple[str, str | None]]:
        return [(s["status"], s["life"]) for s in run(cluster, "show", P)["seen"]]

    wait(lambda: seen() == [("Undefined", "Initial")] * 3, "all three say so")
    assert define(cluster, "A", "A,B")["status"] == "LocalEnabled"
    wait(lambda: is_on(cluster, "A", "B"), "it is on A and B")
    statuses = {s["node"]: s["status"] for s in run(cluster, "show", P)["seen"]}
    assert statuses == {"A": "LocalEnabled", "B": "RemoteEnabled", "C": "RemoteEnabled"}
    heard: list[tuple[str, str]] = []
    client = cluster.client()
    client.partitions.notify(lambda change: heard.append((change.before, change.now)))
    with Load(client, "life") as load:
        load.flows()
        define(cluster, "C", "C,B")
        wait(lambda: is_on(cluster, "C", "B"), "it is on C and B")
        wait(lambda: P not in cluster.copies("A"), "A lets go of its copy")
        load.flows()
        cluster.kill("B")
        wait(lambda: cluster.table(P).node_list == ("C",), "B is gone")
        load.flows()
        cluster.start(["B"])
        assert P not in cluster.copies("B")
        assert "B has not defined p-0 in this run" in run(cluster, "enable", P, "--node", "B", code=5)
        assert cluster.table(P).node_list == ("C",)
        define(cluster, "B", "C,B")
        wait(lambda: is_on(cluster, "C", "B"), "B is back")
        load.flows()
        assert run(cluster, "disable", P, "--node", "C")["status"] == "LocalDisabled"
        wait(lambda: is_on(cluster, "B"), "it is on B alone")
        wait(lambda: P not in cluster.copies("C"), "C lets go of its copy")
        load.flows()
    assert load.errors == []
    control.check(load.waits, DIED)
    check(cluster, load)
    wait(lambda: ("Active", "Migrating") in heard, "the client hears that it migrates")
    wait(lambda: client.partitions[P].state == "Active", "the client knows that it is active")
    wait(lambda: [v["life"] for v in run(cluster, "list")] == ["Active"], "an operator is told that it is active")


@pytest.mark.long
@pytest.mark.feature("P12")
def test_replicas_are_copied_anew_under_load_though_one_is_killed_meanwhile(make: Make, control: Control) -> None:
    """Each is out of the node list for a moment, one at a time; then all have what the log has."""
    cluster = make(partitions=3)
    cluster.start()
    cluster.whole()
    cluster.lead(P, "A")
    with Load(cluster.client(), "anew") as load:
        load.flows()
        done = run(cluster, "replicate", P)
        assert (done["done"], sorted(done["nodes"])) == (True, ["B", "C"])
        wait(lambda: cluster.complete(cluster.table(P)), "the node list is complete")
        load.flows()
        for name in "BC":
            assert f"partition {P}: its copy is made anew" in cluster.log_of(name)
        began = run(cluster, "replicate", P, "--no-wait")
        assert began["nodes"] != []
        cluster.kill("C")
        wait(lambda: cluster.table(P).resync is None, "it goes on without C", 60)
        load.flows()
        cluster.start(["C"])
        wait(cluster.complete, "every node list is complete", 60)
        load.flows()
        with pytest.raises(RefusedError, match="is active for p-0"):
            active = cluster.table(P).active
            assert active is not None
            cluster.client().partitions[P].replicate((active.node,))
    assert load.errors == []
    control.check(load.waits, DIED)
    check(cluster, load)
