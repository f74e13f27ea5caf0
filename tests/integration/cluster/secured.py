"""A cluster of real processes with certificates, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from halog.adapters.tcp.security import CertificateFiles
from tests.certificates import TestAuthority, node_uri, user_uri
from tests.integration.cluster.harness import Cluster

USERS = {"app": "client", "vera": "viewer", "eve": ""}
"""By name, the role; eve has none. Mallory, whom an authority names that no node trusts, is always there."""


class Secured:
    """A cluster whose processes have certificates, each with a file of its own."""

    def __init__(self, cluster: Cluster, users: Mapping[str, str] = USERS) -> None:
        self.cluster = cluster
        self._plain = cluster.toml.read_text()
        self._roles = "".join(f'{user} = "{role}"\n' for user, role in users.items() if role)
        self._authority = TestAuthority(cluster.directory / "certificates")
        self._files = {node: self.renew(node) for node in cluster.nodes}
        for user in users:
            self._files[user] = self._authority.issue(user_uri(user, cluster.name))
        others = TestAuthority(cluster.directory / "others", "others")
        unknown = others.issue(user_uri("mallory", cluster.name))
        both = cluster.directory / "both.crt"
        both.write_bytes(unknown.ca.read_bytes() + self._authority.file.read_bytes())
        self._files["mallory"] = unknown._replace(ca=both)

    def renew(self, node: str) -> CertificateFiles:
        """Make a new key and a new certificate of a node, in the place of the former ones."""
        return self._authority.issue(node_uri(node, self.cluster.name))

    def file(self, who: str, mode: str) -> Path:
        """Write the configuration of a node or a user."""
        found = self._files[who]
        path = self.cluster.directory / f"{who}.toml"
        path.write_text(
            f'{self._plain}[security]\nnode_tls = "{mode}"\nca = "{found.ca}"\ncert = "{found.cert}"\n'
            f'key = "{found.key}"\n[security.roles]\n{self._roles}'
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
