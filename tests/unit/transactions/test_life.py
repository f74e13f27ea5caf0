"""The life of a transaction: begin, commit, rollback, and what ended objects still allow."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import gc
import os
import threading
import weakref

import pytest

import halog.transactions as ht
from halog.errors import (
    ClosedError,
    ForkedError,
    HalogError,
    NoTransactionError,
    OutcomeUnknownError,
    RecordTooLargeError,
    TransactionError,
)
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, Plain

pytestmark = pytest.mark.feature("D1")


def test_an_exception_rolls_everything_back(node: MemoryNode) -> None:
    """Rollback leaves the state hash as it was."""
    with node.transaction() as tx:
        tx.create(Account("x", 1, balance=5, tags=["a"]))
        tx.create(Aircraft("N1"))
    before = node.state_hash()
    with pytest.raises(ZeroDivisionError), node.transaction() as tx:
        one = tx.get(Account, "x", 1)
        one.balance = 9
        one.tag("b")
        tx.get(Aircraft, "N1").land(5)
        tx.create(Aircraft("N2"))
        tx.delete(one)
        raise ZeroDivisionError
    assert node.state_hash() == before
    assert tx.outcome == "rolled back"


def test_an_ended_object_can_be_read_and_nothing_else(node: MemoryNode) -> None:
    with node.transaction() as tx:
        one = tx.create(Account("x", 1, balance=5))
    assert one.balance == 5
    assert one == Account("x", 1, balance=5)
    assert Account("x", 1, balance=5) == one
    assert repr(one) == repr(Account("x", 1, balance=5))
    assert isinstance(one, Account)
    assert dataclasses.replace(one, balance=6).balance == 6
    with pytest.raises(NoTransactionError, match="balance"):
        one.balance = 6
    with pytest.raises(NoTransactionError):
        del one.tags
    with pytest.raises(NoTransactionError, match="has committed"):
        one.tag("x")
    with node.transaction() as tx2:
        for use in (lambda: tx2.delete(one), lambda: tx2.create(one), lambda: one.tag("x")):
            with pytest.raises(NoTransactionError):
                use()


def test_an_object_whose_create_was_rolled_back_may_be_created_again(node: MemoryNode) -> None:
    """Else a function that is run again after a conflict could not create what it was given."""
    one = Aircraft("N1")
    with pytest.raises(ZeroDivisionError), node.transaction() as tx:
        tx.create(one)
        raise ZeroDivisionError
    with pytest.raises(NoTransactionError):
        one.land(3)
    with node.transaction() as tx:
        tx.create(one)
        one.miles = 4
    with node.transaction() as tx:
        assert tx.get(Aircraft, "N1").miles == 4


def test_an_object_deleted_by_a_failed_method_is_alive_again(here: MemoryNode) -> None:
    """Also as one whose create can be undone with the whole transaction, and then be done again."""
    two = Aircraft("N2")
    with pytest.raises(ZeroDivisionError), here.transaction() as tx:
        tx.create(two)
        with pytest.raises(ValueError, match="negative"):
            tx.create(Aircraft("N1")).scrap_and_land("N2", -1)
        two.land(3)
        assert tx.get(Aircraft, "N2") is two
        raise ZeroDivisionError
    with here.transaction() as tx:
        tx.create(two)
        two.miles += 1
    with here.transaction() as tx:
        assert tx.get(Aircraft, "N2").miles == 4


def test_objects_are_freed_without_the_garbage_collector(here: MemoryNode) -> None:
    """An object and its binding name each other while the transaction is open, and no longer."""
    here.load(Aircraft(f"N{i}") for i in range(3))
    gc.collect()
    gc.disable()
    try:
        with here.transaction() as tx:
            kept = weakref.ref(tx.get(Aircraft, "N1"))
            assert kept() is not None
        assert kept() is None
    finally:
        gc.enable()


def test_verbs_of_an_ended_transaction_are_refused(node: MemoryNode) -> None:
    with node.transaction() as tx:
        pass
    uses = (
        lambda: tx.find(Plain, 1),
        lambda: tx.get(Plain, 1),
        lambda: tx.create(Plain(1)),
        lambda: list(tx.extent(Plain)),
        lambda: tx.commit(),
        lambda: tx.__enter__(),
        lambda: tx.delete(Plain(1)),
    )
    for use in uses:
        with pytest.raises(NoTransactionError):
            use()


def test_outside_a_transaction_the_verbs_are_refused(node: MemoryNode) -> None:
    for use in (lambda: node.get(Plain, 1), lambda: node.create(Plain(1)), ht.current):
        with pytest.raises(NoTransactionError, match="with node"):
            use()


def test_an_iterator_of_an_ended_transaction_stops_with_an_error(node: MemoryNode) -> None:
    node.load(Plain(i) for i in range(3))
    with node.transaction() as tx:
        extent = tx.extent(Plain)
        next(extent)
    with pytest.raises(NoTransactionError):
        list(extent)


def test_transactions_do_not_nest(node: MemoryNode) -> None:
    with node.transaction() as tx:
        with pytest.raises(TransactionError, match="do not nest"), node.transaction():
            pass
        assert ht.current() is tx
        tx.create(Plain(1))
    with node.transaction() as tx:
        assert tx.get(Plain, 1).id == 1


def test_the_current_transaction_is_this_nodes_only(here: MemoryNode) -> None:
    with (
        MemoryNode(registry=REGISTRY) as other,
        here.transaction(),
        pytest.raises(NoTransactionError, match="this node"),
    ):
        other.get(Plain, 1)


def test_threads_have_their_own_transaction(here: MemoryNode) -> None:
    seen: list[object] = []

    def other() -> None:
        try:
            ht.current()
        except NoTransactionError as error:
            seen.append(type(error))
        with here.transaction() as tx:
            seen.append(ht.current() is tx)

    with here.transaction() as tx:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert ht.current() is tx
    assert seen == [NoTransactionError, True]


def test_tasks_have_their_own_transaction(here: MemoryNode) -> None:
    """A task copies its creator's context; it must not get into its transaction by that."""

    async def child() -> bool:
        with pytest.raises(NoTransactionError):
            ht.current()
        with here.transaction() as tx:
            await asyncio.sleep(0)
            return ht.current() is tx

    async def parent() -> bool:
        with here.transaction() as tx:
            mine = await asyncio.gather(child(), child())
            return all(mine) and ht.current() is tx

    assert asyncio.run(parent())


