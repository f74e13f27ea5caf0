"""The Log port's journal, and the topic it writes: for people, so it may forget, and must not hold up anybody."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from halog.adapters.kafka import conf as kafka_conf
from halog.core.commit.discards import RECORD_BYTES
from halog.errors import RefusedError
from halog.ports import JournalResult
from tests.contract.rigs import COME_S, KafkaRig, LogRig, new_topic

pytestmark = pytest.mark.feature("O2")
SOON_S = 20.0
"""Long before COME_S, on a busy machine too."""


@pytest.fixture(autouse=True)
def attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt lasts as long as a machine may stand still; a test that waits for its end says how long."""
    monkeypatch.setattr(kafka_conf, "JOURNAL_S", COME_S)


def test_what_is_noted_is_read_in_order(logs: LogRig) -> None:
    """A burst in one go, then more: all of it is acknowledged, and there once."""
    log = logs.log()
    tp = new_topic(log)
    journal = log.journal(tp)
    first, more = [b"%d" % n for n in range(300)], [b"last"]
    assert journal.note(first) == JournalResult(0)
    assert journal.note(more) == JournalResult(0)
    assert journal.note([]) == JournalResult(0)
    assert [e.value for e in log.read(tp, *log.bounds(tp))] == first + more
    journal.close()


def test_a_log_that_is_away_gives_everything_back_in_time(logs: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known to be written: all of it comes back; afterwards the journal still works."""
    monkeypatch.setattr(kafka_conf, "JOURNAL_S", 3.0)
    log = logs.log()
    tp = new_topic(log)
    journal = log.journal(tp)

    def comes_through(value: bytes) -> None:
        until = time.monotonic() + COME_S
        while journal.note([value]).left:
            assert time.monotonic() < until, "the journal did not come back"

    comes_through(b"before")
    logs.hold(tp)
    began = time.monotonic()
    assert journal.note([b"1", b"2", b"3"]) == JournalResult(3)
    assert time.monotonic() - began < SOON_S
    logs.release(tp)
    comes_through(b"after")
    found = [e.value for e in log.read(tp, *log.bounds(tp))]
    assert found[0] == b"before"
    assert found[-1] == b"after"
    journal.close()


@pytest.mark.feature("Q4", "X9")
def test_the_largest_event_is_taken_and_read(logs: LogRig) -> None:
    """One that carries a record (`halog.core.commit.discards.RECORD_BYTES`, in base64), among small ones."""
    log = logs.log()
    tp = new_topic(log)
    journal = log.journal(tp)
    values = [b"1", bytes(-(-RECORD_BYTES // 3) * 4 + 65_536), b"2"]
    assert journal.note(values) == JournalResult(0)
    assert [e.value for e in log.read(tp, *log.bounds(tp))] == values
    journal.close()


@pytest.mark.feature("Q4")
def test_a_value_no_log_takes_is_passed_over(logs: LogRig) -> None:
    """No repetition mends it: those before and behind it are written, once and in order."""
    log = logs.log()
    tp = new_topic(log)
    journal = log.journal(tp)
    large = bytes(kafka_conf.MAX_BYTES + 1)
    assert journal.note([b"1", large, b"2", large]) == JournalResult(0, 2)
    assert journal.note([large]) == JournalResult(0, 1)
    assert journal.note([b"3"]) == JournalResult(0)
    assert [e.value for e in log.read(tp, *log.bounds(tp))] == [b"1", b"2", b"3"]
    journal.close()


@pytest.mark.feature("Q4")
def test_a_value_larger_than_an_operators_topic_takes_is_passed_over(kafka: KafkaRig) -> None:
    """The broker says so, of the whole batch: it is alone in its own."""
    log = kafka.log()
    tp = new_topic(log)
    admin = AdminClient({"bootstrap.servers": kafka.site.info.bootstrap})
    to_set = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    limit = ConfigResource(ResourceType.TOPIC, tp.topic, incremental_configs=[to_set])
    next(iter(admin.incremental_alter_configs([limit]).values())).result(COME_S)
    journal = log.journal(tp)
    few = [b"%d" % n for n in range(20)]
    assert journal.note([*few, bytes(200_000), *few]) == JournalResult(0, 1)
    assert [e.value for e in log.read(tp, *log.bounds(tp))] == few + few
    journal.close()


def test_a_topic_for_people_keeps_for_as_long_as_it_is_told_and_any_other_time_is_accepted(kafka: KafkaRig) -> None:
    """Made with its retention; an operator's own is his business, a compacted topic is not."""
    log = kafka.log()
    topic = f"{new_topic(log).topic}-notes"
    log.ensure_topic(topic, 1, keep_ms=86_400_000)
    assert retention(kafka, topic) == "86400000"
    log.ensure_topic(topic, 1, keep_ms=60_000)
    assert retention(kafka, topic) == "86400000"
    with pytest.raises(RefusedError, match=r"retention\.ms"):
        log.ensure_topic(topic, 1)
    compacted = f"{topic}-compacted"
    admin = AdminClient({"bootstrap.servers": kafka.site.info.bootstrap})
    for future in admin.create_topics([NewTopic(compacted, 1, 1, config={"cleanup.policy": "compact"})]).values():
        future.result(COME_S)
    with pytest.raises(RefusedError, match=r"cleanup\.policy|message\.timestamp"):
        log.ensure_topic(compacted, 1, keep_ms=60_000)


def retention(kafka: KafkaRig, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.site.info.bootstrap})
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    return str(next(iter(found.values())).result(COME_S)["retention.ms"].value)


def test_closing_ends_a_write_that_hangs(kafka: KafkaRig) -> None:
    """A node that leaves does not wait for a broker that is away, nor for the end of an attempt."""
    log = kafka.log()
    tp = new_topic(log)
    journal = log.journal(tp)
    assert journal.note([b"before"]) == JournalResult(0)
    kafka.hold(tp)
    never = b"never" * 4_000  # more than whatever else is under way
    writing = threading.Thread(target=lambda: journal.note([never]), daemon=True)
    writing.start()
    kafka.sent(len(never))
    began = time.monotonic()
    journal.close()
    writing.join(SOON_S)
    assert not writing.is_alive()
    assert time.monotonic() - began < SOON_S
    kafka.release(tp)
