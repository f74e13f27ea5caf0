"""The operator's tools against real servers and node processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(site: Any, tmp_path_factory: pytest.TempPathFactory, new_cluster: Any) -> Iterator[Any]:
    """One for all tests here: none of them hurts it."""
    made = new_cluster(tmp_path_factory.mktemp("tools"), site.info.bootstrap, site.info.zookeeper)
    try:
        made.start("A", "B", "C")
        made.settle()
        yield made
    finally:
        made.close()


@pytest.mark.feature("O1")
def test_the_log_is_followed_decoded_without_the_application(cluster: Any) -> None:
    """`log tail -f` shows a commit as it happens, its value decoded, its verdict beside it; Ctrl-C ends it with 0."""
    cluster.load(5)
    place = cluster.halog("get", "Aircraft", "N1", "--format", "json").json["partition"]
    tail = cluster.popen("log", "tail", place, "-n", "1000", "-f", "--format", "json", stderr=subprocess.PIPE)
    change = next_create(tail, lambda key: key == ["N1"])
    assert (change["type"], change["fields"]) == ("Aircraft", {"tail": "N1", "miles": 1})
    cluster.load(60)
    change = next_create(tail, lambda key: int(key[0][1:]) >= 5)
    assert change["fields"]["miles"] == int(change["key"][0][1:])
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=60)
    assert (tail.returncode, err) == (0, "")


def next_create(tail: subprocess.Popen[str], wanted: Callable[[list[Any]], bool]) -> Any:
    """Read on until a commit creates an object with such a key."""
    assert tail.stdout is not None
    for line in tail.stdout:
        record = json.loads(line)
        for change in record.get("changes", ()):
            if change["op"] == "create" and wanted(change["key"]):
                assert record["verdict"] == "accepted"
                return change
    raise AssertionError("the tail ended")


@pytest.mark.feature("Q5", "O1")
def test_a_partition_is_handed_over_and_back(cluster: Any) -> None:
    """`failover` moves the active role, a second time it is nothing to do, and nothing is lost."""
    cluster.load(10)
    place = cluster.halog("get", "Aircraft", "N1", "--format", "json").json["partition"]
    was = active(cluster, place)
    to = next(n for n in "ABC" if n != was)
    moved = cluster.halog("failover", place, "--to", to, "--format", "json")
    assert moved.code == 0, moved
    assert active(cluster, place) == to
    assert cluster.halog("failover", place, "--to", to).code == 0
    assert cluster.halog("get", "Aircraft", "N1", "--format", "json").json["fields"]["miles"] == 1


def active(cluster: Any, place: str) -> Any:
    """Who is active, once that node has said so itself: one that answers late is not shown."""
    until = time.monotonic() + 60
    while (found := cluster.halog("partition", "show", place, "--format", "json").json["active"]) is None:
        assert time.monotonic() < until
    return found


@pytest.mark.feature("O1", "O3")
def test_objects_travel_between_clusters(cluster: Any, site: Any, tmp_path_factory: Any, new_cluster: Any) -> None:
    """What one cluster exports, another one imports, field by field."""
    cluster.load(300)
    exported = cluster.halog("export", "-o", "all.jsonl", "--format", "json")
    assert exported.json["objects"] == 300
    other = new_cluster(tmp_path_factory.mktemp("other"), site.info.bootstrap, site.info.zookeeper)
    try:
        other.start("A", "B", "C")
        other.settle()
        imported = other.halog("import", cluster.directory / "all.jsonl", "--format", "json")
        assert imported.json["created"] == 300, imported
        again = other.halog("export", "-o", "all.jsonl")
        assert again.code == 0
        assert fields(other) == fields(cluster)
    finally:
        other.close()


def fields(cluster: Any) -> list[Any]:
    lines = (cluster.directory / "all.jsonl").read_text().splitlines()
    return sorted((d["key"], d["fields"]) for d in map(json.loads, lines[:-1]))
