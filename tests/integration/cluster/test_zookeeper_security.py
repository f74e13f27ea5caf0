"""Clusters of real nodes whose ZooKeeper takes TLS and knows them, with znodes that are theirs alone (N5, O4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from halog.adapters.zookeeper.wakeup import CountingHandler
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.secure_zookeeper import PASSWORD, Certificates, SecureSite, digest

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSite]:
    made = SecureSite(tmp_path_factory.mktemp("secure"))
    with made.site:
        yield made


class Guarded:
    """A cluster whose processes each have a file of their own: how they speak to ZooKeeper is a step of a change."""

    def __init__(self, directory: Path, secure: SecureSite) -> None:
        self.secure = secure
        self.cluster = Cluster(directory, secure.site)
        self.directory = directory
        self._plain = self.cluster.toml.read_text()
        self._password = directory / "zookeeper.password"
        self._password.write_text(PASSWORD + "\n")
        self._password.chmod(0o600)

    def file(self, who: str, step: str, password: Path | None = None, ca: Path | None = None) -> Path:
        """Write the configuration of a process: off, open (as the user, znodes are everybody's), closed, tls."""
        text = self._plain
        if step != "off":
            text += '[security.zookeeper]\nauth = "digest"\nusername = "halog"\n'
            text += f'password = {{ file = "{password or self._password}" }}\n'
            text += 'acl = "open"\n' if step == "open" else ""
        if step == "tls":
            text += f'tls = "required"\nca = "{ca or self.secure.certificates.place("ca.crt")}"\n'
            text = text.replace(self.secure.site.info.zookeeper, self.secure.sealed)
        path = self.directory / f"{who}.toml"
        path.write_text(text)
        return path

    def start(self, step: str, *nodes: str) -> None:
        for node in nodes:
            self.cluster.launch(node, self.file(node, step))
        for node in nodes:
            self.cluster.processes[node].ready()

    def client(self, step: str) -> None:
        """Have the cluster's client, and what the test reads itself, speak so."""
        self.cluster.toml.write_text(self.file("client", step).read_text())
        sealed = step == "tls"
        access = digest(tls=self.secure.certificates.files() if sealed else None)
        hosts = self.secure.sealed if sealed else self.secure.site.info.zookeeper
        if self.cluster._zk is not None:
            self.cluster._zk.stop()
            self.cluster._zk.close()
        self.cluster._zk = KazooClient(hosts, timeout=10, handler=CountingHandler(access.tls), **access.arguments())
        self.cluster._zk.start(30)

    def command(self, file: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "halog", *argv, "--config", str(file)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    def znodes(self, path: str = "") -> list[str]:
        """All znodes of the cluster."""
        root = path or f"/halog/{self.cluster.name}"
        return [root, *(z for name in self.cluster.zk.get_children(root) for z in self.znodes(f"{root}/{name}"))]

    def check_nobody_else(self) -> None:
        """Walk over all znodes as a stranger, who may do nothing to any of them."""
        stranger: Any = KazooClient(self.secure.site.info.zookeeper, timeout=10)
        stranger.start(30)
        try:
            for path in self.znodes():
                tries = [stranger.get_async(path), stranger.get_children_async(path)]
                tries += [stranger.set_async(path, b"x"), stranger.set_acls_async(path, OPEN_ACL_UNSAFE)]
                tries += [stranger.create_async(f"{path}/x", b""), stranger.delete_async(path)]
                for asked in tries:
                    with pytest.raises(NoAuthError):
                        asked.get(timeout=30)
        finally:
            stranger.stop()
            stranger.close()

    def check_secret(self, processes: Sequence[int]) -> None:
        """Look for the password in all files but its own, in the command lines of processes, and in znodes."""
        secret = PASSWORD.encode()
        roots = (self.directory, self.secure.site.data_dir)
        files = [Path(at, name) for root in roots for at, _, names in os.walk(root) for name in names]
        found = [file for file in files if file != self._password and file.is_file() and secret in file.read_bytes()]
        assert found == []
        for pid in processes:
            assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
        assert [path for path in self.znodes() if secret in self.cluster.zk.get(path)[0]] == []


@pytest.fixture
def guarded(secure: SecureSite, tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path, secure)
    with closing(made.cluster):
        yield made


@pytest.mark.feature("N5", "O4")
def test_a_cluster_by_tls_with_a_password_commits_and_survives_a_kill(guarded: Guarded) -> None:
    """Nobody else does anything to a znode of it, and its password is nowhere. A wrong password and another authority
    are refused by name, and a session that ends comes back as the same user."""
    cluster = guarded.cluster
    guarded.client("tls")
    guarded.start("tls", *cluster.nodes)
    cluster.whole()
    victim = cluster.table("p-0").node_list[0]
    with Load(cluster.client(), "zk") as load:
        load.flows()
        cluster.kill(victim)
        load.flows()
        guarded.start("tls", victim)
        wait(cluster.complete, "every node list is complete again")
        load.flows()
    assert load.errors == []
    check(cluster, load)
    guarded.check_nobody_else()
    wrong = guarded.directory / "wrong.password"
    wrong.write_text("wrong\n")
    refused = guarded.command(guarded.file("wrong", "tls", wrong), "status")
    assert refused.returncode == 8
    assert (
        f"does not let digest user halog read /halog/{cluster.name}, which belongs to somebody else" in refused.stderr
    )
    foreign = guarded.command(guarded.file("foreign", "tls", ca=foreign_ca(guarded)), "status")
    assert foreign.returncode == 3
    assert "its certificate is not trusted" in foreign.stderr
    told = guarded.command(guarded.file("ops", "tls"), "config", "show", "--format", "json")
    assert PASSWORD not in told.stdout + told.stderr
    report = guarded.command(guarded.file("ops", "tls"), "acl", "zookeeper", "--check")
    assert (report.returncode, "belong to digest user halog alone" in report.stderr) == (0, True), report.stderr
    guarded.check_secret([cluster.processes[node].pid for node in cluster.nodes])


def foreign_ca(guarded: Guarded) -> Path:
    return Certificates(guarded.directory / "foreign").place("ca.crt")


@pytest.mark.long
@pytest.mark.feature("N5", "O4")
def test_a_cluster_goes_over_to_closed_znodes_and_tls_under_traffic(guarded: Guarded) -> None:
    """Node by node: as the user, closed, all znodes given to it, by TLS. Nothing that was acknowledged is lost. A node
    whose session ends then is there again, as the user."""
    cluster = guarded.cluster
    guarded.client("open")
    guarded.start("off", *cluster.nodes)
    cluster.whole()
    with Load(cluster.client(), "over") as load:
        for step in ("open", "closed", "tls"):
            for node in cluster.nodes:
                load.flows()
                assert cluster.processes[node].terminate() == 0
                guarded.start(step, node)
                wait(cluster.complete, f"every node list is complete with {node} at {step}")
            if step == "closed":
                before = guarded.command(guarded.file("ops", step), "acl", "zookeeper", "--check")
                assert before.returncode == 4, before.stderr
                given = guarded.command(guarded.file("ops", step), "acl", "zookeeper", "--apply")
                assert given.returncode == 0, given.stderr
                after = guarded.command(guarded.file("ops", step), "acl", "zookeeper", "--check")
                assert after.returncode == 0, after.stdout
                audit = guarded.command(guarded.file("ops", step), "audit", "--command", "acl", "--format", "json")
                assert [e["command"] for e in json.loads(audit.stdout)] == ["acl zookeeper"], audit
                guarded.check_nobody_else()
        guarded.client("tls")
        sleeper = cluster.nodes[0]
        session = cluster.zk.get(f"/halog/{cluster.name}/nodes/{sleeper}")[1].ephemeralOwner
        cluster.freeze(sleeper)
        wait(lambda: sleeper not in cluster.registered(), f"the session of {sleeper} has ended")
        load.flows()
        cluster.wake(sleeper)
        wait(cluster.complete, f"every node list is complete with {sleeper} awake")
        assert cluster.zk.get(f"/halog/{cluster.name}/nodes/{sleeper}")[1].ephemeralOwner != session
        load.flows()
    assert load.errors == []
    check(cluster, load)
    guarded.check_nobody_else()
