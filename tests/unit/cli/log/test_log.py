"""`halog log tail`: what it shows of a real history, and the verdicts on a hand-made one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from halog.core.ids import NO_HASH, EpochId, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import LaterRecordError
from halog.ports import Entry, TopicPartition
from halog.runtime.topics.log_judge import Judge, judge_backwards
from halog.runtime.topics.state_topic import WITH_MAPPING

Run = Callable[..., Any]
LOG_ID = b"0123456789abcdef"
TP = TopicPartition("t", 0)


def tail_all(halog: Run, partition: str, *more: str) -> list[Any]:
    ran = halog("log", "tail", partition, "-n", "1000", "--format", "json", *more)
    assert ran.code == 0, ran
    lines: list[Any] = ran.lines
    return lines


@pytest.mark.feature("O1")
def test_every_record_is_shown_with_its_verdict_and_decoded_values(cluster: Any, halog: Run) -> None:
    """Epoch, create with fields, update with what was before, delete with the type: all by stored definitions."""
    plane = cluster.Aircraft("N1", 7)
    place = cluster.partition_of(plane)
    cluster.create(plane)
    some = cluster.nodes["A"]
    with some.transaction():
        some.get(cluster.Aircraft, "N1").miles += 1
    with some.transaction():
        some.delete(some.get(cluster.Aircraft, "N1"))
    shown = tail_all(halog, place)
    assert [(s["record"], s["verdict"]) for s in shown][:2] == [("EpochStarted", "started"), ("EpochOpened", "opened")]
    create, update, delete = (s["changes"][0] for s in shown if s["record"] == "Commit")
    assert (create["op"], create["type"], create["key"], create["fields"]["miles"]) == ("create", "Aircraft", ["N1"], 7)
    assert (update["op"], update["before"]["miles"], update["fields"]["miles"]) == ("update", 7, 8)
    assert (delete["op"], delete["type"], delete["key"]) == ("delete", "Aircraft", ["N1"])
    text = halog("log", "tail", place).out
    assert "miles=7→8" in text
    assert 'delete Aircraft ["N1"]' in text


@pytest.mark.feature("O1", "Q5")
def test_a_handed_over_epoch_is_seen_to_end(cluster: Any, halog: Run) -> None:
    """After a failover the log shows the old epoch's last record and the new epoch's first ones."""
    to = next(n for n in "ABC" if n != cluster.active("p-0"))
    assert halog("failover", "p-0", "--to", to).code == 0
    kinds = [s["record"] for s in tail_all(halog, "p-0")]
    assert kinds[-3:] == ["HandedOver", "EpochStarted", "EpochOpened"]


def test_only_the_last_records_are_shown_and_none_if_none_is_asked_for(cluster: Any, halog: Run) -> None:
    """-n counts from the end."""
    everything = tail_all(halog, "p-4")
    assert halog("log", "tail", "p-4", "-n", "1", "--format", "json").lines == everything[-1:]
    assert halog("log", "tail", "p-4", "-n", "0").out == ""


@pytest.mark.feature("O1")
def test_a_trimmed_log_is_judged_from_its_snapshot_on(cluster: Any, halog: Run) -> None:
    """Behind a snapshot and a trimmed beginning the same records get the same verdicts as before."""
    place = cluster.partition_of(cluster.Aircraft("N1"))
    cluster.create(cluster.Aircraft("N1"))
    some = cluster.nodes["A"]
    for _ in range(5):
        with some.transaction():
            some.get(cluster.Aircraft, "N1").miles += 1
    before = tail_all(halog, place)
    copy = next(n.runtime.host.copies[place] for n in cluster.nodes.values() if n.runtime.is_active(place))
    snapshots = copy.node.snapshots
    snapshots.take(copy)
    with some.transaction():
        some.get(cluster.Aircraft, "N1").miles += 1
    snapshots.log.trim(copy.tp, 4)
    after = tail_all(halog, place)
    assert after[:-1] == before[4:]
    assert after[-1]["verdict"] == "accepted"


def test_a_value_of_an_unknown_type_is_shown_as_bytes_with_the_reason(cluster: Any, halog: Run) -> None:
    """A definition that was lost does not stop the tool."""
    plane = cluster.Aircraft("N1")
    place = cluster.partition_of(plane)
    cluster.create(plane)
    schemas = TopicPartition("ops.schemas", 0)
    log = cluster.nodes["A"].runtime.adapters.log
    log.put(schemas, type(plane).__halog__.type_id, None)
    change = tail_all(halog, place)[-1]["changes"][0]
    assert "undecoded" in change["fields"]
    assert type(plane).__halog__.type_id.hex() in change["fields"]["why"]


def test_bytes_that_are_no_record_are_shown_and_end_the_judging(cluster: Any, halog: Run) -> None:
    """A foreign record is unreadable; what follows cannot be judged, and is shown as unknown."""
    tp = TopicPartition("ops.p.log", 5)
    cluster.broker.write(tp, [(b"", b"\xff\xffgarbage", {})], marker=False)
    cluster.broker.write(tp, [(b"", records.encode(started(9)), {})], marker=False)
    shown = tail_all(halog, "p-5")
    assert [s["verdict"] for s in shown][-2:] == ["unreadable", "unknown"]
    assert "bytes that are no record" in shown[-2]["why"]


LATER = bytes((records.VERSION, records.LAST_KIND + 1)) + b"whatever it says"


@pytest.mark.feature("U1")
@pytest.mark.parametrize("more", [(), ("-f",)], ids=["tail", "follow"])
def test_a_record_of_a_later_version_ends_the_reading_by_name(cluster: Any, halog: Run, more: tuple[str, ...]) -> None:
    """What stands before it is shown; nothing is said of what follows."""
    before = halog("log", "tail", "p-5").out
    tp = TopicPartition("ops.p.log", 5)
    offset = cluster.broker.shelf(tp).end
    cluster.broker.write(tp, [(b"", LATER, {}), (b"", records.encode(started(9)), {})], marker=False)
    ran = halog("log", "tail", "p-5", *more)
    assert (ran.code, ran.out) == (7, before)
    assert f"ops.p.log/5, offset {offset}: a record of version 1 and kind 13, which a later version of halog" in ran.err


@pytest.mark.feature("U1")
def test_a_trimmed_log_with_a_snapshot_of_a_later_version_is_not_judged(cluster: Any, halog: Run) -> None:
    """Nobody here knows what went before; from the trimmed beginning all would seem to have diverged."""
    copy = next(n.runtime.host.copies["p-5"] for n in cluster.nodes.values() if n.runtime.is_active("p-5"))
    copy.node.snapshots.take(copy)
    copy.node.snapshots.log.trim(copy.tp, 1)
    marker = msgspec.msgpack.encode({"position": "elsewhere", "format": WITH_MAPPING + 1})
    cluster.broker.write(TopicPartition("ops.p.state", 5), [(b"p", marker, {})], marker=False)
    ran = halog("log", "tail", "p-5")
    assert (ran.code, ran.out) == (7, "")
    assert "ops.p.state/5 has a marker of format 5, which a later version of halog wrote" in ran.err


@pytest.mark.feature("U1")
@pytest.mark.parametrize("command", [("history", "p-5"), ("history", "p-5", "--discarded")])
def test_commands_that_read_a_whole_log_end_at_a_record_of_a_later_version(
    cluster: Any, halog: Run, command: tuple[str, ...]
) -> None:
    cluster.broker.write(TopicPartition("ops.p.log", 5), [(b"", LATER, {})], marker=False)
    ran = halog(*command)
    assert (ran.code, ran.out) == (7, "")
    assert "kind 13, which a later version of halog wrote" in ran.err


# --- verdicts on a hand-made history ---


def epoch(number: int) -> EpochId:
    return EpochId(number, "home", number)


def started(number: int) -> records.EpochStarted:
    return records.EpochStarted(records.Header(LOG_ID, epoch(number)), epoch(0), 0)


class Maker:
    """Writes a log by hand."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lsn = 0
        self.last = NO_HASH

    def add(self, record: records.Record, *, counts: bool = True) -> None:
        data = records.encode(record)
        self.entries.append(Entry(TP, len(self.entries), data, 0))
        if counts and not isinstance(record, records.EpochStarted):
            self.lsn = record.header.lsn
            self.last = digest(data)

    def header(self, number: int, *, lsn: int | None = None) -> records.Header:
        return records.Header(LOG_ID, epoch(number), self.lsn + 1 if lsn is None else lsn, self.last)

    def epoch(self, number: int) -> None:
        self.add(started(number))
        self.add(records.EpochOpened(self.header(number), ()))

    def commit(self, number: int, *, lsn: int | None = None, counts: bool = True) -> None:
        self.add(records.Commit(self.header(number, lsn=lsn), ()), counts=counts)


