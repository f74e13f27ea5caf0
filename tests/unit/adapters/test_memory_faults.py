"""The faults the memory adapters can show: what a test of an application or of the runtime leans on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryStore, MemoryTree
from halog.errors import DeadlineError, LogError, UnreachableError
from halog.ports import OutOfRange, TopicPartition, UnknownResult, Versioned

TP = TopicPartition("t", 0)


class Outcomes(list[tuple[int | None, str | None]]):
    """Deliveries in the order they came."""

    def __call__(self, offset: int | None, why: str | None) -> None:
        self.append((offset, why))


def log_with_topic() -> MemoryLog:
    log = MemoryLog(MemoryBroker())
    log.ensure_topic("t", 1)
    return log


def read_values(log: MemoryLog) -> list[bytes]:
    return [e.value for e in log.read(TP, *log.bounds(TP))]


def test_a_full_set_starts_in_a_few_milliseconds() -> None:
    """Broker, tree, and three nodes' adapters together: applications' tests pay under 5 ms a node for them. Once, of so
    many times that a busy machine has as much to spare for it."""
    assert any(_start_three() < 0.015 for _ in range(60))


def _start_three() -> float:
    started = time.perf_counter()
    broker, tree = MemoryBroker(), MemoryTree()
    closing: list[MemoryCoordinator | MemoryChannel | MemoryStore] = []
    for _ in range(3):
        log = MemoryLog(broker)
        log.ensure_topic("t", 12)
        log.session()
        log.tail().follow(TP, 0)
        coordinator = MemoryCoordinator(tree)
        coordinator.connect(lambda state: None)
        channel = MemoryChannel()
        channel.listen("127.0.0.1:0", lambda peer, frame: None, lambda peer: None)
        closing += [coordinator, channel, MemoryStore()]
    took = time.perf_counter() - started
    for each in closing:
        each.close()
    return took


def test_a_lost_reply_fails_the_session_but_the_append_landed() -> None:
    """(None, why) for the append whose reply was lost and for all behind it; the log has the first."""
    log, outcomes = log_with_topic(), Outcomes()
    session = log.session()
    log.broker.lose_reply(TP)
    session.append(TP, b"1", outcomes)
    session.append(TP, b"2", outcomes)
    while session.poll(0):
        pass
    assert [offset for offset, _ in outcomes] == [None, None]
    assert session.failed == "the reply was lost"
    assert read_values(log) == [b"1"]


def test_dropped_appends_never_land() -> None:
    """What was held and then dropped is unknown to its sender and absent from the log."""
    log, outcomes = log_with_topic(), Outcomes()
    session = log.session()
    log.broker.hold(TP)
    session.append(TP, b"1", outcomes)
    log.broker.drop_held(TP)
    session.poll(0)
    assert [offset for offset, _ in outcomes] == [None]
    assert read_values(log) == []


def test_a_foreign_append_overtakes_held_ones() -> None:
    """A foreign producer's record lands first; the released one gets the offset behind it, and its sender sees that."""
    log, outcomes = log_with_topic(), Outcomes()
    session = log.session()
    log.broker.hold(TP)
    session.append(TP, b"held", outcomes)
    assert log.broker.overtake(TP, b"foreign") == 0
    log.broker.release(TP)
    session.poll(0)
    assert outcomes == [(1, None)]
    assert read_values(log) == [b"foreign", b"held"]


def test_a_truncated_tail_regresses_the_log() -> None:
    """A broker that lost its tail has its end moved back: a reader behind the new end is told out of range."""
    log, outcomes = log_with_topic(), Outcomes()
    session, tail = log.session(), log.tail()
    for n in range(10):
        session.append(TP, b"%d" % n, outcomes)
    tail.follow(TP, 0)
    assert len(tail.poll(0)) == 10
    log.broker.truncate(TP, 4)
    assert list(tail.poll(0)) == [OutOfRange(TP, 10, 0, 4)]
    session.append(TP, b"new", outcomes)
    while session.poll(0):
        pass
    assert outcomes[-1] == (4, None)


# --- single operations that fail ---


def session_on(tree: MemoryTree) -> MemoryCoordinator:
    coordinator = MemoryCoordinator(tree)
    coordinator.connect(lambda state: None)
    return coordinator


def test_an_operation_on_a_path_fails_before_or_behind_what_it_does() -> None:
    """At all sessions of a tree, or at one; other paths, other operations and later ones are as ever."""
    tree = MemoryTree()
    one, other = session_on(tree), session_on(tree)
    one.create("tables/a", b"1")
    tree.faults.fail("set", UnknownResult("no answer"), "tables/", lands=True, times=1)
    with pytest.raises(UnknownResult):
        one.set("tables/a", b"2", 0)
    assert other.get("tables/a") == Versioned(b"2", 1)
    with one.faults.fail("set", UnreachableError("away"), "tables/a") as fault:
        with pytest.raises(UnreachableError, match="away"):
            one.set("tables/a", b"3", 1)
        assert other.set("tables/a", b"4", 1) == 2
        assert one.create("tables/b", b"")
        assert one.set("tables/b", b"5", 0) == 1
    assert one.set("tables/a", b"6", 2) == 3
    assert [a.about for a in fault.met] == ["tables/a"]
    one.close(), other.close()


def test_what_met_a_fault_may_land_later_and_the_newest_fault_is_met_first() -> None:
    tree, seen = MemoryTree(), list[str]()
    one = session_on(tree)
    one.create("a", b"1")
    tree.faults.add("set", lambda attempt: seen.append("older") or attempt.land())
    late = tree.faults.fail("set", DeadlineError("no answer"), lambda path: path == "a", times=1)
    with pytest.raises(DeadlineError):
        one.set("a", b"2", 0)
    assert seen == []
    assert late.met[0].land() == 1
    assert (seen, one.get("a")) == (["older"], Versioned(b"2", 1))
    one.close()


def test_a_log_fails_by_topic_and_partition() -> None:
    log, outcomes = log_with_topic(), Outcomes()
    log.ensure_topic("u", 1)
    session = log.session()
    log.broker.faults.fail("append", LogError("refused"), "t", times=1)
    session.append(TP, b"1", outcomes)
    assert session.poll(0) == 1
    assert (outcomes, session.failed, read_values(log)) == ([(None, "refused")], "refused", [])
    with log.broker.faults.fail("bounds", LogError("busy"), lambda tp: tp == TP):
        with pytest.raises(LogError, match="busy"):
            log.bounds(TP)
        assert log.bounds(TopicPartition("u", 0)) == (0, 0)
    assert log.bounds(TP) == (0, 0)


def test_a_request_is_lost_on_its_way_there_or_back_or_is_answered_by_the_test() -> None:
    asked, server, channel = list[bytes](), MemoryChannel(), MemoryChannel()

    def answers(peer: Any, frame: bytes) -> None:
        asked.append(frame)
        peer.send(b"yes")

    address = server.listen("127.0.0.1:0", answers, lambda peer: None)
    channel.faults.fail("request", DeadlineError("lost"), lambda frame: frame == b"there", times=1)
    channel.faults.fail("request", DeadlineError("lost"), lambda frame: frame == b"back", lands=True, times=1)
    channel.faults.add("request", lambda attempt: b"no", lambda frame: frame == b"mine")
    for lost in (b"there", b"back"):
        with pytest.raises(DeadlineError, match="lost"):
            channel.request(address, lost, 5.0)
    assert asked == [b"back"]
    assert channel.request(address, b"mine", 5.0) == b"no"
    assert channel.request(address, b"there", 5.0) == b"yes"
    assert asked == [b"back", b"there"]
    channel.close(), server.close()
