"""Jobs on a Spark cluster: a master and a worker in containers, nodes and driver beside them (S1, O3)."""

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
from tests.integration.sites.conftest import between, linked, two_sites
from tests.integration.sites.test_merging_by_spark import as_reported, reported
from tests.integration.sites.test_restoring import argv_of
from tests.integration.sites.test_spark_merge import parted, plainly
from tests.integration.sites.test_taking_over import level
from tests.integration.sites.two import EAST, TwoSites
from tools import images

__all__ = ["between", "linked", "parted", "two_sites"]
STEADY = 1_200
STARTS_S = 90.0
PARTITIONS = 4
MAPPER = "tests.integration.cluster.fleet:by_letters"
INSIDE = "/opt/halog/venv/bin/python"


def started(tag: str, stack: ExitStack, shared: Path, **env: str) -> DockerContainer:
    """In the network of this machine, where brokers and nodes are reached by loopback. `shared`: a directory of this
    machine that is there, too; whoever runs this test writes there from both sides."""
    made = DockerContainer(tag).with_envs(HOST="127.0.0.1", **env).with_volume_mapping(shared, str(shared), "rw")
    made.with_kwargs(network_mode="host", labels={LABEL: str(os.getpid())}, user=str(os.getuid()))
    stack.enter_context(made)
    return made


def said(container: DockerContainer) -> str:
    return "".join(part.decode(errors="replace") for part in container.get_logs())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What driver and executors share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def master(shared: Path) -> Iterator[str]:
    """Its URL; a worker has registered."""
    images.prepare(("spark",))
    tag, port = "halog-spark:test", ports.pick(set())
    arguments: Any = {"buildargs": {"BASE": base("spark"), "JRE": base("kafka")}}
    DockerImage(images.IMAGES / "spark", tag=tag, clean_up=False, **arguments).build()
    with ExitStack() as stack:
        first = started(tag, stack, shared, PORT=str(port))
        wait(lambda: answers(port), lambda: f"the master answers: {said(first)}", STARTS_S)
        worker = started(tag, stack, shared, MASTER=f"spark://127.0.0.1:{port}")
        registered = "Successfully registered with master"
        wait(lambda: registered in said(worker), lambda: f"the worker registers: {said(worker)}", STARTS_S)
        yield f"spark://127.0.0.1:{port}"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a driver beside the containers is told of them."""
    monkeypatch.setenv("PYSPARK_PYTHON", INSIDE)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


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
def test_the_job_runs_on_a_spark_cluster(make: Make, master: str, inside: None, tmp_path: Path) -> None:
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


@pytest.mark.slow
@pytest.mark.timeout(720)
@pytest.mark.feature("S1", "M2", "O3")
def test_two_sites_are_merged_by_a_job_on_a_spark_cluster(
    parted: TwoSites, master: str, inside: None, shared: Path, tmp_path: Path
) -> None:
    """The same command with the master's URL: the worker's container reads both sites' logs, over the lines between
    them, and what it finds is what one process would have found. Without a directory that is in that container, too, it
    is refused, and goes on once it has one."""
    plain = plainly(parted.west.toml)
    words = ["restore", "--source", EAST, "--spark-master", master]
    refused = Process("refused", tmp_path, argv_of(parted.west, *words)[2:])
    assert refused.exit_code(300) == 2, refused.last_words(3_000)
    assert "driver and executors share; name one with --checkpoint" in refused.log.read_text()
    job = Process("job", tmp_path, argv_of(parted.west, *words, "--checkpoint", str(shared / "merge"))[2:])
    assert job.exit_code(300) == 0, job.last_words(3_000)
    done = {d["partition"]: d for d in json.loads(job.lines()[-1])}
    assert {d["phase"] for d in done.values()} == {"done"}
    assert reported(parted, {name: d["merge"] for name, d in done.items()}) == as_reported(plain)
    level(parted)
