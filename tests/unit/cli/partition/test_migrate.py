"""partition migrate, drain and safe-to-stop, against a cluster on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import FOUR, Cluster, running, wait_until

Run = Callable[..., Any]


@pytest.mark.feature("P12", "O1")
def test_a_partition_is_moved_and_shown_where_it_is(cluster: Any, halog: Run) -> None:
    """p-0 is on A, B, C: it shall be on C and B only."""
    ran = halog("partition", "migrate", "p-0", "--nodes", "C,B", "--timeout", 30, "--format", "json")
    assert ran.code == 0, ran
    assert ran.json["done"] is True
    assert (ran.json["from"], ran.json["to"], ran.json["active"]) == (["A", "B", "C"], ["C", "B"], "C")
    assert "hands over to C" in ran.err, "progress is talk"
    shown = halog("partition", "show", "p-0", "--format", "json").json
    assert (shown["configured"], shown["target"], shown["still_to_do"]) == (["C", "B"], None, [])
    wait_until(lambda: "p-0" not in cluster.nodes["A"].runtime.copies)


@pytest.mark.feature("P12", "O1")
def test_a_copy_is_made_at_the_rate_that_is_asked_for(cluster: Any, halog: Run) -> None:
    cluster.nodes["A"].load([cluster.Aircraft(f"N{i}") for i in range(900)], batch=1)
    assert halog("partition", "migrate", "p-1", "--nodes", "A,B", "--sync", 1).code == 0
    wait_until(lambda: "p-1" not in cluster.nodes["C"].runtime.copies)
    to = ("partition", "migrate", "p-1", "--nodes", "A,C", "--sync", 1)
    ran = halog(*to, "--copy-rate", 1, "--no-wait")
    assert "C makes its copy at 1 bytes a second at most" in ran.err, ran
    shown = halog("partition", "show", "p-1", "--format", "json").json
    assert shown["still_to_do"][0] == "C makes its copy at 1 bytes a second at most"
    assert halog(*to, "--timeout", 0.2).code == 6, "nobody has said otherwise"
    ran = halog(*to, "--copy-rate", 0, "--timeout", 30)
    assert ran.code == 0, ran


@pytest.mark.feature("P12", "O1")
def test_without_waiting_the_nodes_go_on_by_themselves(cluster: Any, halog: Run) -> None:
    ran = halog("partition", "migrate", "p-1", "--nodes", "A, B", "--sync", 1, "--no-wait")
    assert ran.code == 0, ran
    assert "moves from B, C, A to A, B with 1 sync" in ran.out, ran
    assert "still to do: " in ran.err
    assert "C leaves" in ran.err
    wait_until(lambda: next(t for t in cluster.tables() if t.name == "p-1").configured == ("A", "B"))


@pytest.mark.feature("P12", "O1")
def test_a_migration_that_takes_too_long_is_a_timeout_and_goes_on(cluster: Any, halog: Run) -> None:
    assert halog("partition", "migrate", "p-0", "--nodes", "A,B", "--timeout", 30).code == 0
    cluster.stop("C")
    ran = halog("partition", "migrate", "p-0", "--nodes", "C,B", "--timeout", "0.3")
    assert ran.code == 6, ran
    assert "C makes its copy" in ran.err
    cluster.start("C")
    wait_until(lambda: next(t for t in cluster.tables() if t.name == "p-0").node_list == ("C", "B"), 20)


@pytest.mark.feature("P12", "O1")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("p-0", "--nodes", "X,B"), 2, "there is no node X; "),
        (("p-0", "--nodes", ","), 2, "is no name"),
        (("p-0", "--nodes", "B,B"), 2, "B is named twice"),
        (("p-0", "--nodes", "B,C", "--sync", "2"), 5, "1 sync replicas at most, not 2"),
        (("p-9", "--nodes", "B"), 2, "there is no partition p-9"),
        (("p-0",), 2, "Missing option '--nodes'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    cluster: Any, halog: Run, args: tuple[str, ...], code: int, said: str
) -> None:
    before = halog("partition", "show", "p-0", "--format", "json").json["configured"]
    ran = halog("partition", "migrate", *args)
    assert (ran.code, said in ran.err) == (code, True), ran
    assert halog("partition", "show", "p-0", "--format", "json").json["configured"] == before


@pytest.mark.feature("X4", "P5")
def test_a_drain_minds_failure_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run) -> None:
    """p-0 is on A and C; B and D are empty, and B is in the rack of A."""
    toml = FOUR
    for node, rack in {"A": "r1", "B": "r1", "C": "r2", "D": "r2"}.items():
        toml = toml.replace(f'data_dir = "{node}"', f'data_dir = "{node}"\nfailure_domain = "{rack}"')
    with running(Cluster(tmp_path, toml), monkeypatch) as made:
        made.start("D")
        (table,) = made.tables()
        assert table.configured == ("A", "C")
        ran = halog("drain", "C", "--dry-run", "--format", "json")
        assert [m["to"] for m in ran.json["moves"]] == [["A", "D"]], ran


@pytest.mark.feature("X4", "O1")
def test_a_node_is_drained_as_the_dry_run_said(cluster: Any, halog: Run) -> None:
    """Of p-0, on A and B, C takes A's place; all others have a copy everywhere."""
    assert halog("partition", "migrate", "p-0", "--nodes", "A,B", "--timeout", 60).code == 0
    stuck = halog("drain", "A")
    assert stuck.code == 5, stuck
    assert "p-0" not in stuck.out, "only what cannot move"
    assert "--allow-fewer" in stuck.out
    dry = halog("drain", "A", "--allow-fewer", "--dry-run", "--format", "json").json
    assert dry["done"] is False
    assert {m["partition"]: m["to"] for m in dry["moves"]}["p-0"] == ["C", "B"]
    assert next(t for t in cluster.tables() if t.name == "p-0").configured == ("A", "B"), "nothing was changed"
    ran = halog("drain", "A", "--allow-fewer", "--timeout", 60, "--format", "json")
    assert ran.code == 0, ran
    assert f" of {len(dry['moves'])} moved; p-" in ran.err, "progress is talk"
    assert [(m["partition"], m["to"]) for m in ran.json["moves"]] == [(m["partition"], m["to"]) for m in dry["moves"]]
    wait_until(lambda: all("A" not in t.hosts for t in cluster.tables()), 30)  # another node is asked than the command
    wait_until(lambda: not cluster.nodes["A"].runtime.copies, 30)
    assert halog("drain", "A", "--format", "json").json["moves"] == []


