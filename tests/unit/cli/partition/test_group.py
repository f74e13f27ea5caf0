"""partition priority|require|designate, against a cluster on the memory adapters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.cli.partition.group import _needed
from halog.cli.shared import survey
from halog.core.ids import Member
from halog.core.table.table import Group, PartitionTable
from tests.unit.cli.conftest import TOML, Cluster, running, wait_until
from tests.unit.cli.log.test_events import count, eventually

Run = Callable[..., Any]


@pytest.mark.feature("Q2", "O1")
def test_a_priority_of_a_whole_policy_is_set_and_shown(cluster: Any, halog: Run) -> None:
    ran = halog("partition", "priority", "p", "B", "highest", "--format", "json")
    assert ran.code == 0, ran
    assert [row["partition"] for row in ran.json] == [f"p-{i}" for i in range(6)]
    assert ran.json[0]["priorities"] == {"A": "normal", "B": "highest", "C": "normal"}
    assert halog("partition", "show", "p-0", "--format", "json").json["group"]["priorities"] == {"B": 3}


@pytest.mark.feature("Q3", "O1")
def test_a_required_number_is_shown_with_its_reason_and_taken_back(cluster: Any, halog: Run) -> None:
    ran = halog("partition", "require", "p-1", "3", "--for", "15m", "--reason", "rack 4 moves")
    assert ran.code == 0, ran
    shown = halog("partition", "show", "p-1")
    assert "3 (3 required until 20" in shown.out
    assert "rack 4 moves" in shown.out
    assert halog("partition", "require", "p-1", "0").code == 0
    group = halog("partition", "show", "p-1", "--format", "json").json["group"]
    assert group == {}, "nothing is left of it, nor of its time and reason"


@pytest.mark.feature("Q1", "Q3", "O1")
def test_status_says_how_many_nodes_are_up_and_needed_where_they_are_too_few(cluster: Any, halog: Run) -> None:
    assert halog("partition", "require", "p-1", "3").code == 0
    cluster.stop("C")

    def listed() -> str:
        (said,) = [p["why"] for p in halog("partition", "list", "--format", "json").json if p["partition"] == "p-1"]
        return str(said)

    wait_until(lambda: listed() == "2 of 3 nodes up, 3 needed")
    shown = halog("status")
    assert shown.code == 4
    (line,) = [line for line in shown.out.splitlines() if line.startswith("p-1")]
    assert "2 of 3 nodes up, 3 needed" in line
    assert "needed" not in shown.out.replace(line, "")


@pytest.mark.feature("Q3", "O1")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("require", "p-0", "1"), 5, "both halves of p-0 could go on without each other"),
        (("require", "p-0", "4"), 5, "must be from 1 to 3"),
        (("designate", "p-0", "A"), 5, "only in a group of two"),
        (("priority", "p-0", "Z", "high"), 2, "there is no node Z; known are A, B, C"),
        (("priority", "p-9", "A", "high"), 2, "there is no partition p-9"),
        (("priority", "p-0", "A", "highish"), 2, "'highish' is not one of"),
        (("require", "p-0", "2", "--for", "15"), 2, "'15' is no duration"),
        (("require", "p-0", "0", "--for", "15m"), 2, "--for is of no use where an override is taken back"),
        (("designate", "p-0", "none", "--for", "15m"), 2, "--for is of no use where an override is taken back"),
        (("require", "p-0", "many"), 2, "'many' is not a valid integer"),
        (("require", "p-0", "3", "--reason", os.fsdecode(b"r\xe4ck")), 2, r"'r\udce4ck' is no UTF-8"),
        (("designate", "p-0", "A", "--reason", os.fsdecode(b"\xff")), 2, r"'\udcff' is no UTF-8"),
    ],
)
def test_what_is_refused_is_one_line_and_changes_nothing(
    cluster: Any, halog: Run, args: tuple[str, ...], code: int, said: str
) -> None:
    ran = halog("partition", *args)
    assert (ran.code, said in ran.err) == (code, True), ran
    assert halog("partition", "show", "p-0", "--format", "json").json["group"] == {}


@pytest.mark.feature("Q3", "Q4", "O1")
def test_why_an_override_is_taken_back_is_told_where_there_was_one(cluster: Any, halog: Run) -> None:
    """With a policy's name, of those of its partitions that had one."""
    assert halog("partition", "require", "p-1", "3", "--for", "15m", "--reason", "rack 4 moves").code == 0
    eventually(halog, "events", "--partition", "p-1", holds=count("HALOG-1011"))
    assert halog("partition", "require", "p", "0", "--reason", "rack 4 is there").code == 0
    eventually(halog, "events", "--partition", "p-1", holds=lambda found: count("HALOG-1011")(found) == 2)
    told = [(e["partition"], e["cause"]) for e in halog("events", "--format", "json").json if e["code"] == "HALOG-1011"]
    assert told == [
        ("p-1", "rack 4 moves"),
        ("p-1", "the override has ended: an operator took it back: rack 4 is there"),
    ]
    shown = halog("partition", "show", "p-1")
    assert "2 (quorum)" in shown.out or "nodes needed  1" in shown.out, shown
    assert halog("partition", "show", "p-0", "--format", "json").json["group"] == {}, "nothing was to be taken back"
    assert halog("partition", "require", "p-1", "0", "--reason", "again").code == 0
    group = halog("partition", "show", "p-1", "--format", "json").json["group"]
    assert group == {"required_reason": "rack 4 is there"}


