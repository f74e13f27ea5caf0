"""halog events and halog history, against a cluster on the memory adapters and on hand-made logs."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from halog.cli.log.epochs import epochs_of
from halog.core.ids import Member
from halog.core.log import records
from halog.core.table.table import PartitionTable
from halog.events import REMOVED, ROLE, TRANSFER, Event, EventPlace, event
from halog.ports import TopicPartition
from tests.unit.cli.conftest import wait_until
from tests.unit.cli.log.handmade import LOG_ID, Log, epoch_id

Run = Callable[..., Any]
EVENTS = TopicPartition("ops.events", 0)


def eventually(halog: Run, *args: object, holds: Callable[[list[Any]], object]) -> list[Any]:
    """The document, once it is as expected: events arrive within some ten ms."""
    until = time.monotonic() + 10
    while True:
        ran = halog(*args, "--format", "json")
        assert ran.code == 0, ran
        if holds(ran.json):
            found: list[Any] = ran.json
            return found
        assert time.monotonic() < until, ran.json
        time.sleep(0.02)


def count(code: str) -> Callable[[list[Any]], int]:
    return lambda found: sum(e["code"] == code for e in found)


@pytest.mark.feature("U1", "Q4")
def test_an_event_of_a_later_version_is_shown_as_it_says(cluster: Any, halog: Run) -> None:
    """With a code, a severity and a field that are not known here."""
    made = event(
        ROLE, EventPlace("ops", "A", "p-0", 1, 1), name="x1", time_ms=1, node="A", cause="", more={"role": "r"}
    )
    said = {**json.loads(made.to_bytes()), "code": "HALOG-1999", "severity": "notice", "text": "p-0 is blue", "hue": 7}
    log = cluster.nodes["A"].runtime.adapters.log
    with closing(log.journal(EVENTS)) as journal:
        assert not journal.note([json.dumps(said).encode()]).left
    shown = eventually(halog, "events", holds=count("HALOG-1999"))
    (found,) = (e for e in shown if e["code"] == "HALOG-1999")
    assert (found["severity"], found["text"]) == ("notice", "p-0 is blue")
    ran = halog("events", "--severity", "error")
    assert ran.code == 0
    assert "p-0 is blue" in ran.out
    assert "HALOG-1999" in ran.out


@pytest.mark.feature("U1", "Q4")
@pytest.mark.parametrize(
    "other",
    [
        {"severity": 3},
        {"partition": ["p-0", "p-1"], "epoch": {"number": 1}, "lsn": "7"},
        {"more": "none"},
        {"time_ms": "2026-11-27T17:00:00Z"},
        {"time_ms": 10**18},
        {"id": 7, "cause": None},
        {"absent": "by"},
    ],
    ids=repr,
)
def test_an_event_whose_fields_a_later_version_writes_otherwise_is_shown(
    cluster: Any, halog: Run, other: dict[str, Any]
) -> None:
    """What is not said as it is here counts as not said; its code and its text are shown."""
    said = {**json.loads(made(REMOVED, 1, 60, node="X", cause="of old")), "code": "HALOG-9999", "text": "p-0 is blue"}
    said = {name: value for name, value in {**said, **other}.items() if name != other.get("absent")}
    for _ in range(2):
        cluster.broker.write(EVENTS, [(b"", json.dumps(said).encode(), {})], marker=False)
    shown = eventually(halog, "events", "--code", "HALOG-9999", holds=len)
    assert [e["text"] for e in shown] == ["p-0 is blue"]
    assert set(shown[0]) == {"time", *Event.__struct_fields__}
    ran = halog("events", "--code", "9999")
    assert (ran.code, "HALOG-9999" in ran.out, "p-0 is blue" in ran.out) == (0, True, True)
    assert "knows no event HALOG-9999" in ran.err
    assert "passed over" not in ran.err


@pytest.mark.feature("U1", "O1")
def test_a_code_that_is_not_known_may_be_asked_for(cluster: Any, halog: Run) -> None:
    """It may be a later version's. Another word is none."""
    ran = halog("events", "--code", "HALOG-9999", "--format", "json")
    assert (ran.code, ran.json) == (0, [])
    assert ran.err.count("knows no event HALOG-9999") == 1
    for word in ("HALOG-99", "HALOG-99999", "99a9", "HALOG-９９９９"):
        ran = halog("events", "--code", word)
        assert (ran.code, ran.out, "there is no event" in ran.err) == (2, "", True), ran


@pytest.mark.feature("Q4", "O2")
def test_a_new_clusters_history_begins_with_its_partitions_and_nodes(cluster: Any, halog: Run) -> None:
    """Each partition is created once, each node joins, each partition gets an active node and two replicas."""
    found = eventually(halog, "events", holds=lambda f: count("HALOG-1005")(f) >= 12)
    created = [e["partition"] for e in found if e["code"] == "HALOG-1001"]
    assert created == [f"p-{i}" for i in range(6)]
    assert sorted(e["node"] for e in found if e["code"] == "HALOG-1003") == ["A", "B", "C"]
    active = {e["partition"]: e["node"] for e in found if e["name"] == "role change"}
    assert active == {f"p-{i}": cluster.active(f"p-{i}") for i in range(6)}
    assert len({e["id"] for e in found}) == len(found)
    assert [e["time_ms"] for e in found] == sorted(e["time_ms"] for e in found)


