"""Nodes as real processes with their log behind TLS and a password (O4)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.cluster.checker import check, entries
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import wait
from tests.secured import MARK, PASSWORD, USER, SecuredSite, secured_site

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("secured")) as made:
        yield made


def command(toml: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "halog", *argv, "--config", str(toml)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.feature("O4", "Q5")
def test_a_cluster_whose_log_is_behind_a_password(secured: SecuredSite, tmp_path: Path) -> None:
    """It commits, survives a kill, and starts again; and what it wrote nowhere has the password."""
    with closing(Cluster(tmp_path, secured.site, partitions=2)) as cluster:
        cluster.toml.write_text(secured.password_table(cluster.toml.read_text()))
        cluster.start()
        cluster.whole()
        victim = cluster.table("p-0").node_list[0]
        with Load(cluster.client(), "secured") as load:
            load.flows()
            cluster.kill(victim)
            load.flows()
            cluster.start([victim])
            wait(cluster.complete, "every node list is complete again")
            load.flows()
        assert load.errors == []
        check(cluster, load)
        assert command(cluster.toml, "config", "activate", str(cluster.toml)).returncode == 0
        shown = [command(cluster.toml, *words) for words in (["config", "show"], ["status"], ["doctor"], ["events"])]
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        found = dict(_written(cluster, secured))
        assert not [name for name, data in found.items() if MARK.encode() in data]
        assert not [line for line in lines if MARK.encode() in line]
        for done in shown:
            assert MARK not in done.stdout + done.stderr
        assert 'username = "halog"' in shown[0].stdout
        assert f"{secured.sasl_ssl}, 1 broker" in shown[2].stdout
        kinds = (
            lambda name: name.endswith(".log"),
            lambda name: name.startswith("/halog/"),
            lambda name: "event " in name,
        )
        assert all(any(map(kind, found)) for kind in kinds)


def _written(cluster: Cluster, secured: SecuredSite) -> Iterator[tuple[str, bytes]]:
    """Yield everything that the run has written, by name."""
    for top in (cluster.directory, Path(secured.site.info.data_dir)):
        for path in top.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()
    nodes = [f"/halog/{cluster.name}"]
    while nodes:
        node = nodes.pop()
        if not cluster.zk.exists(node):
            continue
        yield node, cluster.zk.get(node)[0]
        nodes += [f"{node}/{child}" for child in cluster.zk.get_children(node)]
    for offset, value in entries(secured.site.info.bootstrap, f"{cluster.name}.events", 0):
        yield f"event {offset}", value


@pytest.mark.feature("O4", "Q5")
def test_a_node_that_brokers_refuse_does_not_start_and_says_why(secured: SecuredSite, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text(f"{MARK}-wrong")
    with closing(Cluster(tmp_path, secured.site, nodes="AB", partitions=1, async_=0)) as cluster:
        cases = {
            "wrong": (8, "does not let user halog in"),
            "missing": (2, "security.kafka.password: file"),
        }
        for name, (code, why) in cases.items():
            toml = tmp_path / f"{name}.toml"
            toml.write_text(secured.password_table(cluster.toml.read_text(), tmp_path / name))
            done = command(toml, "node", "start", "--name", "A")
            assert (done.returncode, why in done.stderr, MARK in done.stderr) == (code, True, False), done.stderr
            assert len(done.stderr.strip().splitlines()) <= 3, done.stderr


@pytest.mark.long
@pytest.mark.feature("O4", "Q5")
def test_a_node_that_runs_outlives_a_refusal(secured: SecuredSite, tmp_path: Path) -> None:
    """Its password is no longer the broker's, and then is again: it serves once more, and has said what was wrong."""
    with closing(Cluster(tmp_path, secured.site, nodes="AB", partitions=1, async_=0)) as cluster:
        cluster.toml.write_text(secured.password_table(cluster.toml.read_text()))
        cluster.start()
        cluster.whole()
        with Load(cluster.client(), "refused") as load:
            load.flows()
            secured.add_user(USER, f"{MARK}-another")
            secured.site.restart("kafka")
            logs = [cluster.processes[name].log for name in "AB"]
            wait(lambda: all("does not let user halog in" in log.read_text() for log in logs), "both say so", 90)
            secured.add_user(USER, PASSWORD)
            wait(cluster.complete, "both are there", 90)
            load.flows()
        assert cluster.running() == ["A", "B"]
        check(cluster, load)
        assert not any(MARK in log.read_text() for log in logs)


@pytest.mark.long
@pytest.mark.feature("O4", "Q5")
def test_a_password_is_replaced_under_traffic(secured: SecuredSite, tmp_path: Path) -> None:
    """The file first, then whoever must connect again shows the new one: nobody is refused, and nothing restarts."""
    password = tmp_path / "word"
    password.write_text(f"{MARK}-first")
    secured.add_user("turning", f"{MARK}-first")
    with closing(Cluster(tmp_path, secured.site, nodes="AB", partitions=1, async_=0)) as cluster:
        text = secured.password_table(cluster.toml.read_text(), password)
        cluster.toml.write_text(text.replace(f'username = "{USER}"', 'username = "turning"'))
        cluster.start()
        cluster.whole()
        with Load(cluster.client(), "turning") as load:
            load.flows()
            secured.add_user("turning", f"{MARK}-second")
            (tmp_path / "new").write_text(f"{MARK}-second")
            (tmp_path / "new").rename(password)
            logs = [cluster.processes[name].log for name in "AB"]
            wait(lambda: all("was read anew" in log.read_text() for log in logs), "both have read it")
            secured.site.restart("kafka")
            load.flows()
        assert load.errors == []
        assert cluster.running() == ["A", "B"]
        check(cluster, load)
        assert not any(MARK in log.read_text() or "does not let user" in log.read_text() for log in logs)
