"""What only a real broker can show: restarts, unsafe settings, silence on stderr."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from halog.adapters.kafka import conf as kafka_conf
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.tail import KafkaTail
from halog.errors import LogError, RefusedError, UnreachableError
from halog.ports import Entry, LogTail, OutOfRange, TopicPartition
from tests.contract.rigs import COME_S, KafkaRig, Outcomes, appended, collect, new_topic, offsets, poll_until, values
from tests.contract.rigs_coordinator import wait_for

SOON_S = 20.0
"""Long before COME_S, on a busy machine too."""


@pytest.mark.feature("P1", "R4")
def test_a_broker_restart_is_survived_by_session_and_tail(kafka: KafkaRig) -> None:
    """After a restart the same session appends at the next offset and the same tail goes on, without a gap."""
    log = kafka.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    tail.follow(tp, 0)
    assert appended(session, tp, b"0", b"1") == [0, 1]
    kafka.site.restart("kafka")
    assert appended(session, tp, b"2") == [2]
    assert offsets(collect(tail, 3)) == [0, 1, 2]
    assert log.bounds(tp) == (0, 3)
    session.abandon()
    tail.close()


@pytest.mark.feature("P1", "P2")
def test_appends_in_flight_at_a_kill_are_in_the_log_or_unknown(kafka: KafkaRig) -> None:
    """kill -9 of the broker under a stream: every offset told holds that very record, in order, none is missing."""
    log = kafka.log()
    tp, session, outcomes = new_topic(log), log.session(), Outcomes()
    for n in range(300):
        session.append(tp, b"%d" % n, outcomes)
        session.poll(0)
        if n == 150:
            kafka.site.kill("kafka")
    kafka.site.start_server("kafka")
    poll_until(session, lambda: len(outcomes) == 300)
    end = log.bounds(tp)[1]
    found = {e.offset: e.value for e in log.read(tp, 0, end)}
    told = [(offset, b"%d" % n) for n, (offset, _) in enumerate(outcomes) if offset is not None]
    assert all(found[offset] == value for offset, value in told)
    assert sorted(set(found.values()), key=int) == sorted(found.values(), key=int)
    assert [offset for offset, _ in told] == sorted(offset for offset, _ in told)
    session.abandon()


def lost(tail: LogTail, count: int) -> None:
    """So many entries are fetched and go nowhere, as now and then happens in librdkafka when places move."""
    found = 0
    while found < count:
        found += len(tail._consumer.consume(count - found, 5.0))  # type: ignore[attr-defined]


@pytest.mark.feature("P1", "R4")
def test_what_the_consumer_lost_is_read_again(kafka: KafkaRig) -> None:
    """Nothing more comes, though the broker has said that there is more."""
    log = kafka.log()
    tp, session, tail = new_topic(log), log.session(), KafkaTail(KafkaAccess(kafka.site.info.bootstrap), quiet_s=0.2)
    tail.follow(tp, 0)
    appended(session, tp, b"first")
    assert offsets(collect(tail, 1)) == [0]
    appended(session, tp, *[b"x"] * 50)
    lost(tail, 50)
    assert offsets(collect(tail, 50)) == list(range(1, 51))
    session.abandon()
    tail.close()


@pytest.mark.feature("P1", "R4")
def test_an_entry_behind_a_hole_is_not_delivered_before_what_is_missing(kafka: KafkaRig) -> None:
    """A reader that took it would void an epoch that is whole."""
    log = kafka.log()
    tp, session, tail = new_topic(log), log.session(), log.tail()
    tail.follow(tp, 0)
    appended(session, tp, b"first")
    assert offsets(collect(tail, 1)) == [0]
    appended(session, tp, *[b"x"] * 20)
    lost(tail, 20)
    appended(session, tp, b"behind")
    assert offsets(collect(tail, 21)) == list(range(1, 22))
    session.abandon()
    tail.close()


def test_a_second_session_is_warm(kafka: KafkaRig) -> None:
    """It was made when the first one was given away, with its half second for a producer id; and it appends."""
    log = kafka.log()
    tp = new_topic(log)
    log.session().abandon()
    wait_for(lambda: log._spare is not None)
    spare = log._spare
    session = log.session()
    assert session is spare
    assert appended(session, tp, b"x") == [0]
    wait_for(lambda: log._spare not in (None, spare))
    session.abandon()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1000000000"),
        ("retention.bytes", "1000000000"),
        ("unclean.leader.election.enable", "true"),
        ("message.timestamp.type", "CreateTime"),
        ("max.message.bytes", "1000000"),
    ],
)
def test_an_unsafe_topic_is_refused_by_the_settings_name(kafka: KafkaRig, name: str, value: str) -> None:
    """One wrong setting on an existing topic: RefusedError names the topic, the setting and what it must be."""
    log = kafka.log()
    tp = new_topic(log)
    admin = AdminClient({"bootstrap.servers": kafka.site.info.bootstrap})
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, tp.topic)])
    config = {k: v.value for f in found.values() for k, v in f.result(COME_S).items() if not v.is_default}
    other = f"{tp.topic}-bad"
    for future in admin.create_topics([NewTopic(other, 1, 1, config={**config, name: value})]).values():
        future.result(COME_S)
    with pytest.raises(RefusedError, match=name) as caught:
        log.ensure_topic(other, 1)
    assert other in str(caught.value)
    assert caught.value.evidence["found"] == value


@pytest.mark.feature("R6")
def test_a_flushed_topic_is_on_the_disk_before_it_is_acknowledged(kafka: KafkaRig) -> None:
    """Local SYNC: the topic says so; one that does not is refused by name, one that gives more than asked is fine."""
    log = kafka.log()
    topic = new_topic(log).topic
    with pytest.raises(RefusedError, match=r"flush\.messages") as caught:
        log.ensure_topic(topic, 1, flushed=True)
    assert caught.value.evidence["wanted"] == "1"
    log.ensure_topic(f"{topic}-flushed", 1, flushed=True)
    log.ensure_topic(f"{topic}-flushed", 1)
    admin = AdminClient({"bootstrap.servers": kafka.site.info.bootstrap})
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, f"{topic}-flushed")])
    assert [f.result(COME_S)["flush.messages"].value for f in found.values()] == ["1"]


def test_nobody_there_is_unreachable_in_time(kafka: KafkaRig) -> None:
    """A session on a closed port: UnreachableError names the address, within its few seconds."""
    from halog.adapters.kafka.session import KafkaSession

    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 "):
        KafkaSession(KafkaAccess("127.0.0.1:1"), ["t"])
    assert time.monotonic() - started < SOON_S


@pytest.mark.feature("P1")
def test_a_broker_that_says_nothing_to_an_administrators_request_is_an_error_of_ours(
    kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever notices first, librdkafka or who waits for it."""
    log = kafka.log()
    tp, session = new_topic(log), log.session()
    appended(session, tp, b"x")
    session.abandon()
    log.trim(tp, 0)
    monkeypatch.setattr(kafka_conf, "ADMIN_S", 0.5)
    kafka.hold(tp)
    for _ in range(5):
        with pytest.raises(LogError, match=f"{tp.topic}/0 cannot be trimmed before 0"):
            log.trim(tp, 0)
    kafka.release(tp)


