"""Nodes, clients and commands as real processes with TLS between them (N5, O4)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import TestAuthority, node_uri, user_uri
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(600)


class Secured:
    """A cluster whose processes have certificates, each with a file of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._plain = cluster.toml.read_text()
        authority = TestAuthority(cluster.directory / "certificates")
        self._files = {node: authority.issue(node_uri(node, cluster.name)) for node in cluster.nodes}
        for user in ("app", "vera"):
            self._files[user] = authority.issue(user_uri(user, cluster.name))

    def file(self, who: str, mode: str) -> Path:
        """Write the configuration of a node or a user."""
        found = self._files[who]
        path = self.cluster.directory / f"{who}.toml"
        path.write_text(
            f'{self._plain}[security]\nnode_tls = "{mode}"\nca = "{found.ca}"\ncert = "{found.cert}"\n'
            f'key = "{found.key}"\n[security.roles]\napp = "client"\nvera = "viewer"\n'
        )
        return path

    def start(self, mode: str, *nodes: str) -> None:
        """Start nodes, each has said that it is up."""
        for node in nodes:
            self.cluster.launch(node, self.file(node, mode))
        for node in nodes:
            self.cluster.processes[node].ready()

    def client(self, mode: str) -> None:
        """Have the cluster's client be the application, as its user."""
        self.cluster.toml.write_text(self.file("app", mode).read_text())

    def command(self, who: str, mode: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        line = [sys.executable, "-m", "halog", *argv, "--config", str(self.file(who, mode))]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


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
    assert stranger.returncode != 0
    assert "this node requires TLS" in stranger.stderr


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
