"""Nodes, clients and commands as real processes with TLS between them (N5, O4)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import halog
from halog.errors import UnauthorizedError
from halog.runtime.node.open import RunningNode
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.integration.cluster.secured import Secured

pytestmark = pytest.mark.timeout(600)


@pytest.mark.feature("N5", "O4")
def test_a_cluster_that_requires_tls_commits_and_survives_a_kill(make: Make) -> None:
    """Its client is a user with a role. A user who may only look is refused what he may not, by name; so is a process
    without TLS."""
    cluster = make()
    secured = Secured(cluster)
    plain = cluster.configuration("plain.toml")
    secured.client("required")
    secured.start("required", *cluster.nodes)
    cluster.whole()
    victim = cluster.table("p-0").node_list[0]
    with Load(cluster.client(), "tls") as load:
        load.flows()
        cluster.kill(victim)
        load.flows()
        secured.start("required", victim)
        wait(cluster.complete, "every node list is complete again")
        load.flows()
    assert load.errors == []
    check(cluster, load)
    wait(lambda: secured.command("vera", "required", "status").returncode == 0, "a viewer is told that all is well", 90)
    to = next(n for n in cluster.table("p-0").node_list[1:])
    refused = secured.command("vera", "required", "failover", "p-0", "--to", to)
    assert (refused.returncode, "user vera may not ask node" in refused.stderr) == (8, True), refused.stderr
    stranger = subprocess.run(
        [sys.executable, "-m", "halog", "list", "Aircraft", "--config", str(plain)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (stranger.returncode, "this node requires TLS" in stranger.stderr) == (8, True), stranger.stderr
    for who, why in (("eve", "user eve, who has no role in [security.roles]"), ("mallory", "TLS: unknown ca")):
        for argv in (("list", "Aircraft"), ("status",)):
            kept_out = secured.command(who, "required", *argv)
            assert (kept_out.returncode, why in kept_out.stderr) == (8, True), kept_out.stderr
        with halog.node(secured.file(who, "required")) as node, pytest.raises(UnauthorizedError) as caught:
            _look(node)
        assert why in str(caught.value)


def _look(node: RunningNode) -> None:
    with node.transaction():
        node.find(Aircraft, "N1")


@pytest.mark.long
@pytest.mark.feature("N5", "O4")
def test_a_cluster_goes_over_to_tls_under_traffic(make: Make) -> None:
    """Off, accept, required: node by node, and nothing that was acknowledged is lost."""
    cluster = make()
    secured = Secured(cluster)
    secured.client("accept")
    secured.start("off", *cluster.nodes)
    cluster.whole()
    with Load(cluster.client(), "over") as load:
        for mode in ("accept", "required"):
            for node in cluster.nodes:
                load.flows()
                assert cluster.processes[node].terminate() == 0
                secured.start(mode, node)
                wait(cluster.complete, f"every node list is complete with {node} at {mode}")
        load.flows()
    assert load.errors == []
    check(cluster, load)
