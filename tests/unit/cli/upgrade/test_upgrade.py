"""`halog upgrade` over a cluster in memory: what it shows, what it refuses, and what it leaves behind (U1)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.metadata import cluster_level
from halog.metadata.upgrades import Upgrade
from halog.release import RELEASE
from tests.unit.cli.conftest import Cluster, Ran

pytestmark = pytest.mark.feature("U1")

Run = Callable[..., Ran]
LATER = "9.9.0"


def registered_as(cluster: Cluster, node: str, **changed: object) -> None:
    """Change what a node has registered."""
    path = f"nodes/{node}"
    found = cluster.tree.get(path)
    assert found is not None
    cluster.tree.set(path, json.dumps({**json.loads(found.data), **changed}).encode(), found.version)


def record(cluster: Cluster) -> dict[str, Any]:
    found = cluster.tree.get("upgrade")
    assert found is not None
    document: dict[str, Any] = json.loads(found.data)
    return document


def recorded(cluster: Cluster, **values: Any) -> None:
    """An upgrade to `LATER` that a command has begun."""
    made = {"to": LATER, "order": ["A", "B", "C"], "before": dict.fromkeys("ABC", RELEASE), "run": "r", **values}
    cluster.tree.create("upgrade", json.dumps(made).encode(), 0)


def test_a_plan_names_order_heirs_and_proof_and_changes_nothing(cluster: Cluster, halog: Run) -> None:
    before = {t.name: t for t in cluster.tables()}
    active = {n: sum(t.active.node == n for t in before.values()) for n in "ABC"}
    ran = halog("upgrade", "plan", "--to", LATER, "--format", "json")
    assert ran.code == 0, ran
    nodes = ran.json["nodes"]
    assert [n["node"] for n in nodes] == sorted("ABC", key=lambda n: (active[n], n))
    assert all(n["safe"] and n["needed"] and n["runs"] == RELEASE for n in nodes)
    first = nodes[0]["node"]
    later = [move for n in nodes[1:] for move in n["hands_over"] if first in before[move["partition"]].configured]
    assert later
    assert {move["to"] for n in nodes[1:2] for move in n["hands_over"]} == {first}
    assert cluster.tree.get("upgrade") is None
    assert {t.name: t for t in cluster.tables()} == before
    table = halog("upgrade", "plan", "--to", LATER).out.splitlines()
    assert table[0].split("  ")[0] == "node"
    assert len(table) == 4


def test_a_plan_says_why_a_node_is_not_safe_to_stop(cluster: Cluster, halog: Run) -> None:
    cluster.stop("C")
    ran = halog("upgrade", "plan", "--to", LATER, "--format", "json")
    by = {n["node"]: n for n in ran.json["nodes"]}
    assert by["C"]["runs"] is None
    assert by["C"]["needed"]
    assert by["C"]["safe"]


def test_nothing_is_done_where_every_node_runs_it(cluster: Cluster, halog: Run) -> None:
    ran = halog("upgrade", "start", "--all")
    assert ran.code == 0
    assert f"every node runs halog {RELEASE} already" in ran.err
    assert cluster.tree.get("upgrade") is None
    assert cluster.tree.get("upgrading") is None
    assert f"every node runs halog {RELEASE}" in halog("upgrade", "plan").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say which nodes"),
        (("--one", "A", "--all"), "say which nodes"),
        (("--all", "--hook", "no-such-program x"), "there is no program 'no-such-program'"),
        (("--all", "--hook", "'x"), "cannot be taken apart"),
        (("--all", "--hook", ""), "there is no program ''"),
    ],
)
def test_what_cannot_be_meant_is_usage(cluster: Cluster, halog: Run, words: tuple[str, ...], said: str) -> None:
    ran = halog("upgrade", "start", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert cluster.tree.get("upgrade") is None


def test_a_hook_that_fails_pauses_the_upgrade_with_the_roles_moved(
    cluster: Cluster, halog: Run, tmp_path: Path
) -> None:
    """It sees the node and the release in its environment, and no shell."""
    script = tmp_path / "hook.py"
    script.write_text(
        "import os, sys\n"
        f"open({str(tmp_path / 'said')!r}, 'w').write(os.environ['HALOG_NODE'] + ' ' + os.environ['HALOG_TO'])\n"
        "sys.exit(3)\n"
    )
    ran = halog("upgrade", "start", "--one", "B", "--to", LATER, "--hook", f"{sys.executable} {script}")
    assert ran.code == 5, ran
    assert "the hook for B ended with 3" in ran.err
    assert (tmp_path / "said").read_text() == f"B {LATER}"
    now = record(cluster)
    assert (now["state"], now["node"], now["to"]) == ("paused", "B", LATER)
    assert now["before"] == dict.fromkeys("ABC", RELEASE)
    assert cluster.tree.get("upgrading") is None
    assert not [t.name for t in cluster.tables() if t.active.node == "B"]
    told = halog("events", "--code", "HALOG-1129", "--format", "json").json
    assert [e["more"]["step"] for e in told] == ["began", "paused"]
    shown = halog("upgrade", "status", "--format", "json").json
    assert (shown["upgrade"]["state"], shown["may_go_back"]) == ("paused", True)
    assert shown["upgrade"]["next"] in "ABC"
    overview = halog("status")
    assert f"to halog {LATER} under way (0 of 3), stands still" in overview.out
    assert halog("upgrade", "status").code == 0


def test_a_node_that_does_not_come_back_is_a_deadline(cluster: Cluster, halog: Run) -> None:
    ran = halog("upgrade", "start", "--one", "B", "--to", LATER, "--timeout", "1")
    assert ran.code == 6, ran
    assert f"restart B under halog {LATER} now" in ran.err
    assert f"B has not come back under halog {LATER} within 1 s" in ran.err
    assert record(cluster)["state"] == "paused"


def test_a_node_that_is_not_safe_to_stop_is_left_alone(cluster: Cluster, halog: Run) -> None:
    """With two nodes down every partition of the third would stop."""
    cluster.stop("C")
    cluster.stop("B")
    ran = halog("upgrade", "start", "--one", "A", "--to", LATER, "--timeout", "1")
    assert ran.code == 5, ran
    assert "A is not safe to stop" in ran.err
    assert record(cluster)["state"] == "paused"


def test_another_release_is_refused_while_an_upgrade_is_under_way(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, state="paused")
    before = record(cluster)
    ran = halog("upgrade", "start", "--all", "--to", "7.7")
    assert ran.code == 5
    assert f"an upgrade to halog {LATER} is under way" in ran.err
    assert record(cluster) == before


def test_two_commands_are_not_at_it_at_once(cluster: Cluster, halog: Run) -> None:
    recorded(cluster)
    cluster.tree.create("upgrading", b'{"by": "me@here"}', 7)
    for words in (("start", "--all"), ("rollback",), ("finish",)):
        ran = halog("upgrade", *words)
        assert ran.code == 5
        assert "another command is at the upgrade" in ran.err
    assert "me@here is at it" in halog("upgrade", "status").out
    assert f"to halog {LATER} under way (0 of 3)\n" in halog("status").out


def test_pause_is_written_and_said(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, node="B")
    ran = halog("upgrade", "pause")
    assert ran.code == 0
    assert "pauses behind what it does with B" in ran.err
    assert record(cluster)["state"] == "paused"
    again = halog("upgrade", "pause")
    assert again.code == 0
    assert "the upgrade is paused already" in again.err


def test_a_rollback_of_nodes_that_run_what_they_ran_proves_them_and_ends(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, state="paused", knew=dict.fromkeys("ABC", 1))
    ran = halog("upgrade", "rollback")
    assert ran.code == 0, ran
    assert record(cluster)["state"] == "finished"
    assert "every node runs what it ran before" in ran.err
    nothing = halog("upgrade", "rollback")
    assert nothing.code == 0
    assert "no upgrade is under way" in nothing.err


def test_finish_refuses_by_name_while_nodes_run_something_else(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, state="paused")
    ran = halog("upgrade", "finish")
    assert ran.code == 5
    assert f"A runs halog {RELEASE}" in ran.err
    assert record(cluster)["state"] == "paused"


def test_finish_refuses_what_was_not_proved(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, to=RELEASE, state="paused", done=["A", "B"])
    ran = halog("upgrade", "finish")
    assert ran.code == 5
    assert "C was not proved" in ran.err
    proves = halog("upgrade", "start", "--all")
    assert proves.code == 0, proves
    assert record(cluster)["state"] == "complete"
    assert halog("upgrade", "finish").code == 0
    assert record(cluster)["state"] == "finished"
    assert cluster.tree.get("level") is None


@pytest.mark.parametrize("lower", ["down", "node", "client"])
def test_a_level_is_raised_only_where_everybody_knows_it(
    cluster: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch, lower: str
) -> None:
    monkeypatch.setattr(cluster_level, "LEVEL", 2)
    for node in "ABC":
        registered_as(cluster, node, level=2)
    if lower == "down":
        cluster.stop("B")
        said = "node B is not registered"
    elif lower == "node":
        registered_as(cluster, "B", level=1, version="0.1.9")
        said = "node B runs halog 0.1.9, which knows levels up to 1"
    else:
        info = {"name": "app", "incarnation": 1, "address": "", "installation": 1, "hosts": False, "pid": 1}
        cluster.tree.create("nodes/app", json.dumps({**info, "version": "0.1.9"}).encode(), 7)
        said = "client app runs halog 0.1.9, which knows levels up to 1"
    ran = halog("upgrade", "finish")
    assert ran.code == 5, ran
    assert said in ran.err
    assert cluster.tree.get("level") is None
    if lower == "client":
        left = halog("upgrade", "finish", "--leave-clients", "--format", "json")
        assert (left.code, left.json) == (0, {"level": 2, "was": 1, "upgrade": None})
        found = cluster.tree.get("level")
        assert found is not None
        assert json.loads(found.data)["floor"] == 1


def test_nothing_above_the_level_is_found_and_counted(cluster: Cluster, halog: Run) -> None:
    cluster.create(*(cluster.Aircraft(tail=f"N{i}") for i in range(20)))
    ran = halog("upgrade", "can-rollback", "--format", "json")
    assert ran.code == 0, ran
    assert (ran.json["may"], ran.json["to"]) == (True, 1)
    logs = [f for f in ran.json["looked_at"] if f["where"].startswith("log ")]
    assert len(logs) == 6
    assert sum(f["count"] for f in logs) >= 20


def test_the_first_record_above_the_level_is_named(cluster: Cluster, halog: Run) -> None:
    for name in list(cluster.nodes):
        cluster.stop(name)
    table = cluster.tables()[0]
    from halog.adapters.memory import MemoryLog
    from halog.ports import TopicPartition

    log = MemoryLog(cluster.broker)
    tp = TopicPartition(table.topic, table.index)
    end = log.bounds(tp)[1]
    log.session().append(tp, bytes((1, 99)) + b"later", lambda *_: None)
    ran = halog("upgrade", "can-rollback", "--format", "json")
    assert ran.code == 5, ran
    (place,) = [f for f in ran.json["looked_at"] if f["where"] == f"log {tp.topic}/{tp.partition}"]
    assert f"offset {end}: " in place["fault"]
    assert "kind 99" in place["fault"]
    assert any(f["where"] == "store of A" and "down" in f["fault"] for f in ran.json["looked_at"])


def test_a_rollback_below_a_raised_level_is_refused(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, state="complete", knew=dict.fromkeys("ABC", 0))
    ran = halog("upgrade", "rollback")
    assert ran.code == 5
    assert "the cluster is at level 1" in ran.err
    assert not halog("upgrade", "status", "--format", "json").json["may_go_back"]


def test_a_record_of_a_later_halog_keeps_what_is_not_known(cluster: Cluster, halog: Run) -> None:
    recorded(cluster, batch=3)
    assert halog("upgrade", "pause").code == 0
    assert record(cluster)["batch"] == 3
    assert Upgrade(to=LATER).over is False