@pytest.mark.feature("P12", "P2")
def test_a_drained_node_is_known_as_such_until_it_is_given_a_copy(cluster: Any, halog: Run) -> None:
    """Nobody deals it new partitions meanwhile; what is tried only, or refused, leaves no mark."""
    assert halog("drain", "A").code == 5, "everything has a copy everywhere"
    assert halog("drain", "A", "--allow-fewer", "--dry-run").code == 0
    assert cluster.tree.children("drained") == []
    ran = halog("drain", "A", "--allow-fewer", "--timeout", 60)
    assert ran.code == 0, ran
    assert "gets no partitions that are added" in ran.err
    assert "halog drain A --undo" in ran.err
    assert cluster.tree.children("drained") == ["A"]
    assert halog("status", "--format", "json").json["drained"] == ["A"]
    assert "drained     A: " in halog("status").out
    assert halog("partition", "migrate", "p-1", "--nodes", "B,C", "--timeout", 60).code == 0
    assert cluster.tree.children("drained") == ["A"], "that is not about A"
    assert halog("partition", "migrate", "p-1", "--nodes", "B,C,A", "--timeout", 60).code == 0
    assert cluster.tree.children("drained") == []
    assert halog("status", "--format", "json").json["drained"] == []


@pytest.mark.feature("P12", "O1")
def test_a_drain_is_undone_and_moves_nothing(cluster: Any, halog: Run) -> None:
    assert halog("drain", "A", "--allow-fewer", "--timeout", 60).code == 0
    before = [t.configured for t in cluster.tables()]
    for other in ("--dry-run", "--allow-fewer"):
        wrong = halog("drain", "A", "--undo", other)
        assert (wrong.code, f"--undo moves nothing: leave out {other}" in wrong.err) == (2, True), wrong
    assert halog("drain", "X", "--undo").code == 2
    ran = halog("drain", "A", "--undo")
    assert (ran.code, "A may get partitions again" in ran.err) == (0, True), ran
    assert cluster.tree.children("drained") == []
    assert [t.configured for t in cluster.tables()] == before
    again = halog("drain", "A", "--undo", "--format", "json")
    assert (again.code, again.json) == (0, {"node": "A", "was_drained": False}), again


@pytest.mark.feature("X4", "P12")
def test_what_leaves_a_node_does_not_go_to_one_that_was_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    """C and D are empty."""
    with running(Cluster(tmp_path, FOUR), monkeypatch) as made:
        made.start("D")
        assert next(iter(made.tables())).configured == ("A", "B")
        for drained, to in {"C": "D", "D": "C"}.items():
            assert halog("drain", drained, "--timeout", 60).code == 0
            ran = halog("drain", "A", "--dry-run", "--format", "json")
            assert [m["to"] for m in ran.json["moves"]] == [[to, "B"]], ran
            assert halog("drain", drained, "--undo").code == 0


@pytest.mark.feature("X4", "O1")
def test_one_node_of_three_may_stop_and_two_may_not(cluster: Any, halog: Run) -> None:
    """Each partition has an active node, a sync and an async replica."""
    one = halog("safe-to-stop", "A", "--format", "json")
    assert (one.code, one.json["safe"]) == (0, True), one
    assert len(one.json["partitions"]) == 6
    two = halog("safe-to-stop", "A", "B")
    assert two.code == 5, two
    assert "only C (async) would be left" in two.out
    assert "not safe" in two.err
    assert halog("safe-to-stop", "X").code == 2
    cluster.stop("B")
    wait_until(lambda: all(len(t.replicas) == 1 for t in cluster.tables()))
    assert halog("safe-to-stop", "C").code == 0, "the sync replica is another one now"
