"""Real nodes go by the version that is active in ZooKeeper, whatever their files say (P11)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import ROOT, wait
from tests.integration.cluster.test_kill import whole_again
from tests.integration.cluster.test_remapping import check_places, done, mapping
from tests.integration.cluster.test_zones import halog, land, landed

pytestmark = pytest.mark.timeout(600)


def begun(cluster: Cluster, toml: Path, *args: str) -> subprocess.Popen[str]:
    """An operator's `config activate`, under way."""
    argv = [
        sys.executable,
        "-m",
        "halog.cli.main",
        "config",
        "activate",
        str(toml),
        "--config",
        str(cluster.toml),
        *args,
    ]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def config_of(cluster: Cluster, node: str) -> Any:
    return cluster.status(node)["config"]


@pytest.mark.long
@pytest.mark.feature("P11", "O1", "P1")
def test_of_two_activations_one_counts_and_a_restarted_node_goes_by_it(make: Make) -> None:
    """Nothing is served worse meanwhile; a file that is behind is named; the site's address is enough."""
    cluster = make(nodes="ABC", partitions=2, sync=1, async_=1)
    cluster.start()
    cluster.whole()
    client = cluster.client()
    with client.transaction():
        client.create(Aircraft(tail="N1"))
    assert {n: config_of(cluster, n)["version"] for n in "ABC"} == dict.fromkeys("ABC", 0)
    first = begun(cluster, cluster.toml, "--comment", "as it was")
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    wait(lambda: all(config_of(cluster, n)["version"] == 1 for n in "ABC"), "all go by version 1, which is their file")

    files = {stay: cluster.configuration(f"stay{stay}.toml", stay_ms=stay) for stay in (31_000, 32_000)}
    rivals = {stay: begun(cluster, toml, "--on", "1", "--format", "json") for stay, toml in files.items()}
    said = {stay: (*rival.communicate(timeout=60), rival.returncode) for stay, rival in rivals.items()}
    assert sorted(code for _, _, code in said.values()) == [0, 5], said
    (winner,) = (stay for stay, (_, _, code) in said.items() if code == 0)
    out, _, _ = said[winner]
    assert [c["key"] for c in json.loads(out)["changes"]] == ["timing.min_stay_ms"]
    _, kept = halog(cluster, "config", "history")
    assert [(v["number"], v["file"]) for v in kept] == [(2, str(files[winner])), (1, str(cluster.toml))]

    by_2 = {"version": 2, "active": 2, "restart_for": []}
    waits = {"version": 1, "active": 2, "restart_for": ["timing.min_stay_ms"]}
    wait(lambda: all(config_of(cluster, n) == waits for n in "ABC"), "all know what waits for their restart")
    assert cluster.processes["A"].terminate() == 0
    cluster.launch("A").ready()
    wait(lambda: config_of(cluster, "A") == by_2, "A goes by version 2")
    warned = [line for line in cluster.log_of("A").splitlines() if "differs from active version 2" in line]
    assert len(warned) == 1, warned
    assert "timing.min_stay_ms" in warned[0]
    assert config_of(cluster, "B") == waits

    info = cluster.site.info
    bare = cluster.directory / "bare.toml"
    bare.write_text(
        f'[cluster]\nname = "{cluster.name}"\n[site]\nbootstrap = "{info.bootstrap}"\nzookeeper = "{info.zookeeper}"\n'
        '[application]\nmodules = ["tests.integration.cluster.fleet"]\n'
    )
    assert cluster.processes["B"].terminate() == 0
    cluster.launch("B", bare).ready()
    assert config_of(cluster, "B")["version"] == 2
    whole_again(cluster)
    assert land(client) == 1

    def told(code: str) -> int:
        return [e["code"] for e in halog(cluster, "events")[1]].count(code)

    wait(lambda: told("HALOG-1028") == 2, "the history has both activations")
    wait(lambda: told("HALOG-1029") >= 6, "each of three nodes says so, twice")


