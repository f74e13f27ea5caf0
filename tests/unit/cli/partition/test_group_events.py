"""What operators change about a group is told once, whether or not a node is up to see it; so is the end of an override
that was to last a while (Q2, Q3, Q4)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.core.table.table import Group
from halog.errors import RefusedError
from halog.events import Event
from halog.metadata.identity import who
from halog.ports import TopicPartition, UnknownResult
from halog.runtime.support.clock import wall_ms
from tests.unit.cli.conftest import TOML, Cluster, Ran, running, wait_until

pytestmark = pytest.mark.feature("Q3", "Q4", "O2")

Run = Callable[..., Ran]
EVENTS = TopicPartition("ops.events", 0)
OF_GROUPS = {"HALOG-1011", "HALOG-1012", "HALOG-1013"}
MINIMUM, ROLE, ADDED = "HALOG-1011", "HALOG-1010", "HALOG-1005"
OVER = "the override has ended: its time is over"
TAKEN_BACK = "the override has ended: an operator took it back"


@pytest.fixture
def quorate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes, two partitions that need two of them."""
    toml = TOML.replace("partitions = 6", "partitions = 2\nquorum = true")
    with running(Cluster(tmp_path, toml), monkeypatch) as made:
        yield made


def events(halog: Run, *codes: str, partition: str = "p-0") -> list[Any]:
    """What the history has of them."""
    ran = halog("events", "--partition", partition, "--format", "json")
    assert ran.code == 0, ran
    return [e for e in ran.json if e["code"] in codes]


def minimums(halog: Run) -> list[tuple[int, int, str]]:
    return [(e["more"]["required"], e["more"]["was"], e["cause"]) for e in events(halog, MINIMUM)]


def all_stop(cluster: Cluster) -> None:
    for name in list(cluster.nodes):
        cluster.stop(name)


def start(cluster: Cluster, halog: Run, *names: str) -> None:
    """These are up, and one of them is active anew; what they told before that is in the history."""
    known = len(events(halog, ROLE))
    for name in names:
        cluster.start(name)
    wait_until(lambda: any(e["more"]["role"] == "active" for e in events(halog, ROLE)[known:]))


def put(cluster: Cluster, **group: Any) -> None:
    """As it was set in p-0 some time ago."""
    found = cluster.tree.get("partitions/p-0")
    table = next(t for t in cluster.tables() if t.name == "p-0")
    assert found is not None
    cluster.tree.set("partitions/p-0", msgspec.structs.replace(table, group=Group(**group)).to_bytes(), found.version)


# --- what is asked for ---


def test_an_override_that_is_given_while_no_node_is_up_is_told_by_the_command(quorate: Cluster, halog: Run) -> None:
    """With its reason, that the history may split by it, and who gave it; nodes that go by it then tell it no more."""
    all_stop(quorate)
    ran = halog("partition", "require", "p-0", "1", "--may-fork", "--cluster", "ops", "--reason", "while nobody was up")
    assert (ran.code, ran.err) == (0, ""), ran
    (one,) = events(halog, *OF_GROUPS)
    assert (one["code"], one["cause"], one["node"]) == (MINIMUM, "while nobody was up", who())
    assert one["more"] == {"required": 1, "was": 2, "may_fork": True, "by": who()}
    assert one["text"] == "partition p-0: 1 nodes are required, not 2: while nobody was up"
    start(quorate, halog, "A")
    assert events(halog, ROLE)[-1]["more"]["may_fork"] is True
    start_of_b = len(events(halog, ADDED))
    quorate.start("B")
    wait_until(lambda: len(events(halog, ADDED)) > start_of_b)
    assert events(halog, *OF_GROUPS) == [one]


