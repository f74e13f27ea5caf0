"""The rebalance job on a Spark cluster: a master and a worker in containers, nodes and driver beside them (S1, O3)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from halog.embedded import ports
from tests.containers.available import LABEL, base
from tests.integration.cluster.fleet import Aircraft, by_letters
from tests.integration.cluster.harness import Make
from tests.integration.cluster.load import Load, partition_of
from tests.integration.cluster.processes import Process, wait
from tests.integration.cluster.test_remapping import check_places
from tools import images

STEADY = 1_200
STARTS_S = 90.0
PARTITIONS = 4
MAPPER = "tests.integration.cluster.fleet:by_letters"
INSIDE = "/opt/halog/venv/bin/python"


def started(tag: str, stack: ExitStack, **env: str) -> DockerContainer:
    """In the network of this machine, where brokers and nodes are reached by loopback."""
    made = DockerContainer(tag).with_envs(HOST="127.0.0.1", **env)
    made.with_kwargs(network_mode="host", labels={LABEL: str(os.getpid())})
    stack.enter_context(made)
    return made


def said(container: DockerContainer) -> str:
    return "".join(part.decode(errors="replace") for part in container.get_logs())


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """Its URL; a worker has registered."""
    images.prepare(("spark",))
    tag, port = "halog-spark:test", ports.pick(set())
    arguments: Any = {"buildargs": {"BASE": base("spark"), "JRE": base("kafka")}}
    DockerImage(images.IMAGES / "spark", tag=tag, clean_up=False, **arguments).build()
    with ExitStack() as stack:
        first = started(tag, stack, PORT=str(port))
        wait(lambda: answers(port), lambda: f"the master answers: {said(first)}", STARTS_S)
        worker = started(tag, stack, MASTER=f"spark://127.0.0.1:{port}")
        registered = "Successfully registered with master"
        wait(lambda: registered in said(worker), lambda: f"the worker registers: {said(worker)}", STARTS_S)
        yield f"spark://127.0.0.1:{port}"


def answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


def document(name: str, directory: Path, words: list[str]) -> dict[str, Any]:
    """What `halog rebalance` says of the one policy there is."""
    job = Process(name, directory, ["halog.cli.main", "rebalance", *words, "--format", "json"])
    assert job.exit_code(300) == 0, job.last_words(3_000)
    (found,) = json.loads(job.lines()[-1])["policies"]
    return dict(found)


@pytest.mark.slow
@pytest.mark.timeout(720)
@pytest.mark.feature("S1", "P13", "O3")
def test_the_job_runs_on_a_spark_cluster(
    make: Make, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command with the master's URL: the application's mapper, which no image has, is called in the worker's
    container; what would move is counted, then moves under traffic, and everything is where the file has it."""
    cluster = make(nodes="AB", partitions=PARTITIONS, async_=0)
    cluster.start()
    client = cluster.client()
    tails = [f"steady{i}" for i in range(STEADY)]
    client.load([Aircraft(tail, miles=i) for i, tail in enumerate(tails)])
    elsewhere = sum(partition_of(client, tail) != by_letters("Aircraft", (tail,)) for tail in tails)
    assert elsewhere > STEADY / 2
    mapped = cluster.configuration("mapped.toml", partitions=f'{PARTITIONS}\nmapper = "{MAPPER}"\nmove_objects = 20')
    monkeypatch.setenv("PYSPARK_PYTHON", INSIDE)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    words = ["--config", str(mapped), "--zone", "home", "--spark-master", master]
    counted = document("count", tmp_path, [*words, "--dry-run"])
    assert (counted["rows"], counted["would_move"]) == (STEADY, elsewhere)
    with Load(client, "cluster", 1, 0.02) as load:
        found = document("job", tmp_path, words)
    assert (found["state"], found["clean"], found["refused"]) == ("done", PARTITIONS, 0)
    assert found["moved"] > STEADY / 2
    assert load.errors == []
    check_places(cluster, mapped)
    load.check_objects(cluster.client("judge"))
