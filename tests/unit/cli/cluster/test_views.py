"""status, node list, partition list|show|lag and failover, against a cluster on the memory adapters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryTree
from halog.cli.shared.survey import node_views
from halog.runtime.support.clock import wall_ms
from halog.testing.cluster import wait_until
from tests.unit.cli.conftest import AROUND, find_around

Run = Callable[..., Any]


@pytest.mark.feature("O1")
def test_status_of_a_well_cluster_is_ok(cluster: Any, halog: Run) -> None:
    """Every partition has its active node and replicas: ok, exit 0."""
    wait_until(lambda: halog("status", "--format", "json").json["worst_lag"]["records"] == 0, "all have read the log")
    ran = halog("status", "--format", "json")
    assert ran.code == 0, ran
    assert ran.json["ok"] is True
    assert ran.json["nodes"] == {"A": "up", "B": "up", "C": "up"}
    assert ran.json["partitions"] == 6
    assert ran.json["replicas"] == {"configured": 12, "present": 12}
    assert ran.json["worst_lag"]["records"] == 0


@pytest.mark.feature("O1", "Q5")
def test_a_machine_of_any_name_may_ask(cluster: Any, halog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool's name is made from its machine's, and must be one nodes accept."""
    find_around(monkeypatch, replace(AROUND["commands"], machine="büro nr. 3" + "x" * 250))
    ran = halog("status", "--format", "json")
    assert (ran.code, ran.json["nodes"]) == (0, {"A": "up", "B": "up", "C": "up"}), ran


@pytest.mark.feature("O1", "P10")
def test_status_with_a_node_gone_is_degraded_and_exits_4(cluster: Any, halog: Run) -> None:
    """A node that left is missing as replica everywhere; the exit code says so, the table names it."""
    cluster.stop("C")
    wait_until(lambda: not any("C" in t.node_list for t in cluster.tables()), "it is in no node list")
    ran = halog("status", "--format", "json")
    assert ran.code == 4
    assert ran.json["ok"] is False
    assert ran.json["nodes"]["C"] == "down"
    assert ran.json["replicas_missing"]["p-0"] == ["C"]
    shown = halog("status")
    assert shown.code == 4
    assert "degraded" in shown.out
    assert shown.err == ""


@pytest.mark.feature("O1")
def test_status_shows_lag_of_the_worst_replica_and_no_active_when_all_are_gone(cluster: Any, halog: Run) -> None:
    """With nobody left every partition is without an active node."""
    for name in "ABC":
        cluster.stop(name)
    ran = halog("status", "--format", "json")
    assert ran.code == 4
    assert len(ran.json["without_active"]) == 6
    assert ran.json["worst_lag"] is None


@pytest.mark.feature("O1")
def test_commands_before_the_first_node_say_what_to_do(cluster: Any, halog: Run, tmp_path: Any) -> None:
    """A cluster nobody started is one line and exit 3, and the look creates nothing."""
    other = tmp_path / "other.toml"
    other.write_text(cluster.path.read_text())
    cluster.settle()
    for name in "ABC":
        cluster.stop(name)
    cluster.tree = MemoryTree()
    ran = halog("status", "--config", other)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "halog recover --from-logs" in ran.err, "it has been used: ZooKeeper's data are lost"
    cluster.broker = MemoryBroker()
    ran = halog("status", "--config", other)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "halog node start" in ran.err


@pytest.mark.feature("O1")
def test_node_list_shows_configured_and_registered_nodes(cluster: Any, halog: Run) -> None:
    """A stopped node stays in the list as down; clients are listed when asked for."""
    cluster.start("somebody")
    cluster.stop("B")
    states = {n["node"]: n["state"] for n in halog("node", "list", "--format", "json").json}
    assert states == {"A": "up", "B": "down", "C": "up"}
    states = {n["node"]: n["state"] for n in halog("node", "list", "--all", "--format", "json").json}
    assert states["somebody"] == "client"
    assert "not registered" in halog("node", "list").out


