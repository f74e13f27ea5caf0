"""halog history --discarded: what readers skipped, and what never reached the log, record by record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import halog as library
from halog.cli.log.discarded import discarded
from halog.core.ids import NO_HASH
from halog.core.log import records
from halog.core.log.record_types import Merged
from halog.events import DISCARDED, Event, EventPlace, event
from halog.ports import TopicPartition
from halog.runtime.topics.log_judge import EntryVerdict
from tests.unit.cli.conftest import TOML, Cluster, running, wait_until
from tests.unit.cli.log.handmade import LOG_ID, Log, epoch_id

Run = Callable[..., Any]


def tx(n: int) -> bytes:
    return n.to_bytes(16, "big")


@pytest.mark.feature("X9", "Q4")
def test_skipped_transactions_are_listed_with_what_became_of_them() -> None:
    """A late one of a dead epoch, one that was tried again, one of a voided rest; what counts is not listed."""
    log = Log()
    log.epoch(1)
    log.commit(1, 11)
    log.epoch(2)
    log.commit(1, 12, counts=False)  # late: discarded
    log.commit(1, 13, counts=False)  # late, and committed again below
    log.commit(2, 13)
    log.started(3)
    log.commit(2, 14, counts=False)  # of a dead epoch, but epoch 3 has not opened yet
    found = [(left.judged.offset, left.outcome) for left in discarded(log.judged())]
    assert found == [(5, "discarded"), (6, "committed as lsn 4"), (9, "undecided")]
    log.add(records.EpochOpened(log.header(3), ()))
    assert [left.outcome for left in discarded(log.judged())] == ["discarded", "committed as lsn 4", "discarded"]


@pytest.mark.feature("X9", "Q4")
def test_what_a_hole_voided_is_discarded_too() -> None:
    """The record behind the hole, and all of its epoch behind it."""
    log = Log()
    log.epoch(1)
    log.lsn += 1
    log.commit(1, 11, counts=False)
    log.commit(1, 12, counts=False)
    log.lsn -= 1
    log.epoch(2)
    found = [(left.judged.verdict, left.outcome) for left in discarded(log.judged())]
    assert found == [("voided", "discarded"), ("skipped", "discarded")]


@pytest.mark.feature("X9", "O1")
def test_discarded_records_are_shown_decoded_and_exported(cluster: Any, halog: Run, tmp_path: Path) -> None:
    """A record of a dead epoch that lands late: its values are those of the schemas topic; the file is its owner's."""
    plane = cluster.Aircraft("N1", 7)
    place = cluster.partition_of(plane)
    cluster.create(plane)
    nothing = halog("history", place, "--discarded")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == (
        "nothing was discarded: no record of this log was skipped, and no node told of one that never reached it\n"
    )
    tp = TopicPartition("ops.p.log", int(place[2:]))
    log = cluster.nodes["A"].runtime.adapters.log
    late = records.decode(list(log.read(tp, *log.bounds(tp)))[-1].value)
    was = cluster.active(place)
    assert halog("failover", place, "--to", next(n for n in "ABC" if n != was)).code == 0
    header = records.Header(late.header.log_id, late.header.epoch, 99, NO_HASH, (7).to_bytes(16, "big"))
    assert isinstance(late, records.Commit)
    cluster.broker.overtake(tp, records.encode(records.Commit(header, late.changes)))
    (left,) = halog("history", place, "--discarded", "--format", "json").json
    assert (left["outcome"], left["verdict"], left["tx"]) == ("discarded", "skipped", header.tx.hex())
    assert left["changes"][0]["fields"]["miles"] == 7
    shown = halog("history", place, "--discarded").out
    assert "skipped" in shown
    assert "discarded" in shown
    assert 'create Aircraft ["N1"]' in shown
    file = tmp_path / "discarded.jsonl"
    assert halog("history", place, "--discarded", "--export", file, "--format", "json").json["records"] == 1
    assert [json.loads(line) for line in file.read_text().splitlines()] == [left]
    assert file.stat().st_mode & 0o777 == 0o600


# --- decisions of transactions over several partitions ---


