"""The decorated form (D1): run again after a conflict, a bounded number of times, with growing jittered pauses."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable

import pytest

import halog.transactions as ht
from halog.backend import Work
from halog.errors import ConflictError, DeclarationError, NodeError, RefusedError, TransactionError
from halog.testing.nodes import MemoryNode
from halog.transactions import retry
from halog.transactions.kind import Read
from tests.unit.transactions.model import REGISTRY, Aircraft

pytestmark = pytest.mark.feature("D1")


def rival(node: MemoryNode, times: int) -> Callable[[str, Work], None]:
    """Somebody who changes N1 just before each of the next `times` commits."""
    left = [times]

    def change() -> None:
        with node.transaction() as tx:
            tx.get(Aircraft, "N1").miles += 100

    def meddle(partition: str, work: Work) -> None:
        if left[0]:
            left[0] -= 1
            node.backend.before_commit, hook = None, node.backend.before_commit
            contextvars.Context().run(change)
            node.backend.before_commit = hook

    return meddle


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


@pytest.fixture
def filled(here: MemoryNode) -> MemoryNode:
    with here.transaction() as tx:
        tx.create(Aircraft("N1"))
    return here


def test_a_conflict_names_the_object_and_both_versions(filled: MemoryNode) -> None:
    filled.backend.before_commit = rival(filled, 1)
    with pytest.raises(ConflictError, match=r"Aircraft 'N1': .*version 1 .*version 2") as caught, filled.transaction():
        filled.get(Aircraft, "N1").miles += 1
    assert caught.value.evidence["partition"] == "memory-0"
    assert caught.value.evidence["object"] == "Aircraft 'N1'"


def test_a_conflict_is_run_again_with_its_arguments(filled: MemoryNode, no_pauses: list[float]) -> None:
    filled.backend.before_commit = rival(filled, 3)

    @filled.transactional
    def fly(tail: str, *, miles: int) -> int:
        one = filled.get(Aircraft, tail)
        one.miles += miles
        return one.miles

    assert fly("N1", miles=5) == 305
    assert len(no_pauses) == 3


def test_it_gives_up_with_the_last_conflict(filled: MemoryNode) -> None:
    filled.backend.before_commit = rival(filled, 99)
    runs = []

    @filled.transactional(retries=2)
    def fly() -> None:
        runs.append(1)
        filled.get(Aircraft, "N1").miles += 1

    with pytest.raises(ConflictError) as caught:
        fly()
    assert len(runs) == 3
    assert caught.value.evidence["attempts"] == 3
    assert caught.value.evidence["found"] == 4


def test_other_errors_are_not_run_again(filled: MemoryNode) -> None:
    runs = []

    @filled.transactional
    def fail() -> None:
        runs.append(1)
        filled.get(Aircraft, "N1").miles += 1
        raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert runs == [1]


def test_an_object_given_to_it_can_be_created_at_the_second_run(filled: MemoryNode) -> None:
    filled.backend.before_commit = rival(filled, 1)

    @filled.transactional
    def add(made: Aircraft) -> None:
        filled.get(Aircraft, "N1").miles += 1
        filled.create(made)

    add(Aircraft("N2"))
    with filled.transaction() as tx:
        assert tx.get(Aircraft, "N2").tail == "N2"


def test_a_create_that_lost_a_race_after_looking_is_a_conflict(filled: MemoryNode) -> None:
    """find → None → create must be run again, and then finds the rival's object."""
    seen: list[bool] = []

    def create() -> None:
        with filled.transaction() as tx:
            tx.create(Aircraft("N2", miles=7))

    def meddle(partition: str, work: Work) -> None:
        filled.backend.before_commit = None
        contextvars.Context().run(create)

    filled.backend.before_commit = meddle

    @filled.transactional
    def find_or_create() -> int:
        found = filled.find(Aircraft, "N2")
        seen.append(found is not None)
        return (found or filled.create(Aircraft("N2"))).miles

    assert find_or_create() == 7
    assert seen == [False, True]


def test_reads_after_a_conflict_wait_for_the_commit(filled: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    fetch = filled.backend.fetch

    def spy(partition: str, keys: object, *, settled: int = 0, mapping: int = 0) -> object:
        waited.append(settled)
        return fetch(partition, keys, settled=settled)  # type: ignore[arg-type]

    def in_flight(partition: str, work: Work) -> None:
        filled.backend.before_commit = None
        raise ConflictError("in flight", settled_lsn=17)

    monkeypatch.setattr(filled.backend, "fetch", spy)
    filled.backend.before_commit = in_flight

    @filled.transactional
    def fly() -> None:
        filled.get(Aircraft, "N1").miles += 1

    fly()
    assert waited == [17]


def test_pauses_grow_and_differ_and_are_bounded() -> None:
    longest = [max(retry.pause(n) for _ in range(200)) for n in range(12)]
    assert longest[0] <= retry.FIRST_PAUSE_S < longest[4] < longest[11] <= retry.LONGEST_PAUSE_S
    assert len({retry.pause(5) for _ in range(10)}) > 5


def test_inside_a_transaction_it_is_refused(filled: MemoryNode) -> None:
    @filled.transactional
    def inner() -> None: ...

    with filled.transaction(), pytest.raises(TransactionError, match="do not nest"):
        inner()


def test_coroutines_and_generators_are_refused_at_declaration(filled: MemoryNode) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(DeclarationError, match="aio"):
        filled.transactional(coroutine)
    with pytest.raises(DeclarationError, match="retries"):
        filled.transactional(retries=-1)


def test_the_free_decorator_uses_the_only_node(filled: MemoryNode) -> None:
    @ht.transaction(retries=1)
    def miles() -> int:
        return ht.current().get(Aircraft, "N1").miles

    assert miles() == 0
    with MemoryNode(registry=REGISTRY), pytest.raises(NodeError, match="2 nodes"):
        miles()
    filled.close()
    with pytest.raises(NodeError, match="no node"):
        miles()


@pytest.mark.feature("R5")
@pytest.mark.parametrize(
    ("read", "is_so"), [("local", "local"), ("lease", "leased"), ("barrier", "least"), ("active", "after")]
)
def test_it_asks_what_a_transaction_may_ask(filled: MemoryNode, read: Read, is_so: str) -> None:
    """Each run anew, also behind a conflict; an argument that no transaction takes is refused where it is declared."""
    with filled.transaction() as tx:
        tx.get(Aircraft, "N1").miles += 1
    runs: list[tuple[dict[str, int] | None, bool]] = []

    @filled.transactional(read=read, after=tx.token)
    def look() -> int:
        current = filled.current()
        runs.append((dict(current.after or {}), getattr(current, is_so) not in (None, False)))
        miles = current.get(Aircraft, "N1").miles
        if len(runs) == 1:
            raise ConflictError("once", partition="memory-0", settled_lsn=1)
        return miles

    assert look() == 1
    assert runs == [(tx.token.positions, True)] * 2
    for decorate in (filled.transactional, ht.transaction):
        with pytest.raises(RefusedError, match="read='stale' is none of active, local, barrier, lease"):
            decorate(read="stale")  # type: ignore[call-overload]