@pytest.mark.feature("Q4", "Q5", "O1")
def test_a_requested_transfer_is_in_the_history_with_who_asked_and_who_is_active_now(cluster: Any, halog: Run) -> None:
    """The request, both role changes; `history --why` puts them together with the log."""
    was = cluster.active("p-0")
    to = next(n for n in "ABC" if n != was)
    assert halog("failover", "p-0", "--to", to).code == 0
    found = eventually(halog, "events", "--partition", "p-0", holds=lambda f: count("HALOG-1010")(f) >= 3)
    (asked,) = (e for e in found if e["code"] == "HALOG-1007")
    assert (asked["node"], asked["more"], asked["epoch"]) == (was, {"to": to}, 1)
    assert asked["cause"].startswith("asked for by halog-cli-")
    assert {e["partition"] for e in found} == {"p-0"}
    first, second = halog("history", "p-0", "--why", "--format", "json").json
    assert (first["epoch"], first["active"], first["ended"]) == (1, was, f"handed over to {to}")
    assert first["because"] == "the partition never had an active node"
    assert (second["epoch"], second["active"], second["ended"], second["until"]) == (2, to, None, None)
    assert second["because"] == f"{was} handed over: {asked['cause']}"
    assert first["until"] <= second["since"]
    shown = halog("history", "p-0", "--why").out
    assert asked["cause"] in shown
    assert asked["cause"] not in halog("history", "p-0").out


@pytest.mark.feature("Q4", "R4", "P10")
def test_a_node_that_leaves_is_told_by_itself_and_removed_everywhere(cluster: Any, halog: Run) -> None:
    """On purpose: it hands over because it leaves, says that it left, and every node list loses it; the others say
    nothing of its leaving, for it did."""
    led = [t.name for t in cluster.tables() if t.active.node == "C"]
    cluster.stop("C")
    found = eventually(halog, "events", holds=lambda f: count("HALOG-1006")(f) >= 6)
    assert [(e["node"], e["by"]) for e in found if e["code"] == "HALOG-1004"] == [("C", "C")]
    moved = sorted((e["partition"], e["cause"]) for e in found if e["code"] == "HALOG-1007")
    assert moved == [(name, "C leaves") for name in sorted(led)]  # none, if others were faster at the start
    removed = [e for e in found if e["code"] == "HALOG-1006"]
    assert {e["node"] for e in removed} == {"C"}
    assert {e["cause"] for e in removed} <= {"it left", "it is not up"}


@pytest.mark.feature("Q4", "O1")
def test_events_are_chosen_by_partition_and_time(cluster: Any, halog: Run) -> None:
    """--since takes a date, a time with or without a zone; what came before is not shown."""
    eventually(halog, "events", holds=lambda f: count("HALOG-1005")(f) >= 12)
    data = made(ROLE, 1, 50, node="X", cause="long ago", role="active")
    cluster.broker.write(EVENTS, [(b"", data, {})], marker=False)
    everything = halog("events", "--format", "json").json
    assert everything[0]["cause"] == "long ago"
    for since in (everything[1]["time"], "1970-01-02"):
        chosen = halog("events", "--since", since, "--format", "json").json
        assert [e for e in chosen if e in everything] == everything[1:]
        assert all(e["time"] >= since for e in chosen)  # the cluster may have told more meanwhile
    assert halog("events", "--since", "2999-01-01T00:00", "--format", "json").json == []
    assert "long ago" in halog("events", "--partition", "p-0").out
    assert "long ago" not in halog("events", "--partition", "p-1").out


