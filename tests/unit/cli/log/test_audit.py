"""`halog audit`, and which commands are in it (O4, Q5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from halog.cli.shared.auditing import READING
from halog.ports import TopicPartition
from tests.unit.cli.conftest import wait_until
from tests.unit.cli.every_command import CALLS, commands, words

Run = Callable[..., Any]
AUDIT = TopicPartition("ops.audit", 0)

CHANGING = {
    "acl kafka",
    "acl zookeeper",
    "certs reload",
    "certs rotate-ca abort",
    "certs rotate-ca begin",
    "certs rotate-ca finish",
    "config activate",
    "conflicts settle",
    "delete",
    "drain",
    "failover",
    "import",
    "log hold",
    "log release",
    "partition accept-loss",
    "partition define",
    "partition designate",
    "partition disable",
    "partition enable",
    "partition migrate",
    "partition priority",
    "partition replicate",
    "partition require",
    "plan apply",
    "plan cancel",
    "plan create",
    "plan rollback",
    "rebalance",
    "rebalance cancel",
    "recover",
    "restore",
    "restore undo",
    "site demote",
    "site let-go",
    "site promote",
    "txn abort",
    "txn commit",
    "type retire",
    "upgrade finish",
    "upgrade pause",
    "upgrade rollback",
    "upgrade start",
    "zone quorum",
}
HERE = {
    "certs create-ca",
    "certs create-node",
    "certs create-server",
    "certs create-user",
    "certs renew",
    "certs sign",
    "demo",
    "down",
    "node new-identity",
    "node start",
    "up",
}
"""They change files or processes of this machine, and reach no cluster as a command does."""


def entries(halog: Run, *args: object) -> list[dict[str, Any]]:
    ran = halog("audit", *args, "--format", "json")
    assert ran.code == 0, ran
    found: list[dict[str, Any]] = ran.json
    return found


@pytest.mark.feature("O4", "Q5")
def test_every_command_is_known_to_read_or_to_change() -> None:
    """A new one counts as changing until it is listed as reading; here it is said which it is."""
    names = {name for name, _ in commands()}
    assert names - READING - HERE == CHANGING & names
    assert not READING - names
    assert not READING & CHANGING


@pytest.mark.feature("O4", "Q5")
def test_a_changing_command_is_in_the_audit_and_a_reading_one_is_not(cluster: Any, halog: Run) -> None:
    """Groups that do something by themselves, and one that only looks where no option is given, too."""
    for line in ("get Aircraft N1", "partition show p-0", "rebalance status", "zone quorum home"):
        halog(*line.split())
    assert entries(halog) == []
    for line in ("rebalance --dry-run", "txn abort " + "00" * 16, "partition priority p-0 A high"):
        halog(*line.split())
    assert [e["command"] for e in entries(halog)] == ["rebalance", "txn abort", "partition priority"]


@pytest.mark.long
@pytest.mark.feature("O4", "Q5")
def test_no_reading_command_is_in_the_audit_and_every_changing_one_is(
    cluster: Any, halog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes of it: most are refused here. A changing one writes one entry, with its words and its code."""
    monkeypatch.chdir(tmp_path)  # some write files
    for name in sorted(READING & {n for n, calls in CALLS.items() if calls} - {"conflicts export", "site metrics"}):
        halog(*words(CALLS[name][0]), *(["--timeout", "1"] if name != "config check" else []))
    assert entries(halog) == []
    slow = {"plan apply", "plan rollback", "drain", "upgrade start", "site demote", "restore", "restore undo"}
    slow |= {"acl kafka", "acl zookeeper"}  # they speak to real servers
    tried = sorted(name for name, calls in CALLS.items() if calls and name in CHANGING - slow)
    for name in tried:
        before = len(entries(halog))
        ran = halog(*words(CALLS[name][0]), "--timeout", "1")
        found = entries(halog)[before:]
        written = [e for e in found if e["kind"] == "command"]
        if ran.code == 2 and not written:  # refused before it reached the cluster
            continue
        assert [(e["command"], e["exit_code"]) for e in written] == [(name, ran.code)], (name, ran)
        assert written[0]["outcome"] == {0: "done", 2: "refused", 4: "done", 5: "refused"}.get(ran.code, "failed"), ran


