"""Challenges through a coordinator: who lives answers the run that asked, and only that one's questions (R4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.ids import Member
from halog.runtime.membership.challenges import DOWN, Challenging

A, B = Member("A", 1), Member("B", 2)


class Node:
    def __init__(self, me: Member, other: str, tree: MemoryTree) -> None:
        self.heard: list[tuple[str, int, int]] = []
        self.lost: list[str] = []
        self.offline = ""
        self.coordinator = MemoryCoordinator(tree)
        self.coordinator.connect(lambda state: None)
        self.challenging = Challenging(
            me, self.coordinator, lambda *told: self.heard.append(told), self.lost.append, lambda: self.offline
        )
        self.challenging.met_soon(other)

    def close(self) -> None:
        self.challenging.close()
        self.coordinator.close()


@pytest.fixture
def two() -> Iterator[tuple[Node, Node]]:
    tree = MemoryTree()
    nodes = Node(A, "B", tree), Node(B, "A", tree)
    yield nodes
    for node in nodes:
        node.close()


def soon(what: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not what() and time.monotonic() < until:
        time.sleep(0.005)
    return what()


@pytest.mark.feature("R4", "N4")
def test_each_question_is_answered_by_its_number(two: tuple[Node, Node]) -> None:
    a, b = two
    for number in (1, 2, 3):
        a.challenging.ask(B, number, lost=number > 2)
        told = ("B", B.incarnation, number)
        assert soon(lambda told=told: told in a.heard)  # type: ignore[misc]
    assert soon(lambda: b.lost != [])
    assert set(b.lost) == {"A"}
    assert b.heard == []


@pytest.mark.feature("R4", "N4")
def test_another_run_of_that_node_does_not_answer(two: tuple[Node, Node]) -> None:
    a, _ = two
    a.challenging.ask(Member("B", 1), 1, lost=False)
    a.challenging.ask(B, 2, lost=False)
    assert soon(lambda: ("B", B.incarnation, 2) in a.heard)
    assert {told[1] for told in a.heard} == {B.incarnation}


@pytest.mark.feature("R4", "Q1")
def test_one_that_is_offline_says_that_it_serves_nothing(two: tuple[Node, Node]) -> None:
    a, b = two
    b.offline = "zone home has no quorum here"
    a.challenging.ask(B, 1, lost=True)
    assert soon(lambda: ("B", B.incarnation, DOWN) in a.heard)


@pytest.mark.feature("R4")
def test_one_that_is_closed_answers_nobody(two: tuple[Node, Node]) -> None:
    a, b = two
    b.challenging.close()
    a.challenging.ask(B, 1, lost=False)
    assert not soon_at_most(lambda: bool(a.heard), 0.3)


def soon_at_most(what: Callable[[], bool], seconds: float) -> bool:
    time.sleep(seconds)
    return what()
