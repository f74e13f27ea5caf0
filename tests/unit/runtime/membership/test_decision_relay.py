"""What two nodes settle through the coordinator when the line between them is cut (D5, R4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.ids import Member
from halog.runtime.membership import decision_relay
from halog.runtime.membership.decision_relay import MOST, DecisionBatch, DecisionRelay
from halog.runtime.rpc import frames
from halog.testing.cluster import wait_until

A, B = Member("A", 1), Member("B", 2)


class Node:
    """It answers how it is told to, and remembers what it was asked."""

    def __init__(self, me: Member, tree: MemoryTree) -> None:
        self.asked: list[frames.Decide] = []
        self.says = "committed"
        self.let = threading.Event()
        self.let.set()
        self.coordinator = MemoryCoordinator(tree)
        self.coordinator.connect(lambda state: None)
        self.relay = DecisionRelay(me, self.coordinator, lambda partition: None, self._decide)

    def _decide(self, r: frames.Decide) -> str:
        self.asked.append(r)
        self.let.wait(30)
        return self.says

    def close(self) -> None:
        self.let.set()
        self.relay.close()
        self.coordinator.close()


@pytest.fixture
def two() -> Iterator[tuple[Node, Node]]:
    tree = MemoryTree()
    nodes = Node(A, tree), Node(B, tree)
    yield nodes
    for node in nodes:
        node.close()


def decide(n: int) -> frames.Decide:
    return frames.Decide("p-0", n.to_bytes(16, "big"), False, True, ("p-0", "p-1"))


@pytest.mark.feature("D5", "R4")
def test_a_question_goes_there_whole_and_its_answer_comes_back(two: tuple[Node, Node]) -> None:
    a, b = two
    b.relay.lost_at("A")
    assert a.relay.ask(B, decide(7), 10) == "committed"
    assert [msgspec.structs.astuple(r) for r in b.asked] == [msgspec.structs.astuple(decide(7))]
    b.says = "aborted"
    assert a.relay.ask(B, decide(8), 10) == "aborted"
    b.says = ""
    assert a.relay.ask(B, decide(9), 10) is None


@pytest.mark.feature("D5", "R4")
def test_both_may_ask_at_once(two: tuple[Node, Node]) -> None:
    a, b = two
    for node, other in ((a, "B"), (b, "A")):
        node.relay.lost_at(other)
    with ThreadPoolExecutor(40) as threads:
        there = [threads.submit(a.relay.ask, B, decide(n), 20) for n in range(20)]
        back = [threads.submit(b.relay.ask, A, decide(n), 20) for n in range(20)]
        assert {answer.result() for answer in there + back} == {"committed"}
    assert len(a.asked) == len(b.asked) == 20


@pytest.mark.feature("D5", "R4")
def test_what_is_asked_meanwhile_is_the_next_batch(two: tuple[Node, Node]) -> None:
    a, b = two
    b.relay.lost_at("A")
    b.let.clear()
    with ThreadPoolExecutor(1 + MOST + 3) as threads:
        first = threads.submit(a.relay.ask, B, decide(0), 20)
        wait_until(lambda: bool(b.asked), "the first one is there")
        others = [threads.submit(a.relay.ask, B, decide(n), 20) for n in range(1, 1 + MOST + 3)]
        wait_until(lambda: len(a.relay._lines["B"].waiting) == len(others), "they wait")
        b.let.set()
        assert {answer.result() for answer in (first, *others)} == {"committed"}
    found = b.coordinator.get("decisions/B/A")
    assert found is not None
    assert decision_relay._DECODER.decode(found.data).number == 3


@pytest.mark.feature("D5", "R4")
def test_a_batch_that_nobody_answers_is_lost_and_the_next_one_goes(
    two: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two
    monkeypatch.setattr(decision_relay, "WITHIN_S", 0.05)
    assert a.relay.ask(B, decide(1), 0.1) is None
    b.relay.lost_at("A")
    wait_until(lambda: a.relay.ask(B, decide(2), 0.1) == "committed", "it is asked")


@pytest.mark.feature("D5", "R4")
@pytest.mark.parametrize(("asker", "of"), [(1, 1), (0, 2)])
def test_what_is_of_another_run_counts_for_nothing(two: tuple[Node, Node], asker: int, of: int) -> None:
    """A batch to an earlier run of B is not answered; an answer to an earlier run of A is none to this one."""
    a, b = two
    answered = 0 if of == 1 else 1
    left = DecisionBatch(asker=asker, of=of, number=1, answered=answered, answers=("aborted",) * answered)
    a.coordinator.create("decisions/B/A", msgspec.json.encode(left))
    b.relay.lost_at("A")
    assert a.relay.ask(B, decide(3), 10) == "committed"
    assert [r.tx for r in b.asked] == [decide(3).tx]


@pytest.mark.feature("D5", "R4")
@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"asker": "x"}'])
def test_a_znode_that_is_no_batch_is_written_anew(two: tuple[Node, Node], data: bytes) -> None:
    a, b = two
    a.coordinator.create("decisions/B/A", data)
    b.relay.lost_at("A")
    assert a.relay.ask(B, decide(4), 10) == "committed"


@pytest.mark.feature("D5", "R4")
def test_one_that_closes_keeps_nobody_waiting(two: tuple[Node, Node]) -> None:
    a, _ = two
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(a.relay.ask, B, decide(n), 60) for n in range(2)]
        wait_until(lambda: "B" in a.relay._lines and bool(a.relay._lines["B"].under_way), "one is under way")
        a.relay.close()
        assert [answer.result(10) for answer in asked] == [None, None]
    assert a.relay.ask(B, decide(9), 60) is None
