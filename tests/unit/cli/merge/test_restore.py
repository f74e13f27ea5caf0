"""`halog restore` and its undo, `halog conflicts show|export`: one history again, told, and undone (M2, M3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from halog.cli.merge import restore
from halog.core.log import records
from halog.ports import TopicPartition
from halog.testing.cluster import Cluster, wait_until
from restore.compensation import Conflict, Defer, KeepInitiating, KeepSource, Verdict
from tests.unit.cli.conftest import Ran
from tests.unit.cli.merge.test_conflicts import TWO_WAY, by_the_manual, note, objects, parted
from tests.unit.cli.sites.test_sites import files
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_compensation import beside, home
from tests.unit.sites.test_switching import switching
from tests.unit.sites.two import east, level, west

pytestmark = pytest.mark.feature("M2", "M3", "X4")
__all__ = ["east", "files", "parted", "west"]
Halog = Callable[..., Ran]


def noted(cluster: Cluster) -> dict[int, str]:
    level(cluster)  # its first node's copy may be behind who serves
    with cluster.node(cluster.names[0]).transaction(read="local") as tx:
        return {f.number: f.note for f in tx.extent(Flight)}


MERGED = {1: "east", 2: "changed", 4: "west only", 5: "east only", 6: "twice", 10: "", 11: ""}


def run(halog: Halog, files: dict[str, Path], *args: str, at: str = "west") -> Ran:
    return halog(*args, "--config", files[at], "--format", "json")


def test_it_is_shown_done_told_and_undone(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, tmp_path: Path
) -> None:
    before = noted(east)
    dry = run(halog, parted, "restore", "--dry-run")
    assert dry.code == 0, dry.err
    shown = {o["key"][0]: o["is"] for d in dry.json for o in d["objects"]}
    assert noted(east) == before
    assert shown == {n: o["is"] for n, o in objects(halog, parted).items()}

    ran = run(halog, parted, "restore", "--source", "east")
    assert ran.code == 0, ran.err
    assert {d["phase"] for d in ran.json} <= {"done", "nothing"}
    assert noted(east) == MERGED
    wait_until(lambda: noted(west) == MERGED, "west follows")
    level(west, east)
    assert run(halog, parted, "status").code == 0

    for at in ("east", "west"):
        report = run(halog, parted, "conflicts", "show", at=at)
        assert report.code == 0, report.err
        assert {o["key"][0]: o["is"] for d in report.json for o in d["objects"]} == shown
    target = tmp_path / "merged.jsonl"
    assert run(halog, parted, "conflicts", "export", "-o", str(target)).code == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in target.read_text().splitlines()]
    assert {line["key"][0] for line in lines} == {1, 2, 3, 4, 5, 6, 10, 11}

    undone = run(halog, parted, "restore", "undo", at="east")
    assert undone.code == 0, undone.err
    assert noted(east) == before
    wait_until(lambda: noted(west) == before, "west follows, there too")


def test_what_a_verdict_creates_is_shown_before_told_and_undone(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And where it belongs to another partition that is said, before and afterwards."""
    new, far = beside(east, 1), beside(east, 2, 300, stays=False)

    def trigger(conflict: Conflict) -> Verdict:
        number = {1: new, 2: far}.get(conflict.key["number"])
        return KeepSource() if number is None else KeepSource(also=({"number": number, "note": "new"},))

    monkeypatch.setitem(registry.triggers, registry.info(Flight).name, trigger)
    before = noted(east)
    dry = run(halog, parted, "restore", "--dry-run")
    assert dry.code == 0, dry.err
    assert run(halog, parted, "restore", "--source", "east").code == 0
    wait_until(lambda: noted(west) == noted(east), "west follows")
    assert noted(east) == {n: note for n, note in MERGED.items() if n != 10} | {new: "new"}
    for told in (dry, run(halog, parted, "conflicts", "show", at="west")):
        shown = {o["key"][0]: o for d in told.json for o in d["objects"]}
        one = shown[new]
        assert (one["type"], one["is"], one["stands"], one["source"]) == ("Flight", "created", "merged", None)
        assert one["then"]["fields"] == {"number": new, "note": "new"}
        assert one["by"].endswith("trigger")
        assert f"Flight [{far}] belongs to {home(east, far)}" in shown[2]["deferred"]
        assert far not in shown
    text = halog("conflicts", "show", "--config", parted["west"])
    assert "created" in text.out
    target = tmp_path / "merged.jsonl"
    assert run(halog, parted, "conflicts", "export", "-o", str(target)).code == 0
    assert new in {json.loads(line)["key"][0] for line in target.read_text().splitlines()}
    assert run(halog, parted, "restore", "undo", at="east").code == 0
    assert noted(east) == before


