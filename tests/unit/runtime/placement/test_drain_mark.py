"""The mark of a node that was drained: made and taken away, whatever answers are lost on the way (P12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.errors import CoordinatorError
from halog.metadata.cas import ATTEMPTS
from halog.metadata.drains import drained_at, drained_nodes, mark, unmark
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("P12", "P2")


def lost(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch, what: str, times: int, *, done: bool
) -> list[str]:
    """No answer comes from so many of these; were they carried out? Returns the paths that were tried."""
    tried: list[str] = []
    real: Callable[..., object] = getattr(coordinator, what)

    def call(path: str, *args: object) -> object:
        tried.append(path)
        if len(tried) > times:
            return real(path, *args)
        if done:
            real(path, *args)
        raise UnknownResult("no answer")

    monkeypatch.setattr(coordinator, what, call)
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


def test_nothing_is_written_where_there_is_no_mark(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each move asks, and moves are many."""
    tried = lost(coordinator, monkeypatch, "delete", 0, done=False)
    unmark(coordinator, ("A", "B"))
    assert tried == []


@pytest.mark.parametrize("done", [True, False])
def test_a_lost_answer_is_looked_into(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    lost(coordinator, monkeypatch, "create", 2, done=done)
    mark(coordinator, "A", 1)
    assert drained_nodes(coordinator) == ["A"]
    lost(coordinator, monkeypatch, "delete", 2, done=done)
    assert unmark(coordinator, ("A",)) == ["A"], "it had one"
    assert drained_nodes(coordinator) == []


def test_it_is_given_up_in_the_end_and_says_what_to_do(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = lost(coordinator, monkeypatch, "create", ATTEMPTS, done=False)
    with pytest.raises(CoordinatorError, match=r"drained/A .* nothing has moved: try again"):
        mark(coordinator, "A", 1)
    assert tried == ["drained/A"] * ATTEMPTS
    mark(coordinator, "A", 1)
    lost(coordinator, monkeypatch, "delete", ATTEMPTS, done=False)
    with pytest.raises(CoordinatorError, match=r"drained/A .* `halog drain A --undo`"):
        unmark(coordinator, ("A", "B"))
    assert drained_nodes(coordinator) == ["A"]
