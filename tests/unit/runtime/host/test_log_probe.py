"""Copies that doubt the log ask it: whose broker is away holds up nobody for long, and each is told once (R4)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from halog.core import effects as fx, events as ev
from halog.errors import UnreachableError
from halog.events import LOG_AWAY, LOG_BACK, Kind
from halog.ports import TopicPartition
from halog.runtime.host import log_probe as log_questions
from halog.runtime.host.log_probe import FIRST_S, LogQuestions
from halog.runtime.support.clock import monotonic_ms

pytestmark = pytest.mark.feature("R4")

CLOSING = threading.Event()


class Copy:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tp = TopicPartition(name, 0)
        self.heard: list[ev.Event] = []

    def post(self, event: ev.Event) -> None:
        self.heard.append(event)


class World:
    """A log some of whose partitions have a broker that is away."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.asked: list[tuple[str, float]] = []
        self.told: list[Kind] = []
        self.questions = self.asking()

    def end(self, tp: TopicPartition, timeout_s: float) -> object:
        self.asked.append((tp.topic, timeout_s))
        if tp.topic in self.away:
            raise UnreachableError("nobody answers")
        return 0, 0

    def asking(self) -> LogQuestions:
        return LogQuestions(self.end, lambda: True, self.tell, pause_s=0.0)

    def tell(self, kind: Kind, cause: str, more: Mapping[str, Any]) -> None:
        self.told.append(kind)

    def turn(self) -> None:
        self.questions.turn(CLOSING)


@pytest.fixture
def world() -> World:
    return World()


def test_whose_broker_answers_does_not_wait_for_all_whose_broker_does_not(world: World) -> None:
    lost, fine = [Copy(f"lost-{i}") for i in range(20)], Copy("fine")
    world.away = {copy.name for copy in lost}
    for n, copy in enumerate([*lost, fine]):
        world.questions.ask(copy, fx.AskLog(n + 1, monotonic_ms()))
    while not fine.heard:
        world.turn()
    assert [timeout_s for _, timeout_s in world.asked] == [FIRST_S] * 21
    world.turn()
    world.questions.ask(fine, fx.AskLog(99, monotonic_ms()))
    world.turn()
    assert fine.heard == [ev.LogAnswered(21), ev.LogAnswered(99)], "who asks now is next"
    assert not any(copy.heard for copy in lost)


def test_copies_that_doubt_do_not_wait_for_all_that_serve_nor_these_for_them(world: World) -> None:
    """A node with hundreds of partitions asks ten times a second for each whose replica is overdue."""
    serving = [Copy(f"serving-{i}") for i in range(20)]
    lost, fine = [Copy(f"lost-{i}") for i in range(3)], Copy("fine")
    world.away = {copy.name for copy in lost}

    def all_that_serve_ask() -> None:
        for copy in serving:
            world.questions.ask(copy, fx.AskLog(1, monotonic_ms(), serves=True))

    all_that_serve_ask()
    for copy in (*lost, fine):
        world.questions.ask(copy, fx.AskLog(1, monotonic_ms()))
    for _ in range(4):
        world.turn()
    assert fine.heard == [ev.LogAnswered(1)], "an epoch waits for it"
    for _ in range(16):
        all_that_serve_ask()
        world.turn()
    asked = [name for name, _ in world.asked[4:]]
    assert sum(name.startswith("lost") for name in asked) == 8, "by turns"
    assert [name for name in asked if name.startswith("lost")][:3] == ["lost-0", "lost-1", "lost-2"]
    world.away = set()
    for _ in range(6):
        all_that_serve_ask()
        world.turn()
    assert all(copy.heard == [ev.LogAnswered(1)] for copy in lost)


def test_all_are_asked_again_and_again(world: World) -> None:
    copies = [Copy(name) for name in ("a", "b", "c")]
    world.away = {"a", "b", "c"}
    for copy in copies:
        world.questions.ask(copy, fx.AskLog(1, monotonic_ms()))
    for _ in range(7):
        world.turn()
    assert [name for name, _ in world.asked] == ["a", "b", "c", "a", "b", "c", "a"]
    world.away = set()
    for _ in copies:
        world.turn()
    assert all(copy.heard == [ev.LogAnswered(1)] for copy in copies)


def test_it_is_told_once_that_it_is_away_and_once_that_it_is_back() -> None:
    world = Slow()
    world.takes = [20]
    copies = [Copy("a"), Copy("b")]
    world.away = {"a", "b"}
    for copy in copies:
        world.questions.ask(copy, fx.AskLog(1, world.now))
    world.turn()
    assert not world.told, "it may be slow"
    for _ in range(4):
        world.turn()
    view = world.questions.view()
    assert view is not None
    assert (view["partitions"], view["why"]) == (["a", "b"], "nobody answers")
    world.away = set()
    world.turn()
    assert world.told == [LOG_AWAY], "one of them has not heard yet"
    world.turn()
    assert world.told == [LOG_AWAY, LOG_BACK]
    assert world.questions.view() is None


class Slow(World):
    """A log that takes its time, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 50_000
        self.takes = list[int]()
        """`takes`: ms, of one answer after the other; the last one is repeated."""
        super().__init__()

    def asking(self) -> LogQuestions:
        return LogQuestions(self.end, lambda: True, self.tell, clock=lambda: self.now, pause_s=0.0, wait_s=0.0)

    def end(self, tp: TopicPartition, timeout_s: float) -> object:
        if tp.topic in self.away:
            self.now += int(timeout_s * 1000)
            raise UnreachableError("nobody answers")
        takes = self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]
        self.now += min(takes, int(timeout_s * 1000))
        if takes > timeout_s * 1000:
            raise UnreachableError("it has not answered within its time")
        return 0, 0

    def ask(self, copy: Copy, round_: int) -> None:
        """Until it is answered, and a moment longer."""
        self.questions.ask(copy, fx.AskLog(round_, self.now, serves=True))
        while ev.LogAnswered(round_) not in copy.heard:
            self.turn()
        self.now += 100


def test_a_log_that_takes_a_second_for_each_answer_is_told_once_and_its_end_once() -> None:
    """It was away and back with each answer, some fifteen times while a replica was silent."""
    log, copy = Slow(), Copy("a")
    for n in range(1, 16):
        log.takes = [1300, 1200, 950]
        log.ask(copy, n)
    assert log.told == [LOG_AWAY]
    assert log.questions.view() is None, "nobody waits"
    log.takes = [1100, 700]
    for _ in range(5):
        log.turn()
    assert log.told == [LOG_AWAY], "nobody asks, and it is as slow"
    log.takes = [20]
    log.turn()
    assert log.told == [LOG_AWAY, LOG_BACK]
    asked = log.now
    log.turn()
    assert log.now == asked, "nobody asks any more"


def test_one_that_stays_somewhat_slow_is_back_when_it_has_answered_everything_for_a_while() -> None:
    log, copy = Slow(), Copy("a")
    log.takes = [5000, 5000, 800]
    log.ask(copy, 1)
    began = log.now
    while LOG_BACK not in log.told:
        log.turn()
    assert log_questions.CALM_MS - 2000 <= log.now - began <= log_questions.CALM_MS + 2000
    assert log.told == [LOG_AWAY, LOG_BACK]