def test_what_was_changed_stands_in_the_log_file_of_a_node_that_is_up(
    quorate: Cluster, halog: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert halog("partition", "require", "p-0", "3", "--reason", "rack 4").code == 0
    line = "HALOG-1011 partition p-0: 3 nodes are required, not 2: rack 4"
    wait_until(lambda: [r.getMessage() for r in caplog.records if r.name == "halog.events"].count(line) == 1)


def test_each_of_several_changes_is_told_however_close_they_are(quorate: Cluster, halog: Run) -> None:
    """A node may see the first and the last state only; each is told once, though three nodes are up."""
    for words in (
        ("require", "p-0", "3", "--reason", "one"),
        ("require", "p-0", "2", "--reason", "two"),
        ("require", "p-0", "0", "--reason", "three"),
        ("priority", "p-0", "B", "highest"),
        ("priority", "p-0", "B", "highest"),
        ("priority", "p-0", "B", "normal"),
    ):
        assert halog("partition", *words).code == 0
    time.sleep(0.3)  # what nodes tell takes a tenth of that
    said = [(e["code"], e["cause"], e["more"].get("required") or e["more"]["level"]) for e in events(halog, *OF_GROUPS)]
    assert said == [
        (MINIMUM, "one", 3),
        (MINIMUM, "two", 2),
        (MINIMUM, f"{TAKEN_BACK}: three", 2),
        ("HALOG-1012", "an operator's command", "highest"),
        ("HALOG-1012", "an operator's command", "normal"),
    ]
    assert events(halog, *OF_GROUPS, partition="p-1") == []


def test_a_command_for_a_policy_is_told_of_each_partition(quorate: Cluster, halog: Run) -> None:
    assert halog("partition", "priority", "p", "C", "never").code == 0
    for name in ("p-0", "p-1"):
        (one,) = events(halog, *OF_GROUPS, partition=name)
        assert (one["node"], one["more"]["level"], one["epoch"]) == ("C", "never", 1)


def test_what_was_changed_before_one_failed_is_told(quorate: Cluster, halog: Run) -> None:
    quorate.tree.faults.fail("set", RefusedError("it is away"), "partitions/p-1")
    assert halog("partition", "require", "p", "3").code == 5
    assert minimums(halog) == [(3, 2, "an operator's command")]
    assert events(halog, *OF_GROUPS, partition="p-1") == []


def test_a_change_whose_answer_was_lost_is_told_once(quorate: Cluster, halog: Run) -> None:
    """It is asked for again, and there is nothing to change then."""
    all_stop(quorate)
    lost = quorate.tree.faults.fail("set", UnknownResult(), "partitions/p-0", lands=True, times=1)
    assert halog("partition", "require", "p-0", "3", "--reason", "rack 4").code == 0
    assert lost.ended
    assert minimums(halog) == [(3, 2, "rack 4")]


def test_it_is_done_whether_or_not_the_history_takes_it(quorate: Cluster, halog: Run) -> None:
    quorate.broker.hold(EVENTS)
    ran = halog("partition", "require", "p-0", "3")
    assert (ran.code, "the event history does not have it" in ran.err) == (0, True), ran
    assert {t.name: t.group.required for t in quorate.tables()} == {"p-0": 3, "p-1": 0}
    quorate.broker.release(EVENTS)


# --- what ends ---


def test_the_end_of_an_override_is_told_once_by_all_who_end_it(quorate: Cluster, halog: Run) -> None:
    """Each copy ends it by its own clock, and whoever is first takes it out of the znode: none can know whether another
    one has told it. They tell it by one id."""
    assert halog("partition", "require", "p-0", "3", "--for", "1s", "--reason", "a moment").code == 0
    wait_until(lambda: len(minimums(halog)) == 2)
    wait_until(lambda: quorate.broker.shelf(EVENTS).end and len(records(quorate)) >= 3)
    assert minimums(halog) == [(3, 2, "a moment"), (2, 3, OVER)]
    (ended,) = {e.id for e in records(quorate) if e.cause == OVER}
    assert re.fullmatch(r"p-0/HALOG-1011/\d{13}", ended)
    wait_until(lambda: all(t.group == Group() for t in quorate.tables()))


def records(cluster: Cluster) -> list[Event]:
    """Every record of an override of a quorum."""
    rows = cluster.broker.shelf(EVENTS).rows
    found = [Event.from_bytes(row.value) for row in rows if row.value]
    return [e for e in found if e.code == MINIMUM]


def test_one_that_ended_while_no_node_was_up_is_told_by_those_that_find_it(quorate: Cluster, halog: Run) -> None:
    all_stop(quorate)
    put(quorate, required=1, required_until_ms=wall_ms() - 1, required_reason="fire")
    start(quorate, halog, "A", "B")
    assert minimums(halog) == [(2, 1, OVER)]


def test_one_that_is_over_is_no_more_the_commands_to_end(quorate: Cluster, halog: Run) -> None:
    """Nobody was up to take it out: the command that does tells its end as nodes would, then what it does itself."""
    all_stop(quorate)
    put(quorate, required=1, required_until_ms=wall_ms() - 1, required_reason="fire")
    assert halog("partition", "priority", "p-0", "B", "high").code == 0
    assert halog("partition", "require", "p-0", "3", "--reason", "rack 4").code == 0
    assert minimums(halog) == [(2, 1, OVER), (3, 2, "rack 4")]
    start(quorate, halog, "A", "B", "C")
    assert [(e["code"], e["cause"]) for e in events(halog, *OF_GROUPS)] == [
        (MINIMUM, OVER),
        ("HALOG-1012", "an operator's command"),
        (MINIMUM, "rack 4"),
    ]


def test_one_that_is_taken_back_before_its_end_is_told_as_that(quorate: Cluster, halog: Run) -> None:
    """Nothing ends at its time any more."""
    assert halog("partition", "require", "p-0", "3", "--for", "1s").code == 0
    assert halog("partition", "require", "p-0", "0").code == 0
    time.sleep(1.3)
    assert minimums(halog) == [(3, 2, "an operator's command"), (2, 3, TAKEN_BACK)]