def prepare(log: Log, number: int, n: int, *, counts: bool = True) -> None:
    log.add(records.Prepare(log.header(number, n), "p-0", ("p-0", "p-1"), 0, b"", ()), counts=counts)


def outcome(log: Log, number: int, n: int, *, commit: bool) -> None:
    log.add(records.Outcome(log.header(number, n), commit))


def outcomes(log: Log) -> list[str]:
    return [left.outcome for left in discarded(log.judged())]


@pytest.mark.feature("X9", "D4")
def test_a_decision_that_the_ledger_holds_void_commits_nothing() -> None:
    """It lies in the history, and counts for nobody: nothing of its id is prepared, or it was decided before."""
    log = Log()
    log.epoch(1)
    log.epoch(2)
    prepare(log, 1, 11, counts=False)  # late: only this attempt was ever prepared
    prepare(log, 1, 12, counts=False)  # late, and prepared again below
    prepare(log, 1, 13, counts=False)
    outcome(log, 2, 11, commit=True)
    prepare(log, 2, 12)
    outcome(log, 2, 12, commit=True)
    outcome(log, 2, 12, commit=False)  # too late to be otherwise
    prepare(log, 2, 13)
    outcome(log, 2, 13, commit=False)
    outcome(log, 2, 13, commit=True)
    assert outcomes(log) == ["discarded", "committed as lsn 5", "discarded"]


@pytest.mark.feature("X9", "D4")
def test_a_decision_below_the_horizon_commits_nothing() -> None:
    log = Log()
    log.epoch(1)
    log.epoch(2)
    prepare(log, 1, 11, counts=False)
    log.add(records.Horizon(log.header(2), 5))  # 11 has stamp 0
    prepare(log, 2, 11)
    outcome(log, 2, 11, commit=True)
    assert outcomes(log) == ["discarded"]


@pytest.mark.feature("X9", "D4")
def test_what_is_prepared_anew_and_in_doubt_is_undecided() -> None:
    log = Log()
    log.epoch(1)
    log.epoch(2)
    prepare(log, 1, 11, counts=False)
    prepare(log, 2, 11)
    assert outcomes(log) == ["undecided"]
    outcome(log, 2, 11, commit=False)
    assert outcomes(log) == ["discarded"]


@pytest.mark.feature("X9", "D4")
def test_where_the_logs_beginning_was_trimmed_a_decision_may_be_of_what_was_there() -> None:
    log = Log()
    log.epoch(1)
    prepare(log, 1, 11)
    log.epoch(2)
    prepare(log, 1, 11, counts=False)
    outcome(log, 2, 11, commit=True)
    outcome(log, 2, 11, commit=True)
    trimmed = log.judged()[3:]
    assert [left.outcome for left in discarded(trimmed)] == ["committed as lsn 4"]


@pytest.mark.feature("X9", "D4")
def test_a_merge_says_what_happened_on_any_branch_and_what_was_decided() -> None:
    log = Log()
    log.epoch(1)
    log.epoch(2)
    for n in (11, 12, 13, 14):
        prepare(log, 1, n, counts=False)
    prepare(log, 2, 14)
    read = log.judged()
    part = records.MergePart(
        records.Header(LOG_ID, epoch_id(3)), 0, (Merged(b"k", b"r" * 24, b"v"),), (tx(11),), ((tx(12), True),)
    )
    merge = records.EpochMerged(log.header(3), b"m", (), (), (), 1, b"", 0, 0)
    read += [EntryVerdict(20, 20, "held", part), EntryVerdict(21, 21, "opened", merge)]
    late = records.Outcome(records.Header(LOG_ID, epoch_id(3), 99, NO_HASH, tx(14)), True)
    read.append(
        EntryVerdict(22, 22, "accepted", late)
    )  # the merge knows nothing of it: nobody has it in doubt any more
    lsn = merge.header.lsn
    found = [left.outcome for left in discarded(read)]
    assert found == [f"committed as lsn {lsn}", f"committed as lsn {lsn}", "discarded", "discarded"]


# --- what never reached the log ---


