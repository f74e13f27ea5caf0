"""Nodes, clients and commands of two versions of halog work in one cluster, or refuse each other by name (U1)."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from halog.release import RELEASE
from tests import forked
from tests.integration.cluster import future, released
from tests.integration.cluster.checker import check
from tests.integration.cluster.client import FLIGHTS
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import Process, passes, wait
from tests.integration.cluster.test_zones import halog

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("U1")]

FLOWS_S = 60.0
STEPS, MORE_STEPS = 3, 8
FROZEN_S = 2.0


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return future.written(tmp_path_factory.mktemp("later"), future.LATER)


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The last release; None: this halog, where the checkout has no history."""
    return released.written(tmp_path_factory.mktemp("earlier"))


class Walk:
    """A cluster whose nodes change their version, die and freeze: the last release, this halog, and a later one. A
    table that the later version has written keeps what that wrote."""

    def __init__(self, cluster: Cluster, earlier: Path | None, later: Path, seed: int) -> None:
        self.cluster = cluster
        self.releases = {released.RELEASE: earlier, RELEASE: None, future.RELEASE: later}
        if earlier is None:
            del self.releases[released.RELEASE]
        self.chance = random.Random(seed)
        self.runs = dict.fromkeys(cluster.nodes, next(iter(self.releases)))
        self.marked: set[str] = set()
        self.done: list[str] = []

    def start(self, node: str) -> None:
        self.cluster.launch(node, source=self.releases[self.runs[node]]).ready()

    def change(self, node: str) -> None:
        self.become(node, self.chance.choice([r for r in self.releases if r != self.runs[node]]))

    def become(self, node: str, release: str) -> None:
        """Stop it in order, and start this version on its data."""
        assert self.cluster.processes[node].terminate() == 0
        self.runs[node] = release
        self.start(node)

    def kill(self, node: str) -> None:
        self.cluster.kill(node)
        self.start(node)

    def freeze(self, node: str) -> None:
        self.cluster.freeze(node)
        passes(FROZEN_S)
        self.cluster.wake(node)

    def lead(self, node: str) -> None:
        self.cluster.whole()
        self.cluster.lead(self.chance.choice(self.cluster.partitions()), node)

    def finish(self, node: str) -> None:
        """Nobody raises the level: a node, or a client, does not know a higher one."""
        command = ["halog.cli.main", "upgrade", "finish", "--config", str(self.cluster.toml)]
        later = self.releases[future.RELEASE]
        process = Process("finish", self.cluster.directory, command, later)
        assert process.exit_code(60) == 5, process.last_words(2_000)
        assert "the level stays as it is: " in process.last_words(2_000)
        assert self.cluster.znode("level") is None

    def step(self, load: Load) -> None:
        node = self.chance.choice(list(self.cluster.nodes))
        act = self.chance.choice((self.change, self.change, self.kill, self.freeze, self.lead, self.finish))
        self.done.append(f"{act.__name__} {node}")
        act(node)
        load.flows(FLOWS_S)
        self.look()

    def look(self) -> None:
        """What a later version has written into a table is there for good."""
        for partition in self.cluster.partitions():
            table = json.loads(self.cluster.znode(f"partitions/{partition}") or b"")
            assert table.get("rack") == "later" or partition not in self.marked, (partition, self.done)
            if "rack" in table:
                self.marked.add(partition)


def told(cluster: Cluster, source: Path | None, *args: str) -> Any:
    """What a command says, of this version or another."""
    process = Process("command", cluster.directory, ["halog.cli.main", *args, "--config", str(cluster.toml)], source)
    assert process.exit_code(60) == 0, process.last_words(2_000)
    return json.loads(process.out.read_text())


def versions(cluster: Cluster, source: Path) -> dict[str, str]:
    """The halog that each node runs, as a command says."""
    return {n["node"]: n["version"] for n in told(cluster, source, "node", "list", "--format", "json")}


def states(cluster: Cluster, source: Path) -> set[str]:
    """Those of the nodes, as a command says: one that takes longer than a second to answer is silent."""
    return {n["state"] for n in told(cluster, source, "node", "list", "--format", "json")}


def answering(cluster: Cluster, source: Path | None) -> dict[str, set[str]]:
    """The nodes that said within a second to a command how far their copies are, by partition."""
    partitions = told(cluster, source, "partition", "list", "--format", "json")
    return {
        p["partition"]: {c["node"] for c in p["copies"] if c["kind"] == "active" or c["lag_records"] is not None}
        for p in partitions
    }


