"""partition define, enable, disable and replicate, and how list and show tell of them; on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli import conftest
from tests.unit.cli.conftest import Cluster, wait_until

Run = Callable[..., Any]

TOML = conftest.TOML.replace(
    "[bindings]",
    """[policies.own]
kind = "static"
zone = "home"
[policies.own.partitions]
eu = []
[bindings]""",
)


@pytest.fixture
def placing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Beside p-0 … p-5 there is eu, which nobody has placed."""
    made = Cluster(tmp_path, TOML)
    made.settle = lambda: settled(made)  # type: ignore[method-assign]
    with conftest.running(made, monkeypatch) as cluster:
        yield cluster


def settled(cluster: Cluster) -> Cluster:
    wait_until(lambda: all(t.active and len(t.node_list) == 3 for t in cluster.tables() if t.configured))
    return cluster


def table(cluster: Cluster, name: str) -> Any:
    return next(t for t in cluster.tables() if t.name == name)


@pytest.mark.feature("P7", "P8", "O1")
def test_a_partition_is_defined_enabled_and_disabled_by_commands(placing: Cluster, halog: Run) -> None:
    listed = {v["partition"]: (v["state"], v["life"]) for v in halog("partition", "list", "--format", "json").json}
    assert listed["eu"] == ("not placed", "Initial")
    assert halog("status").code == 0, "nothing is missing"
    ran = halog("partition", "define", "eu", "--node", "A", "--nodes", "A,B")
    assert ran.code == 0, ran
    assert ran.out == "partition eu: A has it on A, B with 1 sync\n"
    assert "not in effect yet: `halog partition enable eu --node A`" in ran.err
    ran = halog("partition", "enable", "eu", "--node", "A", "--timeout", 30)
    assert (ran.code, ran.out) == (0, "partition eu: enabled on A; it is on A, B\n"), ran
    assert table(placing, "eu").node_list == ("A", "B")
    wait_until(lambda: all(placing.nodes[n].partitions["eu"].state == "Active" for n in "ABC"))
    shown = halog("partition", "show", "eu", "--format", "json").json
    assert {s["node"]: (s["status"], s["life"]) for s in shown["seen"]} == {
        "A": ("LocalEnabled", "Active"),
        "B": ("RemoteEnabled", "Active"),
        "C": ("RemoteEnabled", "Active"),
    }
    assert shown["definitions"]["A"] == {"nodes": ["A", "B"], "sync_replicas": 1, "said": "enabled"}
    ran = halog("partition", "disable", "eu", "--node", "B", "--timeout", 30, "--format", "json")
    assert (ran.json["status"], ran.json["nodes"]) == ("LocalDisabled", ["A"])
    ran = halog("partition", "disable", "eu", "--node", "A")
    assert ran.out == "partition eu: disabled on A; it is on A, where it can be read and takes nothing new\n"
    wait_until(lambda: placing.nodes["A"].partitions["eu"].state == "Unavailable")
    ran = halog("partition", "show", "eu")
    assert "Unavailable" in ran.out
    assert "LocalDisabled" in ran.out
    assert "A, B with 1 sync" in ran.out, "what it said"


@pytest.mark.feature("P7", "O1")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("define", "p-9", "--node", "A", "--nodes", "A"), 2, "there is no partition p-9"),
        (("define", "p-0", "--node", "X", "--nodes", "A"), 2, "there is no node X; known are A, B, C"),
        (("define", "p-0", "--node", "A", "--nodes", "A,A"), 2, "A is named twice"),
        (("define", "p-0", "--node", "A", "--nodes", "C,B"), 5, "on C, B, and the cluster has it on A, B, C"),
        (("define", "p-0", "--node", "A"), 2, "Missing option '--nodes'"),
        (("enable", "eu", "--node", "A"), 5, "A has not defined eu in this run: define it first"),
        (("disable", "eu", "--node", "A"), 5, "eu is not enabled on A"),
        (("replicate", "eu"), 5, "eu has no active node"),
        (("replicate", "p-0", "--nodes", "X"), 2, "there is no node X; known are A, B, C"),
    ],
)
def test_what_cannot_be_is_refused(placing: Cluster, halog: Run, args: tuple[str, ...], code: int, said: str) -> None:
    before = placing.tables()
    ran = halog("partition", *args)
    assert (ran.code, said in " ".join(ran.err.split())) == (code, True), ran
    assert placing.tables() == before


@pytest.mark.feature("P7", "O1")
def test_a_node_that_does_not_run_has_to_say_it_itself_when_it_starts(placing: Cluster, halog: Run) -> None:
    placing.stop("C")
    ran = halog("partition", "define", "eu", "--node", "C", "--nodes", "C,B")
    assert (ran.code, "node C is not running: start it first" in ran.err) == (5, True)
    assert halog("partition", "define", "eu", "--node", "B", "--nodes", "B,C").code == 0
    ran = halog("partition", "enable", "eu", "--node", "B", "--no-wait")
    assert ran.out == "partition eu: enabled on B; it moves to B, C\n"
    placing.start("C")
    shown = halog("partition", "show", "eu", "--format", "json").json
    (copy,) = [c for c in shown["copies"] if c["node"] == "C"]
    assert copy["error"] == "not enabled there since the node was started"
    for what in (("define", "eu", "--node", "C", "--nodes", "B,C"), ("enable", "eu", "--node", "C")):
        assert halog("partition", *what).code == 0
    wait_until(lambda: table(placing, "eu").node_list == ("B", "C"), 20)


@pytest.mark.feature("P12", "O1")
def test_replicas_are_copied_anew_by_a_command(cluster: Any, halog: Run) -> None:
    before = {n: cluster.nodes[n].runtime.copies["p-0"] for n in "ABC"}
    ran = halog("partition", "replicate", "p-0", "--nodes", "C", "--timeout", 30)
    assert ran.code == 0, ran
    assert ran.out.startswith("partition p-0: C copied anew in ")
    assert "C " in ran.err, "progress is talk"
    assert [n for n in "ABC" if cluster.nodes[n].runtime.copies["p-0"] is not before[n]] == ["C"]
    ran = halog("partition", "replicate", "p-0", "--timeout", 30, "--format", "json")
    assert (sorted(ran.json["nodes"]), ran.json["done"], ran.json["still_to_do"]) == (["B", "C"], True, [])
    began = halog("partition", "replicate", "p-1", "--no-wait")
    assert "to be copied anew" in began.out
    assert "still to do: " in began.err
    wait_until(lambda: table(cluster, "p-1").resync is None)