_NOISY = """
import sys, time
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.log import KafkaLog
from halog.errors import UnreachableError
from halog.ports import TopicPartition
log = KafkaLog(KafkaAccess(sys.argv[1]))
tp = TopicPartition(sys.argv[2], 0)
session, tail = log.session(), log.tail()
tail.follow(tp, 0)
print("ready", flush=True)
end = time.time() + 2
while time.time() < end:
    session.append(tp, b"x", lambda offset, why: None)
    session.poll(0.05)
    tail.poll(0.05)
def writer():
    while True:  # a busy machine's coordinator takes its time after a restart
        try:
            return log.transaction("noisy")
        except UnreachableError:
            pass
old, new = writer(), writer()
try:
    old.write(TopicPartition(sys.argv[3], 0), [(b"k", b"v", {})])
except Exception as e:
    print(type(e).__name__)
session.abandon()
tail.close()
log.close()
"""


def test_librdkafka_says_nothing_on_stderr(kafka: KafkaRig) -> None:
    """A process that lives through a broker restart and a fenced writer leaves its stderr empty."""
    log = kafka.log()
    tp, keyed = new_topic(log), new_topic(log, compacted=True)
    command = [sys.executable, "-c", _NOISY, kafka.site.info.bootstrap, tp.topic, keyed.topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            kafka.site.restart("kafka")
            out, err = process.communicate(timeout=2 * COME_S)
        finally:
            process.kill()  # else it asks for ever where there is no broker
    assert err == ""
    assert out == "RefusedError\n"


def test_many_partitions_are_followed_at_once(kafka: KafkaRig) -> None:
    """24 partitions in one tail: no broker is waited for, and each delivers soon, whichever is written to."""
    log = kafka.log()
    first = new_topic(log, 24)
    session, tail = log.session(), log.tail()
    parts = [TopicPartition(first.topic, n) for n in range(24)]
    kafka.hold(first)
    for tp in parts:
        tail.follow(tp, 0)
    kafka.release(first)
    for tp in parts:
        appended(session, tp, b"x")
    assert {e.tp for e in collect(tail, 24)} == set(parts)
    session.abandon()
    tail.close()


@pytest.mark.feature("P1")
def test_a_flipped_byte_is_an_error_never_data(kafka: KafkaRig) -> None:
    """A damaged record on the broker's disk: LogError with topic and offset; nothing from there on is delivered."""
    log = kafka.log()
    tp, whole = new_topic(log), new_topic(log)
    session = log.session()
    for n in range(10):
        appended(session, tp, b"record %d" % n)
    appended(session, whole, b"fine")
    session.abandon()
    kafka.site.shut("kafka")
    (segment,) = Path(kafka.site.info.data_dir, "kafka", "data").glob(f"{tp.topic}-0/*.log")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"record 5")] ^= 0x01
    segment.write_bytes(raw)
    kafka.site.start_server("kafka")
    tail = log.tail()
    tail.follow(tp, 0)
    found: list[Entry | OutOfRange] = []
    with pytest.raises(LogError, match=f"{tp.topic}/0.*offset 5") as caught:
        while True:
            found.extend(tail.poll(5))
    assert offsets(found) == [0, 1, 2, 3, 4]
    assert caught.value.evidence == {"topic": tp.topic, "partition": 0, "offset": 5}
    tail.follow(whole, 0)
    assert values(collect(tail, 1)) == [b"fine"]
    with pytest.raises(LogError):
        list(log.read(tp, 0, 10))
    tail.close()
