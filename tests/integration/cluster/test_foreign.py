"""A partition on nodes that are not this one: followed, used, and never hosted, whatever happens to its nodes (P9)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import Process, wait
from tests.integration.cluster.waits import DIED

pytestmark = pytest.mark.timeout(600)

P = "p-0"


def started(cluster: Cluster) -> Process:
    """Node C, which uses objects itself."""
    argv = ["tests.integration.cluster.foreigner", str(cluster.toml), "C"]
    process = cluster.processes["C"] = Process("C", cluster.directory, argv)
    process.ready()
    return process


def said(process: Process, what: str) -> list[list[str]]:
    return [words[1:] for words in map(str.split, process.lines()) if words[0] == what]


def goes_on(process: Process) -> None:
    had = len(said(process, "done"))
    wait(lambda: len(said(process, "done")) >= had + 3, lambda: f"C writes; it said {process.lines()[-3:]}")


def knows(process: Process, *seen: str) -> None:
    """The last it said of the partition begins so."""

    def last() -> list[str]:
        return next(reversed(said(process, "seen")), [])

    wait(lambda: last()[: len(seen)] == list(seen), lambda: f"C knows {seen}; it knows {last()}")


def mentions(cluster: Cluster, node: str) -> bool:
    """Is anything of the partition in this node's directory? Keys of its store begin with the log id's first bytes."""
    prefix = bytes.fromhex(cluster.table(P).log_id)[:8]
    files = [f for f in (cluster.directory / node).rglob("*") if f.is_file()]
    assert files
    return any(prefix in _content(f) for f in files)


def _content(file: Path) -> bytes:
    """Empty, if its store has just given it up."""
    with suppress(FileNotFoundError):
        return file.read_bytes()
    return b""


@pytest.mark.feature("P9", "R4", "P10")
def test_a_foreign_partition_is_followed_and_used_and_never_hosted(make: Make, control: Control) -> None:
    """The partition is on A and B, C is a node of the same zone. What C creates and changes is on both, under load and
    through a failover; its list is current; it holds no copy, also not after a restart; and when A and B are gone it
    does not take their place, though it is the only node there is."""
    cluster = make(partitions=1, async_=0, stay_ms=600_000)
    cluster.start(["A", "B"])
    wait(lambda: cluster.complete(cluster.table(P)), "A and B host it")
    cluster.lead(P, "A")
    foreign = started(cluster)
    with Load(cluster.client(), "home") as load:
        knows(foreign, "Active", "A", "A,B", "True")
        goes_on(foreign)
        assert cluster.status("C")["copies"] == []
        cluster.kill("A")
        knows(foreign, "Active", "B", "B", "True")
        goes_on(foreign)
        load.flows()
        cluster.start(["A"])
        knows(foreign, "Active", "B", "B,A", "True")
        goes_on(foreign)
        load.flows()
        assert cluster.status("C")["copies"] == []
    assert load.errors == []
    control.check(load.waits, DIED)
    for name in "AB":
        cluster.kill(name)
    knows(foreign, "Unavailable")
    foreign.kill()
    done, seen = said(foreign, "done"), said(foreign, "seen")
    again = started(cluster)
    knows(again, "Initial")  # served by nobody since it started
    assert cluster.status("C")["copies"] == []
    cluster.start(["A", "B"])
    wait(lambda: cluster.complete(cluster.table(P)), "A and B host it again")
    goes_on(again)
    assert cluster.status("C")["copies"] == []
    again.kill()
    node = cluster.client()
    with node.transaction():
        for (tail,) in (*done, *said(again, "done")):
            assert node.get(Aircraft, tail).landings == 1
    assert {words[1] for words in (*seen, *said(again, "seen"))} <= {"A", "B", "-"}
    check(cluster, load)
    wait(lambda: mentions(cluster, "A"), "A's store is on its disk")
    assert not mentions(cluster, "C")
