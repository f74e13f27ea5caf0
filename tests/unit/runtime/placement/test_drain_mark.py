"""The mark of a node that was drained: made and taken away, whatever answers are lost on the way (P12)."""

from __future__ import annotations

import pytest

from halog.adapters.memory import Attempt, MemoryCoordinator
from halog.errors import CoordinatorError
from halog.metadata.cas import ATTEMPTS
from halog.metadata.drains import drained_at, drained_nodes, mark, unmark
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("P12", "P2")


def lost(coordinator: MemoryCoordinator, what: str, times: int, *, done: bool) -> list[str]:
    """No answer comes from so many of these; were they carried out? Returns the paths that were tried."""
    tried: list[str] = []

    def call(attempt: Attempt[object]) -> object:
        tried.append(attempt.about)
        if done or len(tried) > times:
            answer = attempt.land()
        if len(tried) <= times:
            raise UnknownResult("no answer")
        return answer

    coordinator.faults.add(what, call)
    return tried


def test_only_those_that_are_named_lose_it(coordinator: MemoryCoordinator) -> None:
    for node in ("C", "A", "B", "A"):
        mark(coordinator, node, 1)
    assert drained_nodes(coordinator) == ["A", "B", "C"]
    assert unmark(coordinator, ("A", "C", "X")) == ["A", "C"]
    assert unmark(coordinator, ("A", "C", "X")) == []
    assert drained_nodes(coordinator) == ["B"]


def test_one_that_is_drained_again_is_so_since_then(coordinator: MemoryCoordinator) -> None:
    """A plan that was made in between did not know of that."""
    mark(coordinator, "A", 1)
    mark(coordinator, "B", 2)
    mark(coordinator, "A", 3)
    assert drained_at(coordinator) == {"A": 3, "B": 2}
    coordinator.set("drained/B", b"none", 0)
    with pytest.raises(CoordinatorError, match="holds no mark of a drained node"):
        drained_at(coordinator)


def test_nothing_is_written_where_there_is_no_mark(coordinator: MemoryCoordinator) -> None:
    """Each move asks, and moves are many."""
    tried = lost(coordinator, "delete", 0, done=False)
    unmark(coordinator, ("A", "B"))
    assert tried == []


@pytest.mark.parametrize("done", [True, False])
def test_a_lost_answer_is_looked_into(coordinator: MemoryCoordinator, done: bool) -> None:
    lost(coordinator, "create", 2, done=done)
    mark(coordinator, "A", 1)
    assert drained_nodes(coordinator) == ["A"]
    lost(coordinator, "delete", 2, done=done)
    assert unmark(coordinator, ("A",)) == ["A"], "it had one"
    assert drained_nodes(coordinator) == []


def test_it_is_given_up_in_the_end_and_says_what_to_do(coordinator: MemoryCoordinator) -> None:
    tried = lost(coordinator, "create", ATTEMPTS, done=False)
    with pytest.raises(CoordinatorError, match=r"drained/A .* nothing has moved: try again"):
        mark(coordinator, "A", 1)
    assert tried == ["drained/A"] * ATTEMPTS
    mark(coordinator, "A", 1)
    lost(coordinator, "delete", ATTEMPTS, done=False)
    with pytest.raises(CoordinatorError, match=r"drained/A .* `halog drain A --undo`"):
        unmark(coordinator, ("A", "B"))
    assert drained_nodes(coordinator) == ["A"]