@pytest.mark.parametrize("seed", [*range(1, 7), *(pytest.param(n, marks=pytest.mark.long) for n in range(7, 17))])
def test_several_versions_side_by_side_lose_nothing(make: Make, earlier: Path | None, later: Path, seed: int) -> None:
    """A random walk over upgrade, downgrade, kill -9, freeze and hand-over, under traffic of clients of two versions;
    commands of all see the whole cluster, and manage nodes of the others."""
    cluster = make()
    walk = Walk(cluster, earlier, later, seed)
    for node in cluster.nodes:
        cluster.launch(node, source=walk.releases[walk.runs[node]])
    for node in cluster.nodes:
        cluster.processes[node].ready()
    client = Process(
        "later-client", cluster.directory, ["tests.integration.cluster.client", str(cluster.toml), "later", "2"], later
    )
    cluster.helpers.append(client)
    with Load(cluster.client(), f"walk{seed}-") as load:
        for node in walk.chance.sample(list(cluster.nodes), walk.chance.choice((1, 2))):
            walk.change(node)
        walk.become(node, future.RELEASE)
        walk.lead(node)  # it writes a table
        for _ in range(STEPS if seed <= 6 else MORE_STEPS):
            walk.step(load)
        cluster.whole()
        wait(lambda: versions(cluster, later) == walk.runs, "a later command tells which halog each node runs")
        everywhere = {t.name: set(t.configured) for t in cluster.tables()}
        for source in walk.releases.values():
            wait(lambda source=source: answering(cluster, source) == everywhere, "a command hears of every copy", 90)  # type: ignore[misc]
        for source in walk.releases.values():
            partition, to = walk.chance.choice(cluster.partitions()), walk.chance.choice(list(cluster.nodes))
            if partition not in cluster.led_by(to):
                told(cluster, source, "failover", partition, "--to", to, "--format", "json")
        load.flows(FLOWS_S)
    assert load.errors == [], walk.done
    assert walk.marked, walk.done
    client.signal(signal.SIGKILL)
    made = [line.split()[1] for line in client.lines() if line.startswith("done ")]
    assert made, "the later client has done nothing"
    with cluster.client().transaction():
        assert {cluster.client().get(Aircraft, tail).landings for tail in made} == {FLIGHTS}
    check(cluster, load)


def test_versions_without_a_common_protocol_refuse_each_other_by_name(make: Make, tmp_path: Path) -> None:
    """The node that nobody speaks with serves nothing, and the others go on; commands say which halog each runs, and so
    do they of a cluster whose level they do not know. With the right halog it is back."""
    strange = future.written(tmp_path, future.STRANGE)
    cluster = make()
    cluster.start()
    with Load(cluster.client(), "strange") as load:
        cluster.whole()
        assert cluster.processes["C"].terminate() == 0
        cluster.launch("C", source=strange).ready()
        load.flows(FLOWS_S)
        said = f"node C runs halog {future.RELEASE}, which speaks protocol 8 to 9; this process runs halog {RELEASE}"

        def why() -> str:
            code, nodes = halog(cluster, "node", "list")
            assert code == 0
            return next(node["why"] or "" for node in nodes if node["node"] == "C")

        wait(lambda: said in why(), "an operator is told why nobody speaks with C")
        wait(lambda: all(t.node_list and "C" not in t.node_list for t in cluster.tables()), "C is in no node list")
        failover = ["halog.cli.main", "failover", "p-0", "--to", "C", "--config", str(cluster.toml)]
        assert forked.run(failover, timeout=60).returncode == 5
        load.flows(FLOWS_S)
        cluster.processes["C"].kill()
        cluster.whole()
        load.flows(FLOWS_S)
    assert load.errors == []
    check(cluster, load)


def test_a_node_that_the_cluster_outgrows_ends_by_itself_and_comes_back_with_a_later_halog(
    make: Make, later: Path
) -> None:
    """Raised under it: others serve what it served, and its supervisor hears why it has ended."""
    cluster = make(partitions=3)
    old, *others = cluster.nodes
    for name in cluster.nodes:
        cluster.launch(name, source=None if name == old else later)
    for name in cluster.nodes:
        cluster.processes[name].ready()
    process = cluster.processes[old]
    cluster.zk.create(f"/halog/{cluster.name}/level", b'{"level": 2, "floor": 2, "since_ms": 1, "by": "ops"}')
    assert process.exit_code(60) == 7
    said = process.last_words(2_000)
    assert f"cluster {cluster.name} is at level 2 (raised by ops); node {old} runs halog {RELEASE}" in said
    assert "it has gone offline and ended; start it with a later halog" in said
    assert "Traceback" not in said

    def served() -> set[str]:
        return {p["active"] for p in told(cluster, later, "partition", "list", "--format", "json")}

    wait(lambda: served() <= set(others), "others serve all partitions", 60)
    cluster.launch(old, source=later).ready()
    wait(lambda: states(cluster, later) == {"up"}, "an operator is told that all are up")


def test_a_cluster_that_was_raised_to_a_level_lets_nobody_in_who_does_not_know_it(make: Make, later: Path) -> None:
    cluster = make(partitions=1)
    for name in cluster.nodes:
        cluster.launch(name, source=later)
    for name in cluster.nodes:
        cluster.processes[name].ready()
    cluster.zk.create(f"/halog/{cluster.name}/level", b'{"level": 2, "floor": 2, "since_ms": 1, "by": "ops"}')
    assert cluster.processes["B"].terminate() == 0
    process = cluster.launch("B")
    assert process.exit_code(60) == 7
    assert f"cluster {cluster.name} is at level 2 (raised by ops); this process runs halog {RELEASE}" in (
        process.last_words(1_000)
    )
    cluster.launch("B", source=later).ready()
    wait(lambda: states(cluster, later) == {"up"}, "an operator is told that all are up")
