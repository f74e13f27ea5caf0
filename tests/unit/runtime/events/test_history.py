"""How a node tells what happened: to its log at once, to the shared history without ever waiting (O2)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker, MemoryLog
from halog.core.roles import Role
from halog.core.table.table import Group, PartitionTable
from halog.errors import UnreachableError
from halog.events import DISCARDED, INTRUDER, JOINED, KINDS, LOST, ROLE, TEXT_CHARS, TOO_FEW, Event
from halog.ports import JournalResult, TopicPartition
from halog.runtime.events import history as history_module, reporter as telling_module
from halog.runtime.events.history import History
from halog.runtime.events.reporter import EventReporter

TP = TopicPartition("fleet.events", 0)


class Journal:
    """Takes what it is told to take."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.away = threading.Event()
        self.keeps = 10_000
        self.largest = 10_000
        self.error: Exception | None = None
        self.attempts = 0
        self.closed = False
        self.blocked = threading.Event()
        self.blocked.set()

    def note(self, values: Sequence[bytes]) -> JournalResult:
        self.attempts += 1
        self.blocked.wait()
        if self.error is not None:
            raise self.error
        if self.away.is_set():
            return JournalResult(len(values))
        kept = values[: self.keeps]
        fit = [v for v in kept if len(v) <= self.largest]
        self.taken += [Event.from_bytes(v) for v in fit]
        return JournalResult(len(values) - len(kept), len(kept) - len(fit))

    def close(self) -> None:
        self.closed = True
        self.blocked.set()


@pytest.fixture
def journal() -> Journal:
    return Journal()


def telling(journal: Journal, **how: Any) -> History:
    return History("fleet", "A", 7, lambda: journal, gather_s=0.0, again_s=0.01, **how)


@pytest.fixture
def history(journal: Journal) -> Iterator[History]:
    made = telling(journal)
    yield made
    journal.blocked.set()
    made.close()


def wait(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.002)


@pytest.mark.feature("Q4", "O2")
def test_an_event_reaches_the_history_with_who_when_and_where(journal: Journal, history: History) -> None:
    """Told before the topic is there or behind: each once, in order, with a unique id."""
    before = time.time_ns() // 1_000_000
    history.tell(JOINED, "it was started")
    history.begin()
    history.tell(ROLE, "B left", more={"role": "active"}, partition="p-0", epoch=4, lsn=9)
    wait(lambda: len(journal.taken) == 2)
    first, second = journal.taken
    assert (first.code, first.node, first.by, first.partition) == ("HALOG-1003", "A", "A", None)
    assert (second.cluster, second.partition, second.epoch, second.lsn) == ("fleet", "p-0", 4, 9)
    assert second.text == "partition p-0: A is active: B left"
    assert first.id != second.id
    assert before <= first.time_ms <= second.time_ms <= time.time_ns() // 1_000_000


@pytest.mark.feature("Q4", "O2")
def test_events_are_logged_at_their_severity(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """The log file has the same code and text, whether or not the history can be written."""
    with caplog.at_level(logging.INFO, logger="halog.events"):
        history.tell(JOINED, "it was started")
        history.tell(INTRUDER, "it is unknown", node="X")
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("INFO", "HALOG-1003 node A joined: it was started"),
        ("WARNING", "HALOG-1008 X was refused: it is unknown"),
    ]


@pytest.mark.feature("Q4", "O2")
def test_what_others_tell_has_their_id_or_is_logged_only(journal: Journal, history: History, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "halog.events")
    history.begin()
    history.tell(JOINED, "one", logged=True)
    history.tell(JOINED, "two", once="p/HALOG-1011/99"), history.tell(JOINED, "three")
    wait(lambda: len(journal.taken) == 2)
    assert [(e.cause, e.id) for e in journal.taken] == [("two", "p/HALOG-1011/99"), ("three", "A/7/3")]
    assert [r.message.partition(": ")[2] for r in caplog.records] == ["one", "two", "three"]


