"""Hosting nodes as real processes, started by `halog node start` as an operator does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from tests import forked
from tests.integration.site import Site

FLEET = """
import halog.schema as schema

@schema.managed(key="tail")
class Aircraft:
    tail: str
    miles: int = 0
"""

TOML = """
[cluster]
name = "{cluster}"
[site]
bootstrap = "{bootstrap}"
zookeeper = "{zookeeper}"
[application]
modules = ["fleet"]
[zones.home]
nodes = ["A", "B", "C"]
[policies.p]
zone = "home"
partitions = 6
sync_replicas = 1
async_replicas = 1
[bindings]
"*" = "p"
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
[nodes.C]
data_dir = "C"
"""

SETTLES_S = 90.0
"""A machine that has much to do takes seconds for each look, and a node that answers late is shown as silent."""


class Ran(NamedTuple):
    """How a command line went."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(forked.ROOT)}


class Node(forked.Forked):
    """A node whose stdout is a pipe, as `subprocess.PIPE` makes it."""

    def __init__(self, command: list[str], directory: Path, err: IO[str]) -> None:
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading)
        with open(writing, "w") as out:
            super().__init__(command[2:], directory, environment(), out, err)


class Cluster:
    """A directory with a configuration and the application's module, and the node processes started in it."""

    def __init__(self, directory: Path, bootstrap: str, zookeeper: str) -> None:
        self.directory = directory
        self.name = f"cli{uuid.uuid4().hex[:8]}"
        self.toml = directory / "halog.toml"
        self.toml.write_text(TOML.format(cluster=self.name, bootstrap=bootstrap, zookeeper=zookeeper))
        (directory / "fleet.py").write_text(FLEET)
        self.nodes: dict[str, Node | subprocess.Popen[str]] = {}

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "halog.cli.main", *map(str, args)]

    def popen(self, *args: object, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*args), cwd=self.directory, env=environment(), text=True, stdout=subprocess.PIPE, **more
        )

    def halog(self, *args: object) -> Ran:
        ran = forked.run(self.command(*args)[2:], cwd=self.directory, env=environment(), timeout=60)
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def launch(self, name: str) -> Node:
        with (self.directory / f"{name}.err").open("w") as err:
            self.nodes[name] = node = Node(
                self.command("node", "start", "--name", name, "--format", "json"), self.directory, err
            )
        return node

    def ready(self, name: str) -> Any:
        """The line a node prints when it is up."""
        process = self.nodes[name]
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, self.said(name)
        return json.loads(line)

    def start(self, *names: str) -> None:
        for name in names:
            self.launch(name)
        for name in names:
            self.ready(name)

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.err").read_text()

    def stop(self, name: str, number: int = signal.SIGTERM) -> int:
        process = self.nodes[name]
        process.send_signal(number)
        code = process.wait(60)  # one that does not end is killed at the test's end
        del self.nodes[name]
        return code

    def settle(self, code: int = 0, *, served: bool = False) -> Any:
        """Until `halog status` ends with this exit code; its document. `served`: and each partition is served."""
        until = time.monotonic() + SETTLES_S
        while True:
            ran = self.halog("status", "--format", "json")
            if ran.code == code and not (served and ran.json["without_active"]):
                return ran.json
            assert time.monotonic() < until, ran

    def load(self, count: int) -> None:
        """Create aircraft through `halog import`: no application code in this process."""
        file = self.directory / "some.jsonl"
        rows = [{"type": "Aircraft", "key": [f"N{n}"], "fields": {"tail": f"N{n}", "miles": n}} for n in range(count)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ran = self.halog("import", file, "--skip-existing")
        assert ran.code == 0, ran

    def close(self) -> None:
        for process in self.nodes.values():
            process.kill()
        for process in self.nodes.values():
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def prepared(site: Site, tmp_path: Path) -> Iterator[Cluster]:
    """A configuration; no node is running yet."""
    made = Cluster(tmp_path, site.info.bootstrap, site.info.zookeeper)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(prepared: Cluster) -> Cluster:
    """Three settled nodes."""
    prepared.start("A", "B", "C")
    prepared.settle()
    return prepared


@pytest.fixture(scope="session")
def new_cluster() -> type[Cluster]:
    """To make one somewhere."""
    return Cluster


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[[str, str], Cluster]:
    """A configuration that points at other servers."""
    return lambda bootstrap, zookeeper: Cluster(tmp_path, bootstrap, zookeeper)
