"""Two real sites that both went on become one history: under traffic, cut lines, killed nodes and killed commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.metadata.restore_requests import RestoreRequest
from tests import forked
from tests.faults.dying import argv_dying
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import Process, passes
from tests.integration.sites.test_taking_over import command, land, landings, level
from tests.integration.sites.two import EAST, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M1", "M2", "X3")]

REACHED_S = 150.0
"""Until a process has come to the step in front of which it dies."""

BOTH = ("S1", "S2", "S3", "S4")
"""Aircraft that both sites know, and change."""


def argv_of(cluster: Cluster, *args: str) -> list[str]:
    return [sys.executable, "-m", "halog.cli.main", *args, "--config", str(cluster.toml), "--format", "json"]


def halog(cluster: Cluster, *args: str, code: int = 0) -> Any:
    done = forked.run(argv_of(cluster, *args)[2:], timeout=180)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else None


def dies(name: str, directory: Path, where: str, argv: list[str]) -> None:
    """A process, in front of that step of it."""
    process = Process(name, directory, argv_dying(directory / f"{name}.steps", where, argv))
    assert process.exit_code(REACHED_S) == -signal.SIGKILL, process.last_words()


def nodes_die(cluster: Cluster, partition: str, where: dict[str, str]) -> None:
    """Run its nodes anew, each to die in front of that step of its own; the first of them is active."""
    for name, step in where.items():
        cluster.processes[name].terminate()
        steps = cluster.directory / f"{name}.steps"
        cluster.launch(name, by=partial(argv_dying, steps, step)).ready()
        cluster.whole()
    cluster.lead(partition, next(iter(where)))


def parted(two_sites: TwoSites) -> None:
    """Common aircraft, changed at both sites; five of its own at each; one under the same key at both."""
    two_sites.start()
    west = two_sites.west.client("west")
    for tail in BOTH:
        land(west, tail)
    level(two_sites)
    two_sites.between.cut()
    command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    two_sites.east.whole()
    east = two_sites.east.client("east")
    for client, own, times in ((west, "W", 2), (east, "E", 4)):
        for tail in (*BOTH, "K"):
            land(client, tail, times)
        for i in range(5):
            land(client, f"{own}{i}")
    two_sites.between.heal()


EXPECTED = {**dict.fromkeys(BOTH, 5), "K": 4, **{f"{own}{i}": 1 for own in "WE" for i in range(5)}}


def check(two_sites: TwoSites, site: Cluster, expected: dict[str, int]) -> None:
    assert {tail: landings(site, tail) for tail in expected} == expected


def test_both_histories_become_one_under_traffic_and_it_is_undone(two_sites: TwoSites) -> None:
    parted(two_sites)
    shown = halog(two_sites.west, "restore", "--dry-run")
    kinds = sorted(o["is"] for d in shown for o in d["objects"])
    assert set(kinds) == {"instance added", "key conflict", "state conflict"}
    with Load(two_sites.east.client("load"), "on") as load:
        load.flows()
        told = halog(two_sites.west, "restore", "--source", EAST)
        load.flows()
    assert not load.errors
    assert {d["phase"] for d in told} == {"done"}
    assert sum(sum(d["conflicts"].values()) for d in told) == len(kinds)
    level(two_sites)
    check(two_sites, two_sites.east, EXPECTED)
    load.check_objects(two_sites.east.client("judge"))
    assert halog(two_sites.west, "status")["parted"] == []
    undone = halog(two_sites.east, "restore", "undo")
    assert {d["phase"] for d in undone} == {"done"}
    level(two_sites)
    client = two_sites.east.client("after")
    with client.transaction():
        assert client.find(Aircraft, "W1") is None
    command(two_sites.west, "promote")
    two_sites.west.whole()
    assert landings(two_sites.west, "E1") == 1


@pytest.mark.long
@pytest.mark.timeout(480)
def test_whoever_dies_meanwhile_it_is_done_once(two_sites: TwoSites, tmp_path: Path) -> None:
    """The command is killed once it has told a site to stop, and once it has asked for a merge; so is the node that
    merges, before it has; then it is asked for again."""
    parted(two_sites)
    west, east = two_sites.west, two_sites.east
    argv = argv_of(west, "restore", "--source", EAST)[2:]

    def asked() -> list[RestoreRequest]:
        found = [east.znode(f"restores/{p}") for p in east.partitions()]
        return [msgspec.json.decode(data, type=RestoreRequest) for data in found if data is not None]

    dies("first", tmp_path, r"\d+ create restores/.*", argv)
    assert any(t.owner == EAST for t in west.tables())
    assert not asked(), "nobody has asked for the merge"
    first, second = east.partitions()
    (node, _) = east.table(first).configured
    nodes_die(east, first, {node: rf"\d+ set restores/{first} merging"})
    dies("second", tmp_path, rf"\d+ create restores/{second}.*", argv)
    assert len(asked()) == 1
    assert east.processes[node].exit_code(REACHED_S) == -signal.SIGKILL
    told = halog(west, "restore", "--source", EAST)
    assert {d["phase"] for d in told} == {"done"}, told
    east.start([node])
    level(two_sites)
    check(two_sites, two_sites.east, EXPECTED)


@pytest.mark.long
def test_a_line_that_flaps_and_is_slow_delays_it_only(two_sites: TwoSites) -> None:
    parted(two_sites)
    two_sites.between.delay(0.02)
    began = time.monotonic()
    begun = subprocess.Popen(
        argv_of(two_sites.west, "restore", "--source", EAST, "--timeout", "100"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    passes(1.0)
    two_sites.between.cut()
    passes(2.0)
    two_sites.between.heal()
    out, err = begun.communicate(timeout=150)
    again = [] if begun.returncode == 0 else halog(two_sites.west, "restore", "--source", EAST)
    found = again or json.loads(out)
    assert {d["phase"] for d in found} <= {"done", "nothing"}, (out, err, time.monotonic() - began)
    level(two_sites)
    check(two_sites, two_sites.east, EXPECTED)
    assert halog(two_sites.west, "status")["parted"] == []
