"""halog.aio: the same verbs, awaitable; a cancelled task leaves nothing half-way."""

from __future__ import annotations

import asyncio

import pytest

import halog.aio
from halog.errors import ConflictError, NotFoundError, NoTransactionError, RefusedError
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.awaiting import run
from tests.unit.transactions.model import Account, Aircraft, Plain

pytestmark = pytest.mark.feature("D1")


@pytest.mark.parametrize("remote", [False, True])
def test_the_verbs_are_the_same(remote: bool) -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as tx:
            one = await tx.create(Account("x", 1, balance=10))
            await tx.create(Account("x", 2))
            assert await tx.call(one.transfer, 2, amount=4) == 6
            ref = tx.ref(one)
        assert tx.outcome == "committed"
        async with node.transaction() as tx:
            assert (await tx.resolve(ref)).balance == 6
            assert [a.balance async for a in tx.extent(Account)] == [6, 4]
            await tx.delete(await tx.get(Account, "x", 2))
            assert await tx.find(Account, "x", 2) is None
            with pytest.raises(NotFoundError):
                await tx.get(Account, "x", 3)

    run(body, remote=remote)


def test_an_exception_rolls_back() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        before = sync.state_hash()
        with pytest.raises(KeyError):
            async with node.transaction() as tx:
                await tx.create(Plain(1))
                raise KeyError
        assert sync.state_hash() == before
        assert tx.outcome == "rolled back"
        with pytest.raises(NoTransactionError):
            await tx.find(Plain, 1)

    run(body)


def test_concurrent_verbs_of_one_transaction_take_turns() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        await node.load(Plain(i) for i in range(50))
        async with node.transaction() as tx:
            found = await asyncio.gather(*(tx.get(Plain, i) for i in range(50)))
            assert [p.id for p in found] == list(range(50))

    run(body)


def test_tasks_have_their_own_transactions() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async def create(i: int) -> None:
            async with node.transaction() as tx:
                await tx.create(Plain(i))

        await asyncio.gather(*(create(i) for i in range(20)))
        async with node.transaction() as tx:
            assert len([p async for p in tx.extent(Plain)]) == 20

    run(body)


def test_a_conflict_is_run_again() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        await node.load([Aircraft("N1")])

        @node.transactional(retries=50)
        async def fly(tx: halog.aio.Transaction, miles: int) -> int:
            one = await tx.get(Aircraft, "N1")
            await asyncio.sleep(0)
            one.miles += miles
            return one.miles

        await asyncio.gather(*(fly(1) for _ in range(8)))
        assert await fly(0) == 8

        @node.transactional(retries=0)
        async def lose(tx: halog.aio.Transaction) -> None:
            one = await tx.get(Aircraft, "N1")
            await fly(1)
            one.miles = 0

        with pytest.raises(ConflictError):
            await lose()

    run(body)


def test_a_task_cancelled_between_verbs_is_rolled_back() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        before = sync.state_hash()
        begun = asyncio.Event()
        kept: list[halog.aio.Transaction] = []

        async def slow() -> None:
            async with node.transaction() as tx:
                kept.append(tx)
                await tx.create(Plain(1))
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(slow())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kept[0].outcome == "rolled back"
        assert sync.state_hash() == before

    run(body)


def test_what_this_node_can_answer_itself_needs_no_thread() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        threads, node.pool = node.pool, None  # type: ignore[assignment]
        async with node.transaction() as tx:
            await tx.create(Plain(1))
        async with node.transaction() as tx:
            (await tx.get(Plain, 1)).text = "b"
        async with node.transaction() as tx:
            assert (await tx.get(Plain, 1)).text == "b"
            await tx.delete(await tx.get(Plain, 1))
            assert await tx.find(Plain, 1) is None
        assert tx.sync.lsn == 3
        node.pool = threads

    run(body)


def test_a_conflict_is_told_as_in_threads() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as tx:
            await tx.create(Plain(1))
        with pytest.raises(ConflictError, match="Plain 1"):
            async with node.transaction() as tx:
                (await tx.get(Plain, 1)).text = "mine"
                with sync.transaction():
                    sync.get(Plain, 1).text = "theirs"
        assert tx.outcome == "rolled back"

    run(body)


@pytest.mark.feature("R5")
def test_a_decorated_coroutine_asks_what_a_transaction_may_ask() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as made:
            await made.create(Plain(1))

        @node.transactional(read="local", after=made.token)
        async def look(tx: halog.aio.Transaction, number: int) -> tuple[bool, dict[str, int]]:
            await tx.get(Plain, number)
            return tx.sync.local, dict(tx.sync.after or {})

        assert await look(1) == (True, made.token.positions)
        with pytest.raises(RefusedError, match="read='stale' is none of"):
            node.transactional(read="stale")  # type: ignore[arg-type]

    run(body)


def test_a_node_may_be_closed_again() -> None:
    """By a block, behind an explicit close."""

    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node:
            await node.close()
        with pytest.raises(NoTransactionError, match="the node is closed"):
            await node.submit(list)

    run(body)
