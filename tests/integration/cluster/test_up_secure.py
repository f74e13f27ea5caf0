"""`halog up --secure`: servers that take TLS and passwords, with all that a cluster needs for it (O4, N5)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.cluster.processes import Process

pytestmark = pytest.mark.timeout(240)

TOML = """
[cluster]
name = "fleet"
[site]
embedded = "site"
[zones.main]
nodes = ["A", "B"]
[policies.default]
zone = "main"
partitions = 2
[bindings]
"*" = "default"
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
"""


def halog(directory: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "halog", *words], cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


@pytest.mark.feature("O4", "N5", "Q5")
def test_a_cluster_lives_on_a_site_that_was_started_secure(tmp_path: Path) -> None:
    toml = tmp_path / "halog.toml"
    toml.write_text(TOML)
    up = ("up", "--secure", "--data-dir", "site", "--format", "json")
    try:
        began = json.loads(halog(tmp_path, *up).stdout)
        lines = Path(began["lines"]).read_text()
        assert {"security"} == set(tomllib.loads(lines))
        others = [p for p in (tmp_path / "site/security").rglob("*") if p.is_file() and p.suffix != ".crt"]
        assert [p for p in others if stat.S_IMODE(p.stat().st_mode) & 0o077 and p.name != ".lock"] == []
        secrets = [p.read_text() for p in others if p.suffix == ".password"]
        assert len(secrets) == 2
        assert not any(secret in json.dumps(began) + lines for secret in secrets)
        assert "is already running" in halog(tmp_path, *up, code=1).stderr
        toml.write_text(TOML + lines)
        nodes = [
            Process(n, tmp_path, ["halog.cli.main", "node", "start", "--config", str(toml), "--name", n]) for n in "AB"
        ]
        for node in nodes:
            node.ready(120)
        status = json.loads(halog(tmp_path, "status", "--format", "json").stdout)
        assert (status["ok"], status["nodes"]) == (True, {"A": "up", "B": "up"}), status
        doctor = halog(tmp_path, "doctor").stdout
        assert f"{began['kafka_sasl_ssl']}, 1 broker" in doctor
        assert began["zookeeper_tls"] in doctor
        assert "what commands need is allowed" in doctor, doctor
        words = ("acl", "kafka", "--role", "node", "--check")
        assert "does not allow user halog" in halog(tmp_path, *words, code=8).stderr, "a node may not look at ACLs"
        halog(tmp_path, "acl", "zookeeper", "--check")
        # Without the lines nobody gets in, though the doors in plain text are there.
        plain = tmp_path / "plain.toml"
        plain.write_text(TOML)
        refused = halog(tmp_path, "status", "--config", str(plain), code=8)
        assert "belongs to" in refused.stderr, refused.stderr
        for node in nodes:
            node.kill()
        halog(tmp_path, "down", "--data-dir", "site")
        again = json.loads(halog(tmp_path, *up).stdout)
        assert {name: again[name] for name in ("kafka_sasl_ssl", "zookeeper_tls")} == {
            name: began[name] for name in ("kafka_sasl_ssl", "zookeeper_tls")
        }
        assert [p.read_text() for p in others if p.suffix == ".password"] == secrets
        node = Process("A", tmp_path, ["halog.cli.main", "node", "start", "--config", str(toml), "--name", "A"])
        node.ready(120)
        node.kill()
    finally:
        halog(tmp_path, "down", "--data-dir", "site")


@pytest.mark.feature("O4")
def test_what_cannot_be_started_secure_changes_nothing(tmp_path: Path) -> None:
    halog(tmp_path, "up", "--secure", "--data-dir", "site", code=2)
    assert os.listdir(tmp_path) == []
    (tmp_path / "halog.toml").write_text(TOML)
    refused = halog(tmp_path, "up", "--secure", "--sites", "west,east", "--data-dir", "sites", code=2)
    assert "--secure excludes --sites" in refused.stderr
    halog(tmp_path, "up", "--secure", "--data-dir", "site", "--kafka-port", "99999", code=2)
    assert os.listdir(tmp_path) == ["halog.toml"]
