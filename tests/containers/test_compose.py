"""`compose/` comes up with one command, serves commits from inside, and loses a node without losing an object."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import ports
from tests.containers.available import why_not

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "tools/compose.sh"
PUBLISHED = [f"{server}{n}_PORT" for server in ("KAFKA", "ZOOKEEPER") for n in (1, 2, 3)]


class Compose:
    """A project of this test's own: other names, other ports than `make compose`."""

    def __init__(self) -> None:
        taken: set[int] = set()
        for _ in PUBLISHED:
            taken.add(ports.pick(taken))
        chosen = dict(zip(PUBLISHED, map(str, sorted(taken)), strict=True))
        self.env = {**os.environ, **chosen, "COMPOSE_PROJECT_NAME": f"halog-test-{os.getpid()}"}

    def run(self, *words: str, limit_s: float = 60.0) -> str:
        done = subprocess.run(
            [COMMAND, *words], env=self.env, capture_output=True, text=True, timeout=limit_s, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def land(self, node: str, tail: str, times: int) -> list[str]:
        """What the client says, run inside `node`'s container."""
        said = self.run("exec", "-T", node, "python", "/app/land.py", tail, str(times))
        return [line.partition(" at ")[0] for line in said.splitlines()]


@pytest.fixture
def compose() -> Iterator[Compose]:
    if reason := why_not("kafka", "zookeeper", "node"):
        pytest.skip(reason)
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("the Docker CLI has no compose v2: `make compose` installs it where it can")
    made = Compose()
    try:
        yield made
    finally:
        made.run("down", "--volumes", "--timeout", "5", limit_s=120)


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.feature("O3", "P10", "R1")
def test_one_command_brings_the_cluster_up_and_it_survives_a_killed_node(compose: Compose) -> None:
    """Everything published is published on loopback; commits go on when a node's container is killed; started again,
    it is one of three."""
    config: dict[str, Any] = json.loads(compose.run("config", "--format", "json"))
    published = [p for service in config["services"].values() for p in service.get("ports", ())]
    assert len(published) == len(PUBLISHED)
    assert {p["host_ip"] for p in published} == {"127.0.0.1"}
    compose.run(limit_s=300)
    assert compose.land("node-b", "N14228", 2) == ["N14228 1", "N14228 2"]
    compose.run("kill", "node-a")
    tails = [f"N{n}" for n in range(6)]
    assert [compose.land("node-b", t, 1) for t in tails] == [[f"{t} 1"] for t in tails]
    compose.run("up", "--detach", "--wait", "node-a", limit_s=120)
    status = json.loads(compose.run("exec", "-T", "node-c", "halog", "status", "--format", "json"))
    assert status["nodes"] == {"A": "up", "B": "up", "C": "up"}
    assert compose.land("node-a", "N14228", 1) == ["N14228 3"]
