"""A node's audit is written without ever waiting; floods are bounded, and gaps are told (O4, Q5)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence

import pytest

from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.audit import DONE, FAILED, LOST, REFUSED, TEXT_CHARS, AuditEntry
from halog.errors import RecordFormatError
from halog.events import AUDIT_LOST, Event
from halog.ports import JournalResult, TopicPartition
from halog.runtime.events import audit_trail
from halog.runtime.events.audit_trail import OTHERS, AuditTrail
from halog.runtime.events.history import History
from halog.testing.cluster import wait_until

EVENTS = TopicPartition("fleet.events", 0)


class Journal:
    """Takes entries when it is not away."""

    def __init__(self) -> None:
        self.taken: list[AuditEntry] = []
        self.away = threading.Event()
        self.attempts = 0

    def note(self, values: Sequence[bytes]) -> JournalResult:
        self.attempts += 1
        if self.away.is_set():
            return JournalResult(len(values))
        self.taken += [AuditEntry.from_bytes(v) for v in values]
        return JournalResult(0)

    def close(self) -> None: ...


class Time:
    """Goes on when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def history(broker: MemoryBroker) -> Iterator[History]:
    log = MemoryLog(broker)
    log.ensure_topic(EVENTS.topic, 1)
    made = History("fleet", "A", 7, lambda: log.journal(EVENTS), gather_s=0.0)
    made.begin()
    yield made
    made.close()


@pytest.fixture
def moment() -> Time:
    return Time()


@pytest.fixture
def trail(history: History, journal: Journal, moment: Time) -> Iterator[AuditTrail]:
    made = AuditTrail(history, lambda: journal, again_s=0.01, clock=moment)
    yield made
    made.close()


def refuse(trail: AuditTrail, principal: str, command: str = "HandOver", outcome: str = REFUSED) -> None:
    trail.note(principal, command, outcome, proven=True, reason="its role")


@pytest.mark.feature("O4", "Q5")
def test_a_request_is_written_with_who_what_and_where(trail: AuditTrail, journal: Journal) -> None:
    told = {"partition": "p-0", "to": "B"}
    trail.note("user olga", "HandOver", DONE, proven=True, role="operator", address="10.0.0.9:1", arguments=told)
    wait_until(lambda: bool(journal.taken), "it is written")
    (entry,) = journal.taken
    assert (entry.principal, entry.role, entry.proven, entry.address) == ("user olga", "operator", True, "10.0.0.9:1")
    assert (entry.command, entry.arguments, entry.outcome, entry.by) == ("HandOver", told, DONE, "A")
    assert (entry.cluster, entry.kind, entry.count) == ("fleet", "request", 1)


@pytest.mark.feature("O4", "Q5")
def test_a_flood_of_refusals_is_two_entries_a_minute(trail: AuditTrail, journal: Journal, moment: Time) -> None:
    """The first one at once, the others as one with their count; what others ask is apart, and what is done is each
    written."""
    for _ in range(1_000):
        refuse(trail, "user vera")
    refuse(trail, "user carl")
    for _ in range(3):
        trail.note("user olga", "HandOver", DONE, proven=True)
    wait_until(lambda: len(journal.taken) == 5, "the first ones are written")
    moment.now = audit_trail.GATHERED_S
    refuse(trail, "user vera", outcome=FAILED)  # whatever comes next wakes the thread
    wait_until(lambda: len(journal.taken) == 7, "the rest is written")
    counts = sorted((e.principal, e.outcome, e.count) for e in journal.taken)
    assert counts == [
        ("user carl", REFUSED, 1),
        *[("user olga", DONE, 1)] * 3,
        ("user vera", FAILED, 1),
        ("user vera", REFUSED, 1),
        ("user vera", REFUSED, 999),
    ]
    assert len({e.id for e in journal.taken}) == 7


@pytest.mark.feature("O4", "Q5")
def test_strangers_by_a_thousand_names_are_bounded(trail: AuditTrail, journal: Journal) -> None:
    for n in range(5_000):
        refuse(trail, f"stranger{n}", "Hello")
    trail.close()
    assert len(journal.taken) == audit_trail.MOST_GATHERED + 2
    assert (journal.taken[-1].principal, journal.taken[-1].proven) == (OTHERS, False)
    assert sum(e.count for e in journal.taken) == 5_000


@pytest.mark.feature("O4", "Q4")
def test_what_is_lost_while_the_log_is_away_is_counted_and_told(
    trail: AuditTrail, journal: Journal, broker: MemoryBroker
) -> None:
    journal.away.set()
    for _ in range(audit_trail.MAX_WAITING + 10):
        trail.note("user olga", "HandOver", DONE, proven=True)
    assert trail.dropped == 10
    assert not journal.taken
    journal.away.clear()
    wait_until(lambda: len(journal.taken) == audit_trail.MAX_WAITING + 1, "what was kept is written")
    assert (journal.taken[-1].outcome, journal.taken[-1].count) == (LOST, 10)
    log = MemoryLog(broker)

    def told() -> list[Event]:
        return [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]

    wait_until(lambda: bool(told()), "the history is told")
    assert [(e.code, e.more) for e in told()] == [(AUDIT_LOST.code, {"count": 10})]


@pytest.mark.feature("O4")
def test_nobody_waits_for_a_log_that_is_away(history: History) -> None:
    """Also not whoever closes, for longer than it says; and no thread is there where nothing was noted."""
    closing = threading.Event()

    class Hanging(Journal):
        def note(self, values: Sequence[bytes]) -> JournalResult:
            closing.wait(10)
            return JournalResult(len(values))

        def close(self) -> None:
            closing.set()

    idle = AuditTrail(history, Hanging)
    assert idle._thread is None
    idle.close()
    trail = AuditTrail(history, Hanging)
    refuse(trail, "user vera")
    trail.close(timeout_s=0.05)
    assert closing.is_set()


@pytest.mark.feature("O4", "U1")
def test_an_entry_of_a_later_version_is_read_and_what_is_none_is_refused(trail: AuditTrail, journal: Journal) -> None:
    refuse(trail, "user vera")
    wait_until(lambda: bool(journal.taken), "it is written")
    said = {**json.loads(journal.taken[0].to_bytes()), "outcome": "put off", "hue": 7}
    assert AuditEntry.from_bytes(json.dumps(said).encode()).outcome == "put off"
    for data in (b"", b"\xff", b"[]", b'{"id": "x"}'):
        with pytest.raises(RecordFormatError, match="cannot be read"):
            AuditEntry.from_bytes(data)


@pytest.mark.feature("O4", "Q5")
def test_what_a_stranger_says_is_cut_and_can_be_written(trail: AuditTrail, journal: Journal) -> None:
    trail.note("x" * 10_000 + "\udc80", "Hello", REFUSED, proven=False, reason="\udc80" * 10_000)
    wait_until(lambda: bool(journal.taken), "it is written")
    assert (len(journal.taken[0].principal), len(journal.taken[0].reason)) == (TEXT_CHARS, TEXT_CHARS)
