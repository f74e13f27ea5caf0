"""Two real sites under traffic: lines cut, mirrors killed, sites lost and back; one of them serves, nothing is lost."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from halog.embedded.model import SERVERS
from halog.errors import HalogError, PartitionUnavailableError
from tests import forked
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import passes, wait
from tests.integration.sites.two import EAST, WEST, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5")]

NODES = ("west-1", "west-2", "east-1", "east-2")


def of(two_sites: TwoSites, node: str) -> Cluster:
    return two_sites.clusters[node.partition("-")[0]]


def heads(two_sites: TwoSites, node: str) -> dict[str, tuple[int, str]]:
    """Partition → position of a node's copy."""
    return {name: (copy["lsn"], copy["hash"]) for name, copy in of(two_sites, node).copies(node).items()}


def level(two_sites: TwoSites, limit_s: float = 60.0, *, nodes: tuple[str, ...] = NODES) -> None:
    """Every copy of both sites is the same history."""

    def same() -> bool:
        first, *others = [heads(two_sites, n) for n in nodes]
        return len(first) == 2 and all(other == first for other in others)

    wait(same, lambda: f"one history: { {n: heads(two_sites, n) for n in nodes} }", limit_s)


def ran(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    """`halog site …` at that site, as an operator would run it."""
    argv = ["halog.cli.main", "site", *args, "--config", str(cluster.toml), "--format", "json"]
    return forked.run(argv, timeout=120)


def command(cluster: Cluster, *args: str, code: int = 0) -> Any:
    """Its document, or what it said where it failed."""
    done = ran(cluster, *args)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else json.loads(done.stdout)


def land(node: Any, tail: str, times: int = 1) -> None:
    for _ in range(times):
        with node.transaction():
            (node.find(Aircraft, tail) or node.create(Aircraft(tail=tail))).land(10)


def landings(cluster: Cluster, tail: str) -> int:
    node = cluster.client("reader")
    with node.transaction():
        return int(node.get(Aircraft, tail).landings)


def gone_on(two_sites: TwoSites, tail: str) -> None:
    """Both know five landings of this aircraft; west alone has three more, east four; then west was told to stop."""
    two_sites.start()
    west, east = two_sites.west.client(), two_sites.east.client()
    land(west, tail, 5)
    level(two_sites)
    two_sites.between.cut()
    command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    two_sites.east.whole()
    land(west, tail, 3)
    land(east, tail, 4)
    two_sites.between.heal()
    command(two_sites.west, "demote", "--to", EAST)


@pytest.mark.long
def test_traffic_at_home_notices_nothing_of_what_happens_to_the_mirror(two_sites: TwoSites) -> None:
    """Its nodes are killed in turn, the line is cut one way, slow, flaps: behind, and level again at the end."""
    two_sites.start()
    between, east = two_sites.between, two_sites.east
    with Load(two_sites.west.client(), "home") as load:
        for harm in (
            lambda: east.kill("east-1"),
            lambda: between.cut(toward=EAST),
            between.heal,
            lambda: east.start(["east-1"]),
            lambda: between.cut(toward=WEST),
            lambda: east.kill("east-2"),
            between.heal,
            lambda: east.start(["east-2"]),
            lambda: between.flap(0.7, 0.7),
            lambda: between.delay(0.02),
        ):
            harm()
            load.flows()
        passes(2.0)
        between.heal()
    assert not load.errors
    level(two_sites)
    load.check_objects(two_sites.west.client("judge"))
    assert not any(m["why"] for m in wait_lag(east))


def wait_lag(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def told() -> bool:
        done = ran(cluster, "lag")
        found[:] = json.loads(done.stdout) if done.stdout else []
        return done.returncode == 0

    wait(told, lambda: f"every mirror goes on: {found}")
    return found


def test_a_site_takes_over_under_traffic_and_gives_back(two_sites: TwoSites) -> None:
    """Each landing that was acknowledged at one site is there at the other one; the switch is refused to nobody."""
    two_sites.start()
    west, east = two_sites.west.client(), two_sites.east.client()
    land(west, "N1", 20)
    with pytest.raises(PartitionUnavailableError, match="served by site west"):
        land(east, "N1")
    told = command(two_sites.east, "promote")
    assert {(d["from"], d["may_fork"]) for d in told} == {("west", False)}
    two_sites.east.whole()
    assert landings(two_sites.east, "N1") == 20
    land(east, "N1", 20)
    level(two_sites)
    with pytest.raises(HalogError, match="served by site east"):
        land(west, "N1")
    command(two_sites.west, "promote")
    two_sites.west.whole()
    land(west, "N1", 20)
    assert landings(two_sites.west, "N1") == 60
    level(two_sites)


@pytest.mark.long
def test_a_lost_site_is_taken_over_from_and_mirrors_when_it_is_back(two_sites: TwoSites) -> None:
    """Its nodes and its servers die at once. Nothing that was mirrored is lost; back, it has nothing of its own."""
    two_sites.start()
    west = two_sites.between.sites[WEST]
    client = two_sites.west.client()
    land(client, "N2", 30)
    level(two_sites)
    for node in ("west-1", "west-2"):
        two_sites.west.kill(node)
    for server in ("kafka", "zookeeper"):
        west.site.kill(server)
    refused = command(two_sites.east, "promote", code=5)
    assert "--may-fork" in refused
    told = command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    assert all(d["may_fork"] for d in told)
    two_sites.east.whole()
    assert landings(two_sites.east, "N2") == 30
    land(two_sites.east.client(), "N2", 30)
    for server in reversed(SERVERS):
        west.site.start_server(server)
    two_sites.west.start()
    level(two_sites)
    assert landings(two_sites.east, "N2") == 60


@pytest.mark.long
def test_sites_that_both_went_on_are_told_and_keep_what_they_have(two_sites: TwoSites) -> None:
    gone_on(two_sites, "N3")

    def compared() -> bool:
        """That both have served is told before that, and is not enough: to go on alone is for who knows the split."""
        found = json.loads(ran(two_sites.west, "lag").stdout or "[]")
        return len(found) == 2 and all(mirror["parted"] for mirror in found)

    wait(compared, "the split is found")
    wait(lambda: any("HALOG-1041" in two_sites.west.log_of(node) for node in ("west-1", "west-2")), "and told")
    assert landings(two_sites.east, "N3") == 9
    command(two_sites.west, "promote", "--may-fork", "--cluster", two_sites.west.name)
    two_sites.west.whole()
    assert landings(two_sites.west, "N3") == 8