@pytest.mark.feature("O2")
def test_telling_never_waits_for_a_log_that_is_away(journal: Journal, history: History) -> None:
    """The writing thread hangs in the log; whoever tells goes on at once, and memory stays bounded."""
    journal.blocked.clear()
    history.begin()
    history.tell(JOINED, "first")
    wait(lambda: journal.attempts == 1)
    began = time.monotonic()
    for n in range(history_module.MAX_WAITING + 50):
        history.tell(JOINED, str(n))
    assert time.monotonic() - began < 20.0
    assert history.dropped == 51, "what the thread has in hand counts"
    journal.blocked.set()
    wait(lambda: journal.taken and journal.taken[-1].code == LOST.code)
    assert [e.cause for e in journal.taken[:3]] == ["first", "0", "1"]
    assert len(journal.taken) == history_module.MAX_WAITING + 1
    assert journal.taken[-1].more == {"count": 51}


@pytest.mark.feature("O2")
def test_the_queue_stays_bounded_through_attempt_after_attempt(journal: Journal, history: History) -> None:
    """What a log that is away gives back, and what was told meanwhile, are one bound together."""
    journal.away.set()
    history.begin()
    for turn in range(5):
        for n in range(history_module.MAX_WAITING // 2):
            history.tell(JOINED, str(n))
        so_far = journal.attempts
        wait(lambda so_far=so_far: journal.attempts >= so_far + 2)  # type: ignore[misc]
        with history._changed:
            assert len(history._waiting) + history._under_way == min(turn + 1, 2) * history_module.MAX_WAITING // 2
    assert history.dropped == 3 * history_module.MAX_WAITING // 2


@pytest.mark.feature("Q4", "O2")
def test_an_event_no_log_takes_is_dropped_and_told_and_holds_up_none_behind_it(
    journal: Journal, history: History
) -> None:
    """No repetition makes it smaller."""
    journal.largest = 600
    history.tell(JOINED, "before")
    history.tell(JOINED, "x" * 900)
    history.tell(JOINED, "behind")
    history.begin()
    wait(lambda: len(journal.taken) == 3)
    assert [e.cause for e in journal.taken[:2]] == ["before", "behind"]
    assert (journal.taken[2].code, journal.taken[2].more) == (LOST.code, {"count": 1})
    assert history.dropped == 1


@pytest.mark.feature("Q4", "O2", "X9")
def test_records_have_room_up_to_a_bound_and_beyond_it_events_go_without_them(journal: Journal) -> None:
    """Never is an event lost for what it carries; once the log has taken what waited, there is room again."""
    history = telling(journal, room=8_000)
    for _ in range(3):
        told_with_a_record(history)
    journal.away.set()
    history.begin()
    wait(lambda: journal.attempts >= 2)
    told_with_a_record(history)  # given back by the log, they still wait
    journal.away.clear()
    wait(lambda: len(journal.taken) == 4)
    wait(lambda: history._bytes == 0)
    told_with_a_record(history)
    wait(lambda: len(journal.taken) == 5)
    assert ["record" in e.more["transactions"][0] for e in journal.taken] == [True, False, False, False, True]
    assert history.dropped == 0


def told_with_a_record(history: History) -> None:
    item = {"tx": "00", "lsn": 1, "bytes": 3_000, "record": bytes(3_000)}
    history.tell(DISCARDED, "fenced", more={"count": 1, "of_epoch": 1, "transactions": [item]})


@pytest.mark.feature("Q4", "O2", "X9")
def test_an_event_no_log_takes_with_its_records_is_written_without_them(journal: Journal, history: History) -> None:
    """An operator may have given the topic less than halog did; what else waits stays in order, and nothing is lost."""
    journal.largest = 2_000
    history.tell(JOINED, "before")
    told_with_a_record(history)
    told_with_a_record(history)
    history.tell(JOINED, "behind")
    history.tell(JOINED, "x" * 1_000)  # twice in it
    history.tell(JOINED, "last")
    history.begin()
    wait(lambda: len(journal.taken) == 6)
    assert [e.cause for e in journal.taken[:5]] == ["before", "fenced", "fenced", "behind", "last"]
    assert journal.taken[1].more["transactions"] == [{"tx": "00", "lsn": 1, "bytes": 3_000}]
    assert (journal.taken[5].code, journal.taken[5].more) == (LOST.code, {"count": 1})


@pytest.mark.feature("Q4", "O2", "X9")
def test_a_log_that_goes_away_between_two_runs_gets_the_rest_later(journal: Journal, history: History) -> None:
    """What it took is not written again, and the order stays."""
    takes = iter([2, 0, 1, 0])
    note = journal.note

    def noted(values: Sequence[bytes]) -> JournalResult:
        journal.keeps = next(takes, 10_000)
        return note(values)

    journal.note = noted  # type: ignore[method-assign]
    for cause in ("1", "2"):
        history.tell(JOINED, cause)
    told_with_a_record(history)
    for cause in ("3", "4"):
        history.tell(JOINED, cause)
    history.begin()
    wait(lambda: len(journal.taken) == 5)
    assert [e.cause for e in journal.taken] == ["1", "2", "fenced", "3", "4"]
    assert history.dropped == 0


@pytest.mark.feature("Q4", "O2", "Q5")
def test_whatever_strangers_call_themselves_the_history_goes_on(journal: Journal, history: History) -> None:
    """A name of a megabyte, and one that no encoder takes (JSON lets lone surrogates in)."""
    history.tell(INTRUDER, "it is unknown: \udcff", node="X" * 1_000_000, more={"said": ["\ud800", {"\udfff": 1}]})
    history.tell(JOINED, "behind")
    history.begin()
    wait(lambda: len(journal.taken) == 2)
    first, second = journal.taken
    assert (first.cause, len(first.node), second.cause) == ("it is unknown: ?", TEXT_CHARS, "behind")
    assert first.more == {"said": ["?", {"?": 1}]}


@pytest.mark.feature("O2")
def test_what_a_log_did_not_take_is_written_again_in_order(journal: Journal, history: History) -> None:
    """Away, failing, taking the first few only: in the end everything is there once, and the outage was told once."""
    journal.away.set()
    history.begin()
    for n in range(5):
        history.tell(JOINED, str(n))
    wait(lambda: journal.attempts >= 2)
    journal.error = UnreachableError("nobody answers")
    journal.away.clear()
    so_far = journal.attempts
    wait(lambda: journal.attempts >= so_far + 2)
    journal.keeps, journal.error = 2, None
    wait(lambda: len(journal.taken) == 5)
    assert [e.cause for e in journal.taken] == ["0", "1", "2", "3", "4"]
    assert history.dropped == 0


@pytest.mark.feature("O2")
def test_closing_writes_what_waits_and_does_not_wait_for_a_log_that_is_away(journal: Journal) -> None:
    """A node that leaves says so; one whose log is gone leaves all the same."""
    kept = History("fleet", "A", 7, lambda: journal)
    kept.begin()
    kept.tell(JOINED, "last words")
    kept.close()
    assert [e.cause for e in journal.taken] == ["last words"]
    assert journal.closed
    hung = Journal()
    hung.blocked.clear()
    lost = History("fleet", "A", 8, lambda: hung)
    lost.begin()
    lost.tell(JOINED, "nobody hears")
    began = time.monotonic()
    lost.close(0.05)
    assert time.monotonic() - began < 20.0
    hung.away.set()


def test_a_text_that_cannot_be_made_hurts_nobody(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """A missing fact is a defect of halog's, not a reason to stop a copy."""
    history.tell(TOO_FEW, "B left", more={})
    assert "HALOG-1009 could not be reported" in caplog.text


def test_a_long_cause_is_cut(journal: Journal, history: History) -> None:
    """An error text of a megabyte still makes an event."""
    history.begin()
    history.tell(JOINED, "x" * 1_000_000)
    wait(lambda: journal.taken)
    assert len(journal.taken[0].cause) == TEXT_CHARS


@pytest.mark.feature("O2")
def test_a_held_log_takes_the_events_once_it_is_back() -> None:
    """With the memory log as with Kafka: nothing is acknowledged while the broker is away."""
    broker = MemoryBroker()
    log = MemoryLog(broker)
    log.ensure_topic(TP.topic, 1, keep_ms=1_000)
    broker.hold(TP)
    history = History("fleet", "A", 7, lambda: log.journal(TP))
    history.begin()
    history.tell(JOINED, "patience")
    time.sleep(0.1)
    assert log.bounds(TP) == (0, 0)
    broker.release(TP)
    wait(lambda: log.bounds(TP) == (0, 1))
    history.close()
    assert [Event.from_bytes(e.value).cause for e in log.read(TP, 0, 1)] == ["patience"]


# --- what a node tells ---


class Heard:
    """A history that only listens."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def tell(self, kind: Any, cause: str, *, node: str = "", more: Any = None, **at: Any) -> None:
        assert kind.code in KINDS
        self.told.append((kind.name, cause, more or node))


def some_copy(required: int = 0) -> Any:
    """In epoch 3 of a group of four, of which so many are required."""
    state = SimpleNamespace(epoch=SimpleNamespace(number=3), lsn=5)
    table = PartitionTable("p-0", "", "", 0, "p", tuple("ABCD"), 1, 3, group=Group(required=required))
    core = SimpleNamespace(state=SimpleNamespace(chain=SimpleNamespace(state=state), table=table))
    return SimpleNamespace(name="p-0", core=core)


@pytest.mark.feature("Q3", "Q4")
@pytest.mark.parametrize(("required", "may_fork"), [(0, {}), (3, {}), (2, {"may_fork": True})])
def test_an_epoch_that_half_of_a_group_may_begin_is_told_to_be_one(required: int, may_fork: dict[str, bool]) -> None:
    """Whoever looks for where two histories part finds it; the end of such an epoch parts nothing."""
    heard = Heard()
    telling = EventReporter(heard)  # type: ignore[arg-type]
    copy = some_copy(required)
    telling.role_changed(copy, Role.ACTIVE.value, "B left")
    telling.role_changed(copy, Role.FOLLOWING.value, "fenced")
    assert [more for _, _, more in heard.told] == [
        {"role": "active", "was": "replica", **may_fork},
        {"role": "replica", "was": "active"},
    ]


@pytest.mark.feature("Q4")
def test_only_changes_between_active_replica_and_failed_are_role_changes() -> None:
    """An election's many steps are the log file's; operators hear of its outcome."""
    heard = Heard()
    telling = EventReporter(heard)  # type: ignore[arg-type]
    copy = some_copy()
    for role in (
        Role.FOLLOWING,
        Role.ELECTING,
        Role.CLAIMING,
        Role.OPENING,
        Role.ACTIVE,
        Role.VERIFYING,
        Role.ACTIVE,
        Role.DRAINING,
        Role.HANDING,
        Role.FOLLOWING,
        Role.FAILED,
        Role.FOLLOWING,
    ):
        telling.role_changed(copy, role.value, f"because {role.value}")
    assert heard.told == [
        ("role change", "because active", {"role": "active", "was": "replica"}),
        ("role change", "because following", {"role": "replica", "was": "active"}),
        ("role change", "because failed", {"role": "failed", "was": "replica"}),
        ("role change", "because following", {"role": "replica", "was": "failed"}),
    ]


@pytest.mark.feature("Q4", "Q5")
def test_an_intruder_that_tries_again_and_again_is_told_once_a_minute() -> None:
    """Its reconnects must not fill the history; another one is told at once."""
    now = 1_000.0
    heard = Heard()
    telling = EventReporter(heard, lambda: now)  # type: ignore[arg-type]
    for _ in range(100):
        telling.intruder("X", "it is unknown")
    telling.intruder("Y", "it is unknown")
    now += telling_module.INTRUDER_S
    telling.intruder("X", "it is unknown")
    assert [who for _, _, who in heard.told] == ["X", "Y", "X"]


@pytest.mark.feature("Q4", "Q5")
def test_intruders_that_change_their_names_are_told_so_often_and_counted_beyond() -> None:
    """Names are cheap: neither the history nor the memory is filled with them. Old ones make room for new ones."""
    now = 1_000.0
    heard = Heard()
    telling = EventReporter(heard, lambda: now)  # type: ignore[arg-type]
    for n in range(telling_module.INTRUDERS + 30):
        telling.intruder(f"Z{n}", "it is unknown")
    assert len(heard.told) == telling.intruders == telling_module.INTRUDERS
    now += telling_module.INTRUDER_S
    telling.intruder("X", "it is unknown")
    telling.intruder("Y", "it is unknown")
    assert [more for _, _, more in heard.told[telling_module.INTRUDERS :]] == [{"untold": 30}, "Y"]
    assert telling.intruders == 2
