"""Hundreds of partitions, and ZooKeeper is away for longer than its sessions: for nodes, a client and commands."""

from __future__ import annotations

import json
import time

import pytest

from tests import forked
from tests.integration.cluster.conftest import Make
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import ROOT, passes, wait
from tests.integration.site import Site

pytestmark = pytest.mark.timeout(900)

MANY = 320
"""Beyond what kazoo's own wake-up holds; tests/contract has a thousand."""
STARTS_S = 180.0
BACK_S = 60.0
"""After ZooKeeper answers: a node is registered again within 2 s; the machine is busy."""
REPLACED_S = 120.0
CLOSES_S = 60.0


def states(cluster: Cluster) -> list[str]:
    """Those of the nodes, as an operator is told."""
    argv = ["halog.cli.main", "node", "list", "--config", str(cluster.toml), "--format", "json"]
    done = forked.run(argv, cwd=ROOT, timeout=60)
    assert done.stdout, done.stderr
    return [node["state"] for node in json.loads(done.stdout)]


@pytest.mark.feature("N4", "P10", "R4")
def test_zookeeper_is_away_from_hundreds_of_partitions(make: Make, site: Site) -> None:
    """They serve on; all are registered again soon after it is back; a node killed then is replaced everywhere, and the
    client hears of it; the last one ends when it is told to."""
    cluster = make(nodes="AB", partitions=MANY, sync=1, async_=0, stay_ms=600_000)
    for node in cluster.nodes:
        cluster.launch(node)
    for node in cluster.nodes:
        cluster.processes[node].ready(STARTS_S)
    cluster.whole(STARTS_S)
    client = cluster.client()
    tails = [f"N{n}" for n in range(40)]
    with client.transaction():
        for tail in tails:
            client.create(Aircraft(tail))
    runs = cluster.registered()
    for _ in range(2):
        site.pause("zookeeper")
        passes(4.0)
        site.resume("zookeeper")
        wait(lambda: cluster.registered() == runs, "both are registered again", BACK_S)
    wait(lambda: states(cluster) == ["up", "up"], "an operator is told that both are up")
    killed = time.monotonic()
    cluster.kill("A")
    wait(lambda: len(cluster.led_by("B")) == MANY, "B leads all of them", REPLACED_S)
    with client.transaction():
        assert [client.get(Aircraft, tail).land(1) for tail in tails] == [1] * len(tails)
    known = client.runtime.router.tables
    wait(lambda: all(t.active is not None and t.active.node == "B" for _, t in known.values()), "the client knows it")
    assert time.monotonic() - killed < REPLACED_S
    closing = time.monotonic()
    assert cluster.processes["B"].terminate(CLOSES_S) == 0
    assert time.monotonic() - closing < CLOSES_S