@pytest.mark.feature("O4", "Q5")
def test_a_command_a_dry_run_and_a_refused_one_are_told_apart(cluster: Any, halog: Run) -> None:
    assert halog("config", "activate", "--dry-run").code == 0
    assert halog("config", "activate", "--comment", "the first").code == 0
    assert halog("config", "activate", "--on", "7").code == 5
    dry, done, refused = entries(halog, "--command", "config")
    assert (dry["dry_run"], dry["outcome"], dry["arguments"]) == (True, "done", {"dry_run": True})
    assert (done["dry_run"], done["outcome"], done["arguments"]) == (False, "done", {"comment": "the first"})
    assert (refused["outcome"], refused["exit_code"]) == ("refused", 5)
    assert "version 1 is active, not 7" in refused["reason"]
    assert all(e["principal"] == e["address"] and "@" in e["principal"] and not e["proven"] for e in (dry, done))
    assert entries(halog, "--outcome", "refused") == [refused]
    assert entries(halog, "--principal", dry["principal"], "-n", 1) == [refused]
    assert entries(halog, "--since", done["time"], "--until", "2999-01-01") == [
        e for e in (done, refused) if e["time_ms"] >= done["time_ms"]
    ]
    assert entries(halog, "--until", "2001-01-01") == []
    table = halog("audit").out
    assert f"{dry['principal']} (claimed)" in table
    assert "config activate (dry run)" in table
    assert "refused (5)" in table


@pytest.mark.feature("O4", "Q5")
def test_a_hand_over_is_told_by_the_node_that_did_it(cluster: Any, halog: Run) -> None:
    to = next(n for n in "ABC" if n != cluster.active("p-0"))
    was = cluster.active("p-0")
    assert halog("failover", "p-0", "--to", to).code == 0
    wait_until(lambda: entries(halog, "--command", "HandOver"))
    (asked,) = entries(halog, "--command", "HandOver")
    assert (asked["by"], asked["outcome"], asked["kind"]) == (was, "done", "request")
    assert asked["arguments"] == {"partition": "p-0", "to": to}
    assert (asked["proven"], asked["principal"]) == (False, asked["process"])
    assert asked["process"].startswith("halog-cli-")
    (said,) = entries(halog, "--command", "failover")
    assert (said["outcome"], said["arguments"]) == ("done", {"partition": "p-0", "target": to})


@pytest.mark.feature("O4", "Q5")
def test_contents_of_objects_are_not_in_the_audit(cluster: Any, halog: Run) -> None:
    halog("conflicts", "settle", "Aircraft", "N1", "--as", "source", "--fields", '{"tail": "very private"}')
    (entry,) = entries(halog, "--command", "conflicts settle")
    assert entry["arguments"]["fields"] == "given"
    assert "very private" not in json.dumps(entry["arguments"])


@pytest.mark.feature("O4", "Q4")
def test_a_command_works_and_says_so_where_the_audit_cannot_be_written(cluster: Any, halog: Run) -> None:
    cluster.broker.hold(AUDIT)
    ran = halog("partition", "priority", "p-0", "A", "high")
    assert ran.code == 0
    assert "the audit does not have this command: topic ops.audit does not take it" in ran.err
    assert halog("status").err == ""
    cluster.broker.release(AUDIT)
    assert entries(halog, "--command", "partition priority") == []


@pytest.mark.feature("O4", "U1")
def test_what_is_no_entry_is_passed_over_and_an_entry_twice_is_one(cluster: Any, halog: Run) -> None:
    assert halog("partition", "priority", "p-0", "A", "high").code == 0
    log = cluster.nodes["A"].runtime.adapters.log
    (first,) = [entry.value for entry in log.read(AUDIT, *log.bounds(AUDIT))]
    with closing(log.journal(AUDIT)) as journal:
        assert not journal.note([first, b"{}"]).left
    ran = halog("audit", "--format", "json")
    assert len(ran.json) == 1
    assert "offset 2 of ops.audit is passed over" in ran.err
