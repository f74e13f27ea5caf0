"""Appends that leave together ask for two reports; what these may and may not prove. librdkafka is replaced: nobody can
be made to write between two records of one request, nor a report be lost, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.session import KafkaSession
from halog.ports import TopicPartition

pytestmark = pytest.mark.feature("R1", "R5")
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
Report = Callable[[Any, Any], None]


class Message:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


class Wire:
    """Takes what is produced, and reports what a test says."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.sent: list[tuple[int, bytes, Report | None]] = []
        self.due: list[tuple[Report, Any, Message]] = []
        self.full_at = 1 << 30
        WIRES.append(self)

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=range(8), error=None)})

    def produce(self, topic: str, *, value: bytes, partition: int, on_delivery: Report) -> None:
        self.sent.append((partition, value, on_delivery))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *, partition: int) -> int:
        for n, m in enumerate(messages):
            if n >= self.full_at:
                m["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            else:
                self.sent.append((partition, m["value"], m.get("callback")))
        return min(len(messages), self.full_at)

    def report(self, index: int, offset: int | None, error: KafkaError | None = None) -> None:
        callback = self.sent[index][2]
        assert callback is not None
        self.due.append((callback, error, Message(offset)))

    def poll(self, timeout: float) -> int:
        due = self.due
        self.due = []
        for callback, error, message in due:
            callback(error, message)
        return len(due)

    def purge(self, **how: bool) -> None: ...


WIRES: list[Wire] = []


class Told(list[tuple[str, int | None, str | None]]):
    def of(self, name: str) -> Callable[[int | None, str | None], None]:
        return lambda offset, why: self.append((name, offset, why))

    @property
    def offsets(self) -> list[tuple[str, int | None]]:
        return [(name, offset) for name, offset, _ in self]


@pytest.fixture
def wire() -> Wire:
    WIRES.clear()
    return Wire({})


def begun(told: Told, *names: str, tp: TopicPartition = TP) -> tuple[KafkaSession, Wire]:
    """A session with `lone` under way at offset 0, then `names` sent as one run behind it."""
    session = KafkaSession(KafkaAccess("nowhere:1"), ["t"], make=Wire)
    wire = WIRES[-1]
    session.append(TP, b"lone", told.of("lone"))
    for name in names:
        session.append(tp, name.encode(), told.of(name))
    wire.report(0, 0)
    session.poll(0)
    assert told.offsets == [("lone", 0)]
    told.clear()
    return session, wire


def test_the_first_and_the_last_of_a_run_answer_for_all(wire: Wire) -> None:
    told = Told()
    session, wire = begun(told, *"abcd")
    assert [(v, r is not None) for _, v, r in wire.sent[1:]] == [
        (b"a", True),
        (b"b", False),
        (b"c", False),
        (b"d", True),
    ]
    wire.report(1, 7)
    assert session.poll(0) == 0
    assert told == []
    wire.report(4, 10)
    assert session.poll(0) == 4
    assert told.offsets == [("a", 7), ("b", 8), ("c", 9), ("d", 10)]
    assert session.failed is None


def test_partitions_are_runs_of_their_own(wire: Wire) -> None:
    told = Told()
    session = KafkaSession(KafkaAccess("nowhere:1"), ["t"], make=Wire)
    wire = WIRES[-1]
    session.append(TP, b"lone", told.of("lone"))
    for name, tp in (("a", TP), ("x", OTHER), ("b", TP), ("y", OTHER)):
        session.append(tp, name.encode(), told.of(name))
    wire.report(0, 0)
    session.poll(0)
    assert [(p, v) for p, v, _ in wire.sent[1:]] == [(0, b"a"), (0, b"b"), (1, b"x"), (1, b"y")]
    for index, offset in ((3, 50), (4, 51), (1, 1), (2, 2)):
        wire.report(index, offset)
    assert session.poll(0) == 4
    assert told.offsets == [("lone", 0), ("x", 50), ("y", 51), ("a", 1), ("b", 2)]


def test_somebody_elses_record_inside_a_run_ends_the_session(wire: Wire) -> None:
    """Nobody can say which of the offsets are whose: all are unknown, none is guessed."""
    told = Told()
    session, wire = begun(told, *"abc")
    wire.report(1, 7)
    wire.report(3, 10)
    assert session.poll(0) == 3
    assert told.offsets == [("a", None), ("b", None), ("c", None)]
    assert session.failed == "3 appends lie between the offsets 7 and 10: others wrote in between"


@pytest.mark.parametrize(
    ("first", "last"), [((7, None), (None, "error")), ((None, "error"), (9, None)), ((7, None), (-1, None))]
)
def test_a_bad_report_of_either_end_ends_the_session(wire: Wire, first: Any, last: Any) -> None:
    told = Told()
    session, wire = begun(told, *"abc")
    for index, (offset, error) in ((1, first), (3, last)):
        wire.report(index, offset, KafkaError(KafkaError._MSG_TIMED_OUT) if error else None)
    assert session.poll(0) == 3
    assert told.offsets == [("a", None), ("b", None), ("c", None)]
    assert session.failed


def test_a_report_that_comes_after_the_session_was_abandoned_is_nobodys(wire: Wire) -> None:
    told = Told()
    session, wire = begun(told, *"ab")
    session.append(TP, b"gathered", told.of("gathered"))
    session.abandon()
    assert told.offsets == [("a", None), ("b", None), ("gathered", None)]
    wire.report(1, 7)
    wire.report(2, 8)
    wire.poll(0)
    assert len(told) == 3


def test_an_interrupted_answer_leaves_nobody_without_one(wire: Wire) -> None:
    """Ctrl-C reaches the thread that polls: the rest of the run is unknown, as is everything the session holds."""
    told = Told()
    session, wire = begun(told)

    def interrupted(offset: int | None, why: str | None) -> None:
        told.append(("b", offset, why))
        raise KeyboardInterrupt

    session.append(TP, b"x", told.of("x"))
    for name, done in (("a", told.of("a")), ("b", interrupted), ("c", told.of("c"))):
        session.append(TP, name.encode(), done)
    wire.report(1, 1)
    session.poll(0)
    wire.report(2, 2)
    wire.report(4, 4)
    with pytest.raises(KeyboardInterrupt):
        session.poll(0)
    session.poll(0)
    assert told.offsets == [("x", 1), ("a", 2), ("b", 3), ("c", None)]
    assert session.failed == "interrupted"


def test_a_queue_that_takes_only_a_part_of_a_run_ends_the_session(wire: Wire) -> None:
    told = Told()
    session = KafkaSession(KafkaAccess("nowhere:1"), ["t"], make=Wire)
    wire = WIRES[-1]
    session.append(TP, b"lone", told.of("lone"))
    for name in "abc":
        session.append(TP, name.encode(), told.of(name))
    wire.full_at = 2
    wire.report(0, 0)
    assert session.poll(0) == 4
    assert told.offsets == [("lone", 0), ("a", None), ("b", None), ("c", None)]
    assert "QUEUE_FULL" in str(session.failed)
