"""Decisions are passed on by lanes: a partition that nobody serves holds up nobody else, and costs bounded memory."""

from __future__ import annotations

import threading
from collections import Counter as Count
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.errors import ClosedError, OverloadedError, PartitionUnavailableError
from halog.runtime.client.outcome_delivery import DecisionDelivery
from halog.runtime.rpc import frames
from halog.runtime.support.keyed_executor import Lanes
from halog.testing.cluster import wait_until

pytestmark = pytest.mark.feature("D5")


class Ballots:
    """Partition "dead" has no active node, which is known when `gone` is set; "slow" answers when it is let."""

    def __init__(self) -> None:
        self.asked = Count[str]()
        self.now = Count[str]()
        self.most = Count[str]()
        self.let = threading.Event()
        self.gone = threading.Event()
        self.held: list[Callable[[str | None], None]] = []
        self._lock = threading.Lock()

    def tell(self, r: frames.Decide, told: Callable[[str | None], None]) -> bool:
        """This node serves none but "here", which answers at once, and "held", which does when it is let."""
        self.asked[f"{r.partition} told"] += 1
        if r.partition == "here":
            told("committed")
        elif r.partition == "held":
            self.held.append(told)
        return r.partition in ("here", "held")

    def decide(self, r: frames.Decide, until: float, site: str) -> tuple[str, int]:
        with self._lock:
            self.asked[r.partition] += 1
            self.now[r.partition] += 1
            self.most[r.partition] = max(self.most[r.partition], self.now[r.partition])
        try:
            if r.partition == "dead":
                self.gone.wait(60)
                raise PartitionUnavailableError("nobody", partition="dead")
            if r.partition == "slow":
                self.let.wait(60)
            return "committed", 1
        finally:
            with self._lock:
                self.now[r.partition] -= 1


class Copy:
    """Keeps what it is told."""

    name = "p"

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.post = self.told.append

    def after(self, action: Callable[[], None]) -> None:
        action()


class Detour:
    """The line to the node that serves "beyond" is cut; it answers by the coordinator."""

    def __init__(self) -> None:
        self.asked: list[frames.Decide] = []

    def to(self, partition: str) -> Member | None:
        return Member("B", 1) if partition == "beyond" else None

    def ask(self, other: Member, r: frames.Decide, within_s: float) -> str | None:
        self.asked.append(r)
        return "committed"


Parts = tuple[DecisionDelivery, Ballots, Any]


@pytest.fixture
def settling() -> Iterator[Parts]:
    ballots = Ballots()
    made = DecisionDelivery(ballots, Detour())  # type: ignore[arg-type]
    yield made, ballots, Copy()
    made.close()
    ballots.let.set()
    ballots.gone.set()


def spread(to: str, first: int, count: int) -> list[fx.Spread]:
    return [fx.Spread(i.to_bytes(16, "big"), True, (to,)) for i in range(first, first + count)]


def test_a_partition_that_nobody_serves_holds_up_no_decision_for_others(settling: Parts) -> None:
    s, ballots, copy = settling
    for e in spread("dead", 0, 100):
        s.spread(copy, e)
        s.ask_decision(copy, fx.AskDecision(e.tx, "dead"))
    s.spread(copy, fx.Spread(b"x" * 16, True, ("healthy",)))
    s.ask_decision(copy, fx.AskDecision(b"y" * 16, "healthy"))
    wait_until(lambda: len(copy.told) == 2, "the decision was not passed on")
    assert ballots.asked["dead"] <= 2, "they wait all the while"


def test_behind_a_cut_line_it_is_told_and_asked_by_the_coordinator(settling: Parts) -> None:
    s, ballots, copy = settling
    s.spread(copy, spread("beyond", 7, 1)[0])
    wait_until(lambda: copy.told == [ev.Confirmed((7).to_bytes(16, "big"), "beyond")], "it is told")
    s.ask_decision(copy, fx.AskDecision(b"y" * 16, "beyond"))
    wait_until(lambda: copy.told[1:] == [ev.DecideAsked(0, b"y" * 16, True, False)], "it is asked")
    assert not ballots.asked["beyond"]