def history() -> Maker:
    """Two epochs; a late record of the first, then a hole that voids the second, then a third."""
    log = Maker()
    log.epoch(1)
    log.commit(1)
    log.epoch(2)
    log.commit(1, counts=False)
    log.commit(2)
    log.commit(2, lsn=9, counts=False)
    log.commit(2, counts=False)
    log.add(started(1), counts=False)
    log.epoch(3)
    log.commit(3)
    return log


VERDICTS = [
    "started",
    "opened",
    "accepted",
    "started",
    "opened",
    "skipped",
    "accepted",
    "voided",
    "skipped",
    "skipped",
    "started",
    "opened",
    "accepted",
]


@pytest.mark.feature("O1")
def test_the_judge_says_what_every_reader_says() -> None:
    """Late records and losers are skipped, a hole voids its epoch, the next epoch counts again."""
    judge = Judge(ChainState(LOG_ID, "home"))
    assert [judge.judge(e).verdict for e in history().entries] == VERDICTS


def test_judged_backwards_the_same_records_count() -> None:
    """From the last hash alone, what was accepted is found; only what voided an epoch is no longer told apart."""
    log = history()
    expected = [v.replace("voided", "skipped") for v in VERDICTS]
    assert [j.verdict for j in judge_backwards(log.entries, log.last)] == expected
    cut = judge_backwards(log.entries[4:], log.last)
    assert [j.verdict for j in cut] == expected[4:]


@pytest.mark.feature("U1")
def test_a_record_of_a_later_version_is_judged_by_nobody_who_does_not_know_it() -> None:
    """Forwards it may change what counts behind it; backwards it may be on the thread."""
    log = history()
    last = len(log.entries)
    log.entries.append(Entry(TP, last, LATER, 0))
    judge = Judge(ChainState(LOG_ID, "home"))
    for entry in log.entries[:-1]:
        judge.judge(entry)
    with pytest.raises(LaterRecordError, match=f"^t/0, offset {last}: a record of version 1 and kind 13"):
        judge.judge(log.entries[-1])
    with pytest.raises(LaterRecordError, match=f"^t/0, offset {last}: "):
        list(judge_backwards(log.entries, log.last))


def test_a_record_of_another_history_is_named_and_ends_the_judging() -> None:
    """A re-created topic is divergence, not a skipped record."""
    judge = Judge(ChainState(b"another log here", "home"))
    first, second = (judge.judge(e) for e in history().entries[:2])
    assert (first.verdict, second.verdict) == ("diverged", "unknown")
    assert first.why is not None
    assert "another history" in first.why
