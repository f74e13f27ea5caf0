"""A commit that met several nodes: what may be in the log is never said not to have happened (R5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.backend import Work
from halog.core import events as ev
from halog.errors import HalogError, NotActiveError, OutcomeUnknownError, PartitionUnavailableError
from halog.runtime.commits import Commits
from halog.runtime.deliveries import Deliveries
from halog.runtime.request import Open

pytestmark = pytest.mark.feature("R5", "D1")

WORK = Work((), ())


class Node:
    """An asker whose own copy is active for the first rounds, and then nobody is."""

    closed = False

    def __init__(self, *rounds: ev.Result) -> None:
        self.rounds = list(rounds)
        self.router: Any = self

    def check_open(self) -> None:
        pass

    def call_of(self, partition: str) -> float:
        return 5.0

    def locked_of(self, partition: str) -> float:
        return 0.1

    def serving(self, partition: str) -> Any:
        return self if self.rounds else None

    name = "p"

    def epoch(self, partition: str) -> int:
        return 1

    def submit(self, tx: bytes, work: Work, answer: Callable[[ev.Result], None], epoch: int) -> int:
        answer(self.rounds.pop(0))
        return 0

    def ask(self, partition: str, frame: object, until: float, open_: Open) -> None:
        raise PartitionUnavailableError("no node is active", partition=partition)


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        ((), PartitionUnavailableError),
        ((ev.NotServing(None),), PartitionUnavailableError),
        ((ev.Unknown("its epoch ended"),), OutcomeUnknownError),
        ((ev.Unknown("its epoch ended"), ev.NotServing(None)), OutcomeUnknownError),
    ],
)
def test_what_may_be_in_the_log_is_unknown_whatever_comes_next(
    rounds: tuple[ev.Result, ...], told: type[HalogError]
) -> None:
    node: Any = Node(*rounds)
    commits = Commits(node, 7, lambda partition: False)
    with pytest.raises(told) as caught:
        commits.commit("p", commits.new_id(), WORK)
    assert not isinstance(caught.value, NotActiveError)


def test_what_was_begun_without_waiting_is_unknown_too() -> None:
    """An event loop's commit: begun here, then nobody is active. A site that only mirrors says so at once."""
    node: Any = Node(ev.Unknown("its epoch ended"))
    commits = Commits(node, 7, lambda partition: False)
    commits.deliveries = Deliveries(lambda: node, list)
    node.answers_early = lambda durability: False
    tx, told = commits.new_id(), []
    assert commits.begin("p", tx, WORK, lambda lsn: bool(told.append(lsn)))
    assert told == [None]
    with pytest.raises(OutcomeUnknownError):
        commits.commit("p", tx, WORK)