def told(epoch: int, *items: dict[str, Any], by: str = "A", time_ms: int = 500) -> Event:
    at, more = (
        EventPlace("ops", by, "p-0", epoch + 1, 1),
        {"count": len(items), "of_epoch": epoch, "transactions": items},
    )
    name = f"{by}/{epoch}/{time_ms}"
    made = event(DISCARDED, at, name=name, time_ms=time_ms, node=by, cause="timed out", more=more)
    return Event.from_bytes(made.to_bytes())


def item(n: int, lsn: int, **more: Any) -> dict[str, Any]:
    return {"tx": tx(n).hex(), "lsn": lsn, **more}


def lost(log: Log, n: int, lsn: int, **more: Any) -> tuple[records.Commit, dict[str, Any]]:
    """A commit of epoch 1, as its node told it."""
    record = records.Commit(records.Header(LOG_ID, epoch_id(1), lsn, NO_HASH, tx(n)), ())
    data = records.encode(record)
    return record, item(n, lsn, bytes=len(data), record=data, **more)


@pytest.mark.feature("X9", "Q4")
def test_what_never_reached_the_log_is_listed_behind_what_readers_skipped_each_once() -> None:
    """Told twice, the one with the record; told and in the log, the log's."""
    log = Log()
    log.epoch(1)
    log.epoch(2)
    log.commit(1, 11, counts=False)
    late = records.decode(log.entries[-1].value).header.lsn
    log.commit(2, 12)
    first, with_record = lost(log, 13, 3, acknowledged=True)
    again, was_repeated = lost(log, 12, 4)
    events = [
        told(1, item(13, 3), by="B"),
        told(1, with_record, was_repeated, lost(log, 11, late)[1]),
        told(1, with_record, item(14, 5, bytes=5_000_000), time_ms=501),
    ]
    found = list(discarded(log.judged(), events))
    shown = [(x.judged.verdict, x.judged.record, x.outcome, x.told is not None and x.told.acknowledged) for x in found]
    assert shown == [
        ("skipped", records.decode(log.entries[4].value), "discarded", False),
        ("unlogged", first, "discarded", True),
        ("unlogged", again, "committed as lsn 3", False),
        ("unlogged", None, "discarded", False),
    ]
    assert found[3].judged.why == "timed out; its record of 5000000 bytes had no room in the event"


@pytest.mark.feature("X9", "Q4", "D4")
def test_a_vote_that_never_reached_the_log_is_listed_with_what_became_of_its_transaction() -> None:
    """Told by its node, and given again since, perhaps: then it may be in doubt, or committed."""
    log = Log()
    log.epoch(1)
    log.epoch(2)
    header = records.Header(LOG_ID, epoch_id(1), 3, NO_HASH, tx(11))
    vote = records.Prepare(header, "p-0", ("p-0", "p-1"), 0, b"", ())
    data = records.encode(vote)
    event = told(1, item(11, 3, bytes=len(data), record=data))

    def listed() -> tuple[str, records.Record | None, str]:
        (left,) = discarded(log.judged(), [event])
        return left.judged.verdict, left.judged.record, left.outcome

    assert listed() == ("unlogged", vote, "discarded")
    prepare(log, 2, 11)
    assert listed() == ("unlogged", vote, "undecided")
    outcome(log, 2, 11, commit=True)
    assert listed() == ("unlogged", vote, "committed as lsn 4")


@pytest.mark.feature("X9")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"of_epoch": 1, "transactions": "none"},
        {"of_epoch": 1, "transactions": [{"tx": "no hex", "lsn": 3}]},
        {"of_epoch": 1, "transactions": [{"tx": "00", "lsn": 3, "record": "no base64!"}]},
    ],
)
def test_an_event_of_another_form_is_passed_over(more: dict[str, Any]) -> None:
    """Whatever a newer node, or a stranger, writes there."""
    log = Log()
    log.epoch(1)
    data = {"id": "x", "code": DISCARDED.code, "name": "", "severity": "", "time_ms": 1, "cluster": "ops"}
    data |= {"partition": "p-0", "node": "A", "by": "A", "epoch": 1, "lsn": 1, "text": "", "cause": "", "more": more}
    assert not list(discarded(log.judged(), [Event.from_bytes(json.dumps(data).encode())]))