def test_what_waits_for_a_partition_that_nobody_serves_is_dropped(settling: Parts) -> None:
    s, ballots, copy = settling
    for e in spread("dead", 0, 200):
        s.spread(copy, e)
    wait_until(lambda: ballots.now["dead"] == 2, "two at a time")
    ballots.gone.set()
    wait_until(lambda: s.pending == 0, "what nobody answers is kept")
    assert ballots.asked["dead"] <= 4
    ballots.gone.clear()
    s.spread(copy, spread("dead", 0, 1)[0])  # the core asks again
    wait_until(lambda: ballots.now["dead"] == 1, "nobody asks again")
    assert s.pending == 1


def test_a_partition_that_this_node_serves_is_told_without_an_errand(settling: Parts) -> None:
    s, ballots, copy = settling
    s.spread(copy, spread("here", 7, 1)[0])
    assert copy.told == [ev.Confirmed((7).to_bytes(16, "big"), "here")]
    assert s.pending == 0
    assert ballots.asked == {"here told": 1}


def test_what_a_partition_here_was_told_and_has_not_answered_is_not_told_again(settling: Parts) -> None:
    """Its log may be away: the core asks again and again."""
    s, ballots, copy = settling
    e = spread("held", 7, 1)[0]
    for _ in range(10):
        s.spread(copy, e)
    assert ballots.asked["held told"] == 1
    ballots.held.pop()(None)
    assert copy.told == []
    s.spread(copy, e)
    ballots.held.pop()("committed")
    assert copy.told == [ev.Confirmed(e.tx, "held")]


def test_what_is_under_way_or_waits_is_not_begun_again(settling: Parts) -> None:
    s, ballots, copy = settling
    for _ in range(5):
        for e in spread("slow", 0, 20):
            s.spread(copy, e)
    other: Any = SimpleNamespace(name="q", post=copy.post)
    s.ask_decision(copy, fx.AskDecision(bytes(16), "slow"))
    s.ask_decision(other, fx.AskDecision(bytes(16), "slow"))  # of another copy: another question
    assert s.pending == 22
    wait_until(lambda: ballots.most["slow"] == 2, "two at a time")
    ballots.let.set()
    wait_until(lambda: len(copy.told) == 22, "not all were told")
    assert ballots.asked["slow"] == 22
    assert ballots.most["slow"] == 2
    wait_until(lambda: s.pending == 0, "something is pending")
    for e in spread("slow", 0, 2):
        s.spread(copy, e)
    wait_until(lambda: ballots.asked["slow"] == 24, "what was done is not done again")


def test_an_error_is_no_end_of_an_errand(
    settling: Parts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, ballots, copy = settling
    monkeypatch.setattr(ballots, "tell", lambda r, told: False)
    monkeypatch.setattr(ballots, "decide", lambda r, until: 1 // 0)
    s.spread(copy, spread("healthy", 0, 1)[0])
    wait_until(lambda: s.pending == 0, "it is pending for ever")
    assert "an errand to partition" in caplog.text


def test_a_lane_is_bounded() -> None:
    made, let, done = Lanes("test", 1, 4, queued=3), threading.Event(), list[int]()

    def work(n: int) -> int:
        let.wait(30)
        done.append(n)
        return n

    first = made.submit("a", lambda: work(0))
    wait_until(lambda: made.waiting("a") == 0, "not begun")
    rest = [made.submit("a", lambda n=n: work(n)) for n in (1, 2, 3)]  # type: ignore[misc]
    with pytest.raises(OverloadedError):
        made.submit("a", lambda: work(4))
    assert made.submit("b", lambda: 7).result(60) == 7
    let.set()
    assert [job.result(60) for job in (first, *rest)] == [0, 1, 2, 3] == done
    made.close()
    wait_until(lambda: not made._lanes, "a lane without work is kept")
    with pytest.raises(ClosedError):
        made.submit("a", lambda: work(5))