def test_a_copied_context_keeps_the_transaction(here: MemoryNode) -> None:
    """Carrying a transaction into a worker thread on purpose works (asyncio.to_thread does it)."""
    with here.transaction() as tx:
        context = contextvars.copy_context()
        seen: list[object] = []
        thread = threading.Thread(target=lambda: context.run(lambda: seen.append(ht.current())))
        thread.start()
        thread.join()
    assert seen == [tx]


def test_a_forked_child_cannot_use_the_node(here: MemoryNode) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with here.transaction():
                pass
        except ForkedError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_closed_node_begins_nothing(here: MemoryNode) -> None:
    here.close()
    for use in (here.transaction, lambda: here.load([])):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.feature("R8")
def test_a_record_too_large_names_size_limit_and_the_largest_objects(here: MemoryNode) -> None:
    before = here.state_hash()
    with pytest.raises(RecordTooLargeError) as caught, here.transaction() as tx:
        tx.create(Plain(1, "x" * 1_000_000))
        tx.create(Plain(2, "y" * 4_100_000))
    assert caught.value.evidence["limit"] == 5_000_000
    assert caught.value.evidence["size"] > 5_100_000
    assert [name for name, _ in caught.value.evidence["largest"]] == ["Plain 2", "Plain 1"]
    assert "Plain 2 (4,1" in str(caught.value)
    assert here.state_hash() == before


@pytest.mark.feature("R8")
@pytest.mark.parametrize(("size", "passes"), [(4_900_000, True), (4_999_990, False), (5_100_000, False)])
def test_the_limit_is_that_of_the_whole_record(here: MemoryNode, size: int, passes: bool) -> None:
    """4.9 MB pass; 4,999,990 bytes of value do not fit beside the envelope, which only the writer knows."""
    tx = here.transaction()
    with contextlib.nullcontext() if passes else pytest.raises(RecordTooLargeError, match="Plain 1"), tx:
        tx.create(Plain(1, "x" * size))
    assert tx.outcome == ("committed" if passes else "rolled back")


def test_an_unknown_outcome_names_the_transaction(here: MemoryNode) -> None:
    def lost(partition: str, work: object) -> None:
        raise OutcomeUnknownError("no answer")

    here.backend.before_commit = lost
    with pytest.raises(OutcomeUnknownError) as caught, here.transaction() as tx:
        one = tx.create(Plain(1))
    assert tx.outcome == "unknown"
    assert tx.id is not None
    assert caught.value.evidence["tx"] == tx.id.hex()
    with pytest.raises(NoTransactionError), here.transaction() as tx2:
        tx2.create(one)


def test_an_unreachable_node_rolls_back(node: MemoryNode) -> None:
    before = node.state_hash()
    with pytest.raises(HalogError) as caught, node.transaction() as tx:
        tx.create(Plain(1))
        node.backend.unreachable = True
    assert caught.value.happened is False
    assert tx.outcome == "rolled back"
    assert node.state_hash() == before