@pytest.mark.long
@pytest.mark.feature("P11", "Q1")
def test_a_quorum_that_is_activated_counts_at_once_on_every_node(make: Make) -> None:
    cluster = make(nodes="ABC", partitions=1, sync=1, async_=1)
    cluster.start()
    cluster.whole()
    client = cluster.client()
    with client.transaction():
        client.create(Aircraft(tail="N1"))
    assert begun(cluster, cluster.toml).wait(60) == 0
    quorum = "[zones.home.quorum]\nminimum_votes = 3"
    assert begun(cluster, cluster.configuration("three.toml", zone_quorum=quorum)).wait(60) == 0
    wait(lambda: halog(cluster, "zone", "show", "home")[1]["quorum"] == "3 of 3 votes", "tools see it")
    wait(lambda: all(config_of(cluster, n)["version"] == 2 for n in "ABC"), "nodes have all of it")
    assert land(client) == 1
    cluster.kill("C")
    wait(lambda: all(cluster.status(n)["offline"] for n in "AB"), "two are too few now")
    assert begun(cluster, cluster.configuration("two.toml", zone_quorum=quorum.replace("3", "2"))).wait(60) == 0
    wait(lambda: not any(cluster.status(n)["offline"] for n in "AB"), "two are enough again")
    cluster.start(["C"])
    whole_again(cluster)
    assert landed(client) == 2


@pytest.mark.feature("P11", "P13", "P6")
def test_a_version_with_more_partitions_moves_the_objects_there(make: Make) -> None:
    """One command. Objects are found while they move; a node that was restarted with its old file goes by it."""
    cluster = make(nodes="AB", partitions=2, sync=1, async_=0)
    cluster.start()
    cluster.whole()
    client = cluster.client()
    client.load([Aircraft(tail=f"N{i}") for i in range(300)])
    assert begun(cluster, cluster.toml).wait(60) == 0
    more = cluster.configuration("more.toml", partitions=3)
    out, err = begun(cluster, more, "--format", "json").communicate(timeout=60)
    assert (json.loads(out)["activated"], json.loads(out)["moving"]) == (2, {"p": {"version": 1}}), err

    @client.transactional(retries=200)  # whoever changes what moves just then is to run it again
    def landing() -> int:
        return client.get(Aircraft, "N7").land(10)

    while not done(cluster, 1):
        assert landing() > 0, mapping(cluster)
    cluster.values["partitions"] = 3
    assert cluster.processes["A"].terminate() == 0
    cluster.launch("A").ready()
    whole_again(cluster)
    check_places(cluster, more)
    with client.transaction():
        assert len(list(client.extent(Aircraft))) == 300
    by_2 = {"version": 2, "active": 2, "restart_for": []}
    wait(lambda: config_of(cluster, "A") == by_2, "A goes by version 2")


@pytest.mark.feature("P11", "P13", "O1")
def test_more_partitions_that_are_activated_while_nobody_is_up_are_made_by_the_nodes(make: Make) -> None:
    """A client may be the first to start, and a node that dies at once; whoever is up finishes it. Turned back before
    anything moved, the cluster goes by what it has."""
    cluster = make(nodes="AB", partitions=2, sync=1, async_=0)
    cluster.start()
    cluster.whole()
    client = cluster.client()
    client.load([Aircraft(tail=f"N{i}") for i in range(300)])
    assert begun(cluster, cluster.toml).wait(60) == 0
    for node in "AB":
        assert cluster.processes[node].terminate() == 0
    more = cluster.configuration("more.toml", partitions=4)
    assert begun(cluster, more).wait(60) == 0
    assert halog(cluster, "rebalance", "cancel", "--policy", "p")[0] == 0
    cluster.launch("A").ready()
    cluster.kill("A")
    wait(lambda: not cluster.registered(), "A's session is over: a node that is there is asked")
    again = [sys.executable, "-m", "halog.cli.main", "rebalance", "--no-wait", "--policy", "p", "--config", str(more)]
    ran = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran
    _, err = begun(cluster, cluster.toml).communicate(timeout=60)
    assert "cancel --policy p" in err
    late = cluster.client()
    cluster.launch("A").ready()
    cluster.kill("A")
    for node in "AB":
        cluster.launch(node).ready()
    wait(lambda: done(cluster, 1), "every object is where it belongs", 90)
    cluster.values["partitions"] = 4
    whole_again(cluster)
    check_places(cluster, more)
    with late.transaction():
        assert len(list(late.extent(Aircraft))) == 300
