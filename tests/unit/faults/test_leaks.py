"""What the fault suite calls left over: of processes, and of znodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from tests.faults import leaks
from tests.integration.cluster.processes import ROOT, wait

pytestmark = pytest.mark.feature("O2")

NODE = json.dumps({"pid": os.getpid()}).encode()
DEAD = json.dumps({"pid": 4_194_305}).encode()  # more than there can be
RIGHT = {"nodes": (b"", 0), "nodes/A": (NODE, 7), "partitions": (b"", 0), "partitions/p-0": (b"", 0)}


class Znodes:
    """Of one cluster: by path data and session."""

    def __init__(self, found: dict[str, tuple[bytes, int]]) -> None:
        self.found = {f"/halog/c/{path}": value for path, value in found.items()}

    def get(self, path: str) -> Any:
        if path not in self.found:
            raise NoNodeError
        data, owner = self.found[path]
        return data, SimpleNamespace(ephemeralOwner=owner)

    def get_children(self, path: str) -> list[str]:
        return [p.rpartition("/")[2] for p in self.found if p.rpartition("/")[0] == path]


def cluster(found: dict[str, tuple[bytes, int]]) -> Any:
    zk = Znodes(found)
    process = SimpleNamespace(pid=os.getpid())
    return SimpleNamespace(
        name="c",
        zk=zk,
        values={"other_sites": ""},
        partitions=lambda: ["p-0"],
        running=lambda: ["A"],
        processes={"A": process},
        znode=lambda path: zk.found.get(f"/halog/c/{path}", (None, 0))[0],
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, []),
        ({"holders": (b"", 0), "holders/p-0": (b"", 0), "holders/p-0/job": (b"", 7)}, []),
        (
            {"holders/p-0": (b"", 0), "holders": (b"", 0), "holders/p-0/job": (b"", 8)},
            ["holders/p-0/job: of a session"],
        ),
        ({"partitions/q-0": (b"", 0), "trimmed": (b"", 0), "trimmed/q-0": (b"", 0)}, ["trimmed/q-0: nothing that is"]),
        ({"locks": (b"", 0), "locks/_c_17": (b"", 7)}, ["locks: nothing that is", "locks/_c_17: nothing that is"]),
        ({"nodes/client": (DEAD, 9)}, ["nodes/client: of a process that has ended"]),
    ],
    ids=["nothing", "a hold", "of a dead session", "of no partition", "a lock", "of a dead process"],
)
def test_znodes_left_over(more: dict[str, tuple[bytes, int]], said: list[str]) -> None:
    found = list(leaks.left_over(cluster({**RIGHT, **more})))
    assert len(found) == len(said)
    assert all(a.startswith(b) for a, b in zip(sorted(found), sorted(said), strict=True)), found


def test_a_node_that_runs_and_is_not_registered() -> None:
    assert list(leaks.left_over(cluster({"nodes": (b"", 0)}))) == ["nodes/A is not there"]


class Holder:
    """A process that holds what it is told to. (In this one threads of other files' tests are still ending.)"""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.hears("ready")

    def hears(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def take(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.hears(what)

    def footprint(self) -> leaks.Footprint:
        return leaks.footprint(self.process.pid)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    argv = [sys.executable, "-m", "tests.unit.faults.holding", str(tmp_path / "file")]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Holder(process)
        finally:
            process.kill()


def test_everything_a_process_holds_is_counted(holder: Holder) -> None:
    before = holder.footprint()
    holder.take("things")
    assert holder.footprint() == (before.threads + 1, before.kafka, before.connections + 1, before.files + 1)


def test_a_kafka_client_is_counted(holder: Holder) -> None:
    """Its threads name themselves soon after they began."""
    before = holder.footprint()
    holder.take("client")
    wait(lambda: holder.footprint()[:2] == (before.threads, before.kafka + 1), "it is one Kafka client", 20)


@pytest.mark.parametrize("more", [(11, 0, 0, 0), (0, 4, 0, 0), (0, 0, 45, 0), (0, 0, 0, 21)])
def test_more_than_it_may_hold(more: tuple[int, ...]) -> None:
    before = leaks.Footprint(30, 9, 70, 10)
    now = leaks.Footprint(*(a + b for a, b in zip(before, more, strict=True)))
    assert before.within(leaks.bound(before, 3))
    assert not now.within(leaks.bound(before, 3))


def test_what_grows_fails() -> None:
    held = leaks.footprint(os.getpid())
    leaks.given_back(cluster(RIGHT), {os.getpid(): held})
    with pytest.raises(AssertionError, match="A holds"):
        leaks.given_back(cluster(RIGHT), {os.getpid(): leaks.Footprint(*(n - 60 for n in held))}, 0.1)
    with pytest.raises(AssertionError, match="no znode is left over"):
        leaks.given_back(cluster({**RIGHT, "locks": (b"", 0)}), {}, 0.1)