def test_what_a_trigger_cannot_say_where_no_node_is_is_told_as_not_decided(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what its node has. What others say is shown as ever."""
    nodes = list[Any]()

    def trigger(conflict: Conflict) -> Verdict:
        if conflict.key["number"] == 2:
            return Defer("who knows")
        if conflict.key["number"] != 1:
            return KeepSource()
        with nodes[0].transaction(read="local") as tx:
            return KeepSource() if tx.get(Flight, 4) is None else KeepInitiating()

    monkeypatch.setitem(registry.triggers, registry.info(Flight).name, trigger)
    for command in (("restore", "--dry-run"), ("conflicts", "list")):
        dry = run(halog, parted, *command, "--source", "east")
        assert dry.code == 0, dry.err
        shown = {o["key"][0]: o for d in dry.json for o in d["objects"]}
        one = shown.pop(1)
        assert (one["stands"], one["then"], one["deferred"]) == ("not decided here", None, "")
        assert "trigger failed: IndexError" in one["undecided"]
        assert "no node" in one["undecided"]
        assert {o["undecided"] for o in shown.values()} == {""}
        assert (shown[2]["stands"], shown[2]["deferred"]) == ("source", "who knows")
    table = halog("restore", "--dry-run", "--source", "east", "--config", parted["west"])
    assert "not decided here: " in table.out
    nodes.append(east.node(east.names[0]))
    assert run(halog, parted, "restore", "--source", "east").code == 0
    (real,) = [o for d in run(halog, parted, "conflicts", "show").json for o in d["objects"] if o["key"] == [1]]
    assert (real["stands"], real["deferred"]) == ("initiating", "")


def test_a_preview_without_the_applications_modules_decides_nothing(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog
) -> None:
    """In its answer, for people and for programs: one that is wrong is worse than none."""
    text = parted["west"].read_text()
    assert text.count("modules = []") == 1
    parted["west"].write_text(text.replace("modules = []", 'modules = ["no_such_shop"]'))
    dry = run(halog, parted, "restore", "--dry-run", "--source", "east")
    assert dry.code == 0, dry.err
    assert all("triggers are not asked here" in d["why"] and "no_such_shop" in d["why"] for d in dry.json)
    told = [o for d in dry.json for o in d["objects"]]
    assert {(o["stands"], o["then"] is None, bool(o["undecided"])) for o in told} == {("not decided here", True, True)}
    everything = run(halog, parted, "conflicts", "list", "--all", "--source", "east")
    stand = {o["key"][0]: o["stands"] for d in everything.json for o in d["objects"]}
    assert (stand[4], stand[5], stand[1]) == ("initiating", "source", "not decided here")
    table = halog("restore", "--dry-run", "--source", "east", "--config", parted["west"])
    assert "triggers are not asked here" in table.out
    assert "not decided here: " in table.out


def test_a_policy_is_merged_by_the_rule_that_it_says(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog
) -> None:
    """The source's data stands wherever the two differ, and what it deleted is added."""
    by_the_manual(parted)
    dry = run(halog, parted, "restore", "--dry-run")
    assert {o["key"][0]: o["is"] for d in dry.json for o in d["objects"]} == TWO_WAY
    ran = run(halog, parted, "restore", "--source", "east")
    assert ran.code == 0, ran.err
    assert noted(east) == {**MERGED, 3: "changed", 4: ""}
    report = run(halog, parted, "conflicts", "show", at="east")
    assert {o["key"][0]: o["is"] for d in report.json for o in d["objects"]} == TWO_WAY


def test_policies_that_are_compared_by_two_rules_are_not_restored_at_once(
    west: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = west.tables()
    rules = iter([True] + [False] * len(others))
    monkeypatch.setattr("halog.cli.merge.restore.is_two_way", lambda connection, policy, said: next(rules))
    before = noted(west)
    ran = run(halog, parted, "restore", "--source", "east")
    assert ran.code == 5
    assert f"{first} are compared two-way and {', '.join(others)} three-way" in ran.err
    assert noted(west) == before


def test_what_was_changed_since_is_not_undone(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog
) -> None:
    assert run(halog, parted, "restore").code == 0
    note(east, 4, "later")
    undone = run(halog, parted, "restore", "undo", at="east")
    assert undone.code == 0, undone.err
    assert sum(d["changed_since"] for d in undone.json if d["phase"] == "done") == 1
    now = noted(east)
    assert now[4] == "later"
    assert 10 not in now


def active(cluster: Cluster) -> dict[str, str]:
    return {name: t.active.node for name, t in cluster.tables().items() if t.active is not None and not t.owner}


@pytest.mark.parametrize("node", ["east-A", "east-B", "west-A", "west-B"])
def test_any_node_of_either_site_is_active_afterwards(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, node: str
) -> None:
    ran = run(halog, parted, "restore", "--active", "west-B", "--active", f"test-1={node}")
    assert ran.code == 0, ran.err
    serves = {"test-0": "west-B", "test-1": node, "test-2": "west-B"}
    wait_until(lambda: active(west) | active(east) == serves, "the named nodes serve")
    wait_until(lambda: noted(west) == noted(east), "both sites have the same")


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_merged_and_given_back_is_not_merged_again(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, taken: bool
) -> None:
    """The command died when east had given the partitions to this site, or when this one had taken them, too."""
    words = ("restore", "--source", "east", "--active", "west-B")
    first = run(halog, parted, *words if taken else words[:3])
    assert first.code == 0, first.err
    if not taken:
        switching(east).demote(list(east.tables()), "west")
        refused = run(halog, parted, *words[:3])  # who does not want it here is told that nobody has it
        assert (refused.code, "is not served by site east" in refused.err) == (5, True), refused.err
    again = run(halog, parted, *words)
    assert again.code == 0, again.err
    assert [d["merge"] for d in again.json] == [d["merge"] for d in first.json]
    wait_until(lambda: active(west) == dict.fromkeys(west.tables(), "west-B"), "west serves")
    assert noted(west) == MERGED
    level(west, east)


def test_a_node_that_cannot_be_active_is_refused_and_nothing_is_changed(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog
) -> None:
    for text, code, said in [
        ("north-A", 2, "there is no node north-A; known are west-A"),
        ("test-1=north-A", 2, "there is no node north-A"),
        ("test-9=east-A", 2, "there is no partition test-9"),
        ("test-1=", 2, "'' is no name"),
    ]:
        ran = run(halog, parted, "restore", "--active", text)
        assert (ran.code, said in ran.err) == (code, True), ran.err
    assert {t.owner for c in (west, east) for t in c.tables().values()} == {""}


def test_a_source_that_does_not_serve_is_refused(west: Cluster, parted: dict[str, Path], halog: Halog) -> None:
    assert run(halog, parted, "restore", "--source", "north").code == 2
    ran = run(halog, parted, "restore", "--from", "test-0=nobody")
    assert (ran.code, "there is no node nobody" in ran.err) == (2, True)
    ran = run(halog, parted, "restore", "--from", "test-0=west-A")
    assert (ran.code, "node west-A is not active for test-0 at any other site" in ran.err) == (5, True)
    assert halog("site", "demote", "--to", "west", "--config", parted["east"]).code == 0
    ran = run(halog, parted, "restore", "--source", "east")
    assert (ran.code, "not served by site east" in ran.err) == (5, True)


def test_trimmed_logs_are_compared_from_their_snapshots(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog
) -> None:
    """The previews, too: they begin where a snapshot was taken, and go back no further than to the fork."""
    shown = {n: o["is"] for n, o in objects(halog, parted).items()}
    for cluster in (west, east):
        for name in cluster.names:
            host = cluster.node(name).runtime.host
            assert host is not None
            for copy in host.copies.values():
                if copy.serving:
                    host.snapshots.take(copy)
    fork = {d["partition"]: d["fork_lsn"] for d in run(halog, parted, "conflicts", "list", "--source", "east").json}
    for cluster in (west, east):
        log = cluster.node(cluster.names[0]).runtime.adapters.log
        for name, table in cluster.tables().items():
            tp = TopicPartition(table.topic, table.index)
            lsns = [(e.offset, records.decode(e.value).header.lsn) for e in log.read(tp, 0, log.bounds(tp)[1])]
            log.trim(tp, next(offset for offset, lsn in lsns if lsn == max(fork[name] - 1, 1)))
    assert {n: o["is"] for n, o in objects(halog, parted).items()} == shown


def test_what_cannot_be_merged_is_told_as_failed_beside_what_is(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def but_one(config: Any, tables: list[Any], named: bool) -> Any:
        return [t for t in tables if t.name != "test-1"], {"test-1": "no"}

    monkeypatch.setattr(restore, "mergeable", but_one)
    ran = run(halog, parted, "restore")
    phases = {d["partition"]: (d["phase"], d["why"]) for d in ran.json}
    assert ran.code == 5
    assert phases["test-1"] == ("failed", "no")
    assert {phases[name][0] for name in ("test-0", "test-2")} <= {"done", "nothing"}
    assert "partition test-1 is left out: no" in ran.err
    assert west.tables()["test-1"].owner == "", "it serves on"


def test_a_preview_names_what_would_be_left_out_and_why(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its answer, where a program looks for it: a policy that keeps a directory of keys has a partition there."""
    real = restore.mergeable

    def with_a_directory(config: Any, tables: list[Any], *, named: bool) -> Any:
        listed = replace(config.policies["test"], mapper="round_robin")
        mixed = replace(config, policies={**config.policies, "listed": listed})
        moved = [structs.replace(t, policy="listed") if t.name == "test-1" else t for t in tables]
        return real(mixed, moved, named=named)

    monkeypatch.setattr(restore, "mergeable", with_a_directory)
    dry = run(halog, parted, "restore", "--dry-run")
    assert dry.code == 0, dry.err
    told = {d["partition"]: d for d in dry.json}
    assert told.keys() == {"test-0", "test-1", "test-2"}
    one = told["test-1"]
    assert (one["histories"], one["touched"], one["conflicts"], one["objects"]) == ("left out", 0, {}, [])
    assert "keeps a directory of keys (mapper round_robin)" in one["why"]
    assert {told[name]["why"] for name in ("test-0", "test-2")} == {""}
    table = halog("restore", "--dry-run", "--config", parted["west"])
    (row,) = [line for line in table.out.splitlines() if line.startswith("test-1 ")]
    assert ("left out" in row, one["why"] in row) == (True, True)
