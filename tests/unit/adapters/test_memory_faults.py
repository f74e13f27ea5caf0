"""The faults the memory adapters can show: what a test of an application or of the runtime leans on."""

from __future__ import annotations

import time

from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryStore, MemoryTree
from halog.ports import OutOfRange, TopicPartition

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