@pytest.mark.feature("Q2", "O1")
def test_a_command_for_a_policy_changes_all_or_none(cluster: Any, halog: Run) -> None:
    assert halog("partition", "priority", "p-3", "A", "never").code == 0
    assert halog("partition", "priority", "p-3", "B", "never").code == 0
    ran = halog("partition", "priority", "p", "C", "never")
    assert (ran.code, "C is the last node of p-3" in ran.err) == (5, True), ran
    assert halog("partition", "show", "p-0", "--format", "json").json["group"] == {}


@pytest.mark.feature("R7", "O1")
def test_a_partition_below_its_number_is_shown_as_such(cluster: Any, halog: Run) -> None:
    assert halog("partition", "require", "p", "3").code == 0
    cluster.stop("C")
    ran = halog("status", "--format", "json")
    assert ran.code == 4
    states = {row["partition"]: row["state"] for row in halog("partition", "list", "--format", "json").json}
    assert set(states.values()) == {"no quorum"}


@pytest.mark.feature("Q3")
@pytest.mark.parametrize("said", [(), ("--cluster", "prod")], ids=["not confirmed", "of another cluster"])
def test_so_few_that_it_may_fork_are_confirmed_with_the_name_of_the_cluster(
    cluster: Any, halog: Run, said: tuple[str, ...]
) -> None:
    before = [t.group for t in cluster.tables()]
    ran = halog("partition", "require", "p", "1", "--may-fork", *said)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "halog: with 1 of 3 nodes required both halves of p-0 could go on without each other; nothing was changed. If "
        "that may be, confirm it with the name of this cluster: --cluster ops\n"
    )
    assert [t.group for t in cluster.tables()] == before
    assert halog("partition", "require", "p-0", "2", "--may-fork").code == 0, "nothing is given up by that"


@pytest.mark.feature("Q3")
def test_a_few_may_be_required_where_somebody_confirms_it(cluster: Any, halog: Run) -> None:
    ran = halog("partition", "require", "p-0", "1", "--may-fork", "--cluster", "ops", "--format", "json")
    assert ran.code == 0, ran
    assert ran.json[0]["required"] == 1


@pytest.mark.feature("Q3", "O1")
def test_an_override_that_is_over_and_that_nobody_took_out_is_shown_as_such() -> None:
    """Nodes go by the quorum by then, whether they reach ZooKeeper or not."""
    given: dict[str, Any] = {"required": 1, "required_until_ms": 1, "required_reason": "fire"}
    table = PartitionTable("p", "00" * 16, "t", 0, "q", ("A", "B", "C"), 1, quorum=2, group=Group(**given))
    assert _needed(table) == "2 (quorum; an override is over, and stands in ZooKeeper still)"
    later = msgspec.structs.replace(table, group=Group(**{**given, "required_until_ms": 1 << 42}))
    assert _needed(later) == "1 (1 required until 2109-05-15 07:35:11 UTC: fire)"
    alone = msgspec.structs.replace(table, active=Member("A", 1))
    assert survey.health(alone, "A", set()) == survey.NO_QUORUM
    assert survey.health(msgspec.structs.replace(alone, group=later.group), "A", set()) == survey.TOO_FEW


@pytest.mark.feature("Q2", "O1")
def test_of_a_partition_and_a_policy_of_one_name_the_partition_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    """The narrower: the policy's own partitions have names of their own."""
    toml = TOML.replace("[bindings]", '[policies.p-1]\nzone = "home"\npartitions = 2\n[bindings]')
    with running(Cluster(tmp_path, toml), monkeypatch):
        ran = halog("partition", "priority", "p-1", "B", "high", "--format", "json")
        assert [row["partition"] for row in ran.json] == ["p-1"]
        ran = halog("partition", "priority", "p", "B", "high", "--format", "json")
        assert [row["partition"] for row in ran.json] == [f"p-{i}" for i in range(6)]