@pytest.mark.feature("N3", "O1")
def test_node_list_says_in_which_state_the_others_see_a_node_and_since_when(cluster: Any, halog: Run) -> None:
    """A node that is slow to answer says nothing for once."""
    cluster.stop("B")

    def seen() -> Any:
        """By node: who sees it, and how."""
        found = {n["node"]: n["seen_by"] for n in halog("node", "list", "--format", "json").json}
        states = {by: s["state"] for by, s in found["B"].items()}
        return found if states == {"A": "Down", "C": "Down"} else None

    found = wait_until(seen, "A and C see that it is gone")
    assert {(by, s["state"], s["why"]) for by, s in found["A"].items()} == {("C", "Up", "it is heard")}
    assert found["B"]["A"]["why"] == "it left"
    assert 0 <= wall_ms() - found["B"]["A"]["since_ms"] < 60_000
    row = re.compile(r"C +up .* Up since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
    wait_until(lambda: row.search(halog("node", "list").out), "the table shows it")


@pytest.mark.feature("N3")
def test_where_nodes_see_another_one_differently_each_is_named() -> None:
    up, down = {"state": "Up", "why": "it is heard", "since_ms": 0}, {"state": "Down", "why": "no", "since_ms": 1_000}
    said: dict[str, dict[str, Any]] = {
        "B": {"nodes": {"A": up}},
        "C": {"nodes": {"A": down}},
        "D": {"error": "silent"},
        "E": {},
    }
    seen = next(iter(node_views(["A"], {}, said)))
    assert seen.seen_text == "B: Up since 1970-01-01 00:00:00Z, C: Down since 1970-01-01 00:00:01Z"
    assert next(iter(node_views(["A"], {}, {}))).seen_text == ""


@pytest.mark.feature("O1", "P1")
def test_partition_list_names_active_and_replicas(cluster: Any, halog: Run) -> None:
    """Each partition with its active node; --degraded leaves the well ones away."""
    listed = halog("partition", "list", "--format", "json").json
    assert [p["partition"] for p in listed] == [f"p-{i}" for i in range(6)]
    assert [p["active"] for p in listed] == [cluster.active(f"p-{i}") for i in range(6)]
    assert all(sorted(c["kind"] for c in p["copies"]) == ["active", "async", "sync"] for p in listed)
    assert halog("partition", "list", "--degraded", "--format", "json").json == []
    assert "p-5" in halog("partition", "list").out


@pytest.mark.feature("O1")
def test_partition_show_tells_table_and_copies(cluster: Any, halog: Run) -> None:
    """One partition: where its log is, who is active, what every copy does."""
    shown = halog("partition", "show", "p-3", "--format", "json").json
    assert (shown["topic"], shown["index"]) == ("ops.p.log", 3)
    assert shown["active"] == cluster.active("p-3")
    assert {c["role"] for c in shown["copies"]} == {"active", "following"}
    assert "ops.p.log, partition 3" in halog("partition", "show", "p-3").out


def test_an_unknown_partition_is_a_usage_error(cluster: Any, halog: Run) -> None:
    """A misspelt partition is one line, exit 2."""
    for command in (("partition", "show"), ("partition", "lag"), ("log", "tail")):
        ran = halog(*command, "p-77")
        assert (ran.code, ran.out) == (2, "")
        assert "there is no partition p-77" in ran.err


@pytest.mark.feature("O1")
def test_partition_lag_lists_replicas_the_furthest_first(cluster: Any, halog: Run) -> None:
    """Two replicas per partition, with the lsns they have; a replica that is gone stands on top with its reason."""
    rows = halog("partition", "lag", "--format", "json").json
    assert len(rows) == 12
    assert all(r["lsn"] == r["active_lsn"] and r["records"] == 0 for r in rows)
    cluster.stop("C")
    rows = halog("partition", "lag", "p-0", "--format", "json").json
    assert (rows[0]["node"], rows[0]["error"]) == ("C", "node is down")


@pytest.mark.feature("Q5", "O1")
def test_failover_hands_a_partition_to_the_named_node(cluster: Any, halog: Run) -> None:
    """The named replica is active afterwards, and what was committed is still there."""
    was = cluster.active("p-2")
    to = next(n for n in "ABC" if n != was)
    ran = halog("failover", "p-2", "--to", to, "--format", "json")
    assert ran.code == 0, ran
    assert (ran.json["from"], ran.json["to"]) == (was, to)
    assert cluster.active("p-2") == to
    assert "handed over to" in halog("failover", "p-2", "--to", was).out


@pytest.mark.feature("Q5", "O1")
def test_a_failover_to_the_active_node_is_nothing_to_do(cluster: Any, halog: Run) -> None:
    was = cluster.active("p-1")
    ran = halog("failover", "p-1", "--to", was)
    assert (ran.code, ran.out, ran.err) == (0, "", f"halog: {was} is active for p-1 already\n")
    ran = halog("failover", "p-1", "--to", was, "--format", "json")
    assert (ran.code, ran.json) == (0, None)
    assert cluster.active("p-1") == was


@pytest.mark.feature("Q5", "O1")
def test_an_unsafe_failover_is_refused_with_exit_5(cluster: Any, halog: Run) -> None:
    """Refused with a reason, exit 5, and the active node stays."""
    was = cluster.active("p-1")
    to = next(n for n in "ABC" if n != was)
    cluster.stop(to)
    ran = halog("failover", "p-1", "--to", to)
    assert (ran.code, ran.out) == (5, "")
    assert "not running" in ran.err
    assert cluster.active("p-1") == was