@pytest.mark.feature("X9")
def test_bytes_that_are_no_record_are_named_with_the_reason() -> None:
    log = Log()
    log.epoch(1)
    log.epoch(2)
    (found,) = discarded(log.judged(), [told(1, item(13, 3, bytes=4, record=b"\x80nop"))])
    assert found.judged.record is None
    assert found.judged.why is not None
    assert found.judged.why.startswith("timed out; its record cannot be read: ")


SHORT = TOML.replace("[timing]\n", "[timing]\ncall_deadline_ms = 5_000\nappend_deadline_ms = 3_000\n").replace(
    "doubt_timeout_ms = 60_000", "doubt_timeout_ms = 1_000"
)


@pytest.fixture
def brief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """What is discarded is certain after some seconds."""
    with running(Cluster(tmp_path, SHORT), monkeypatch) as made:
        yield made


@pytest.mark.feature("X9", "Q4", "R6")
def test_what_a_living_node_acknowledged_and_lost_is_listed_and_exported_with_its_contents(
    brief: Any, halog: Run, tmp_path: Path
) -> None:
    """With NO_SYNC asked for: the log's answer never comes, the epoch ends, and nobody else brings it in."""
    plane = brief.Aircraft("N1", 7)
    place = brief.partition_of(plane)
    brief.create(plane)
    tp = TopicPartition("ops.p.log", int(place[2:]))
    client = brief.nodes["A"]

    def replicas() -> list[Any]:
        (table,) = (t for t in brief.tables() if t.name == place)
        return [brief.nodes[m.node].runtime.copies[place].core.state for m in table.sync_set]

    def is_backed() -> bool:
        leading = brief.nodes[brief.active(place)].runtime.copies[place].core.leading
        if leading is None or not leading.writer.backed or leading.writer.queue:
            return False
        now = leading.epoch, leading.writer.last_lsn, True
        return all((r.chain.state.epoch, r.chain.state.lsn, r.chain.state.opened) == now for r in replicas())

    wait_until(is_backed)  # a replica is there to acknowledge it, and the log has all before it
    while any(r.held.sealed >= r.table.epoch.number for r in replicas()):
        # It was asked for its position in this epoch, and holds nothing that is pushed in it (E1). The next epoch
        # begins without an election.
        to = next(m.node for t in brief.tables() if t.name == place for m in t.sync_set)
        halog("failover", place, "--to", to)
        wait_until(is_backed)
    was = brief.active(place)
    brief.broker.hold(tp)
    with client.transaction(durability=library.Durability(local="NO_SYNC")) as done:
        client.get(brief.Aircraft, "N1").miles = 99
    ended = next(t.epoch.number for t in brief.tables() if t.name == place)
    brief.broker.drop_held(tp)

    def listed() -> list[Any]:
        found: list[Any] = halog("history", place, "--discarded", "--format", "json").json
        return found

    until = time.monotonic() + 20
    while not (found := listed()):
        assert time.monotonic() < until, "it is told seconds after its epoch ended"
        time.sleep(0.1)
    (left,) = found
    assert (left["verdict"], left["outcome"], left["offset"]) == ("unlogged", "discarded", None)
    assert (left["record"], left["epoch"], left["lsn"]) == ("Commit", ended, done.lsn)
    assert (left["acknowledged"], left["by"]) == (True, was)
    (change,) = left["changes"]
    assert (change["op"], change["type"], change["key"]) == ("update", "Aircraft", ["N1"])
    assert (change["fields"]["miles"], change["before"]["miles"]) == (99, 7)
    shown = halog("history", place, "--discarded").out
    assert "miles=7→99" in shown
    assert f"discarded, acknowledged, told by {was}" in shown
    file = tmp_path / "discarded.jsonl"
    assert halog("history", place, "--discarded", "--export", file, "--format", "json").json["records"] == 1
    assert [json.loads(line) for line in file.read_text().splitlines()] == [left]
    (seen,) = (e for e in halog("events", "--format", "json").json if e["code"] == DISCARDED.code)
    (named,) = seen["more"]["transactions"]
    assert named == {"tx": left["tx"], "lsn": left["lsn"], "bytes": left["bytes"], "acknowledged": True}
