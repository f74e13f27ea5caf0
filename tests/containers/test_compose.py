"""`compose/` comes up with one command, serves commits from inside, and loses a node without losing an object;
with Spark beside it, a job there moves objects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import ports
from tests.containers.available import PROJECT, remove_leftovers, run_name, why_not

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "tools/compose.sh"
JOB = "halog rebalance --zone main --config new.toml --spark-master spark://spark-master:7077"
"""As docs/guides/containers.md has it."""
OBJECTS = 300
LOAD = f"""
import halog
from fleet import Aircraft
with halog.node("/etc/halog/halog.toml") as node:
    node.load([Aircraft(tail=f"N{{i}}") for i in range({OBJECTS})])
"""
LANDS = """
import halog
from fleet import Aircraft
with halog.node("/etc/halog/halog.toml") as node:
    for i in range(6):
        with node.transaction():
            print(f"N{i}", node.create(Aircraft(tail=f"N{i}")).land(1400))
"""
"""In several partitions, by one client: each takes seconds to start."""
PUBLISHED = [f"{server}{n}_PORT" for server in ("KAFKA", "ZOOKEEPER") for n in (1, 2, 3)]


class Compose:
    """A project of this test's own: other names, other ports than `make compose`."""

    def __init__(self) -> None:
        taken: set[int] = set()
        for _ in PUBLISHED:
            taken.add(ports.pick(taken))
        chosen = dict(zip(PUBLISHED, map(str, sorted(taken)), strict=True))
        self.env = {**os.environ, **chosen, "COMPOSE_PROJECT_NAME": PROJECT + run_name()}

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

    def rebalance(self, *words: str) -> dict[str, Any]:
        """What the job says of the one policy there is."""
        said = self.run("exec", "-T", "spark-master", *JOB.split(), "--format", "json", *words, limit_s=240)
        (found,) = json.loads(said.splitlines()[-1])["policies"]
        return dict(found)

    def left(self) -> str:
        """Containers there still are."""
        mine = f"label=com.docker.compose.project={self.env['COMPOSE_PROJECT_NAME']}"
        argv = ["docker", "ps", "--all", "--filter", mine, "--format", "{{.Names}}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def compose() -> Iterator[Compose]:
    if reason := why_not("kafka", "zookeeper", "node"):
        pytest.skip(reason)
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("the Docker CLI has no compose v2: `make compose` installs it where it can")
    remove_leftovers()
    made = Compose()
    try:
        yield made
    finally:
        made.run("down", "--volumes", "--timeout", "0", limit_s=120)  # nobody wants what they would store
    assert made.left() == ""


@pytest.mark.containers
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
    assert compose.run("exec", "-T", "node-b", "python", "-c", LANDS).splitlines() == [f"N{n} 1" for n in range(6)]
    compose.run("up", "--detach", "--wait", "node-a", limit_s=120)
    status = json.loads(compose.run("exec", "-T", "node-c", "halog", "status", "--format", "json"))
    assert status["nodes"] == {"A": "up", "B": "up", "C": "up"}
    assert compose.land("node-a", "N14228", 1) == ["N14228 3"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.feature("S1", "P13", "O3")
def test_with_sparks_profile_a_job_moves_objects_to_new_partitions(compose: Compose, tmp_path: Path) -> None:
    """As the guide has it: one command, a file with more partitions, the count, and what was counted moves."""
    compose.env["COMPOSE_PROFILES"] = "spark"
    compose.run(limit_s=420)
    del compose.env["COMPOSE_PROFILES"]
    compose.run("exec", "-T", "node-a", "python", "-c", LOAD)
    (tmp_path / "new.toml").write_text(
        (ROOT / "compose/halog.toml").read_text().replace("\npartitions = 6\n", "\npartitions = 9\n")
    )
    compose.run("cp", str(tmp_path / "new.toml"), "spark-master:/data")
    counted = compose.rebalance("--dry-run")
    assert counted["rows"] == OBJECTS
    assert 0 < counted["would_move"] < OBJECTS
    moved = compose.rebalance()
    assert (moved["state"], moved["clean"], moved["moved"]) == ("done", 9, counted["would_move"])
    assert compose.land("node-b", "N7", 1) == ["N7 1"]