@pytest.mark.feature("O1")
def test_wrong_options_are_usage_errors(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """Exit 2, nothing on stdout, and what is wrong is named."""
    for args, named in (
        (("events", "--since", "yesterday"), "no ISO date"),
        (("events", "--partition", "p-77"), "there is no partition p-77"),
        (("history", "p-77"), "there is no partition p-77"),
        (("history", "p-0", "--export", tmp_path / "x"), "--export belongs to --discarded"),
        (("history", "p-0", "--why", "--discarded"), "two questions"),
    ):
        ran = halog(*args)
        assert (ran.code, ran.out) == (2, ""), args
        assert named in ran.err


@pytest.mark.feature("O2")
def test_what_is_no_event_is_passed_over_and_a_repeated_one_counts_once(cluster: Any, halog: Run) -> None:
    """A write that was repeated, and bytes of somebody else: neither spoils the list."""
    eventually(halog, "events", holds=lambda f: count("HALOG-1005")(f) >= 12)
    data = made(REMOVED, 1, 60, node="X", cause="twice")
    for value in (data, b"\xff", data):
        cluster.broker.write(EVENTS, [(b"", value, {})], marker=False)
    ran = halog("events", "--format", "json")
    assert [e["cause"] for e in ran.json].count("twice") == 1
    assert "is passed over" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.feature("Q4", "O1")
def test_events_are_followed_as_lines(cluster: Any, halog: Run) -> None:
    """-f shows what was there, then what comes, one document a line, and Ctrl-C ends it with 0."""
    eventually(halog, "events", holds=lambda f: count("HALOG-1005")(f) >= 12)
    before = halog("events", "--format", "json").json
    data = made(REMOVED, 1, 60, node="X", cause="just now")
    write = threading.Timer(0.3, lambda: cluster.broker.write(EVENTS, [(b"", data, {})], marker=False))
    write.start()
    with ctrl_c_behind("just now"):
        ran = halog("events", "-f", "--format", "json")
    assert ran.code == 0
    told = [line["id"] for line in ran.lines]
    assert set(told) >= {e["id"] for e in before}
    assert (ran.lines[-1]["cause"], len(set(told))) == ("just now", len(told))
    with ctrl_c_behind("just now"):
        table = halog("events", "-f", "--partition", "p-0").out
    assert "HALOG-1006  Z  e1  partition p-0: X leaves the node list: just now" in table


@contextmanager
def ctrl_c_behind(text: str) -> Iterator[None]:
    """Who sees this on the terminal presses Ctrl-C."""

    def watch() -> None:
        terminal: Any = sys.stdout
        wait_until(lambda: text in terminal.getvalue())
        interrupt_main()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()


def made(kind: Any, epoch: int, time_ms: int, *, node: str, cause: str, **more: Any) -> bytes:
    at = EventPlace("ops", "Z", "p-0", epoch, 1)
    return event(
        kind, at, name=f"Z/{kind.code}/{time_ms}", time_ms=time_ms, node=node, cause=cause, more=more
    ).to_bytes()


# --- hand-made logs ---


def table(number: int, active: str | None) -> PartitionTable:
    return PartitionTable(
        "p-0",
        LOG_ID.hex(),
        "t",
        0,
        "p",
        ("A", "B"),
        1,
        epoch=epoch_id(number),
        active=None if active is None else Member(active, 1),
    )


@pytest.mark.feature("Q4", "O2")
def test_epochs_are_put_together_from_log_and_events() -> None:
    """How each ended by the log, who led it and why by the events, an election that came to nothing among them."""
    log = Log()
    log.epoch(1)
    log.epoch(2)
    log.add(records.HandedOver(log.header(2), "A"))
    log.started(3)
    log.epoch(4)
    told = [
        Event.from_bytes(made(kind, number, 100 + number, node=node, cause=cause, **more))
        for kind, number, node, cause, more in (
            (ROLE, 1, "A", "the partition never had an active node", {"role": "active", "was": "replica"}),
            (ROLE, 2, "B", "A: silent for 700 ms", {"role": "active", "was": "replica"}),
            (ROLE, 1, "A", "the znode names B", {"role": "replica", "was": "active"}),
            (TRANSFER, 2, "B", "B leaves", {"to": "A"}),
            (TRANSFER, 4, "C", "somebody asked, and it was called off", {"to": "A"}),
        )
    ]
    found = epochs_of((), log.judged(), told, table(4, "A"))
    assert [(e.epoch, e.opened, e.active, e.ended, e.because) for e in found] == [
        (1, True, "A", "fenced by epoch 2 (the znode names B)", "the partition never had an active node"),
        (2, True, "B", "handed over to A", "A: silent for 700 ms"),
        (3, False, None, "fenced by epoch 4", None),
        (4, True, "A", None, "B handed over: B leaves"),
    ]
    assert [(e.since_ms, e.until_ms, e.lsn) for e in found] == [(1, 2, 1), (3, 4, 2), (None, 6, None), (7, None, 4)]


@pytest.mark.feature("O2")
def test_what_was_trimmed_is_known_from_the_lineage_and_the_events() -> None:
    """Without a record of it an epoch still has its number, its first lsn, and what was told of it."""
    told = [Event.from_bytes(made(ROLE, 1, 500, node="A", cause="B left", role="active", was="replica"))]
    found = epochs_of(((epoch_id(1), 1), (epoch_id(2), 9)), [], told, table(2, "B"))
    assert [(e.epoch, e.active, e.lsn, e.since_ms, e.because) for e in found] == [
        (1, "A", 1, 500, "B left"),
        (2, "B", 9, None, None),
    ]


def test_the_time_of_an_event_is_utc(cluster: Any, halog: Run) -> None:
    """As ISO 8601 with its offset, and as ms since 1970."""
    first = eventually(halog, "events", holds=len)[0]
    assert dt.datetime.fromisoformat(first["time"]).timestamp() * 1000 == pytest.approx(first["time_ms"])
    assert first["time"].endswith("+00:00")
