"""halog.aio: a commit under way: late answers, none at all, and tasks cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import halog.aio
from halog.backend import Work
from halog.errors import NoTransactionError, OutcomeUnknownError, StoreError
from halog.testing.nodes import MemoryNode
from halog.transactions.mailbox import Answer, Mailbox
from tests.unit.transactions.awaiting import run
from tests.unit.transactions.model import Plain

pytestmark = pytest.mark.feature("D1")


def test_a_commit_that_was_sent_is_settled_before_the_task_ends() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        sent, go_on = threading.Event(), threading.Event()

        def hold(partition: str, work: Work) -> None:
            sent.set()
            assert go_on.wait(5)

        sync.backend.before_commit = hold
        kept: list[halog.aio.Transaction] = []

        async def write() -> None:
            async with node.transaction() as tx:
                kept.append(tx)
                await tx.create(Plain(1))

        task = asyncio.ensure_future(write())
        await asyncio.to_thread(sent.wait, 5)
        task.cancel()
        await asyncio.sleep(0.02)
        task.cancel()
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kept[0].outcome == "committed"
        assert kept[0].sync.lsn == 1

    run(body)


def test_the_loop_is_not_blocked_while_a_commit_waits() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        go_on = threading.Event()

        def hold(partition: str, work: Work) -> None:
            assert go_on.wait(5)

        sync.backend.before_commit = hold

        async def write() -> None:
            async with node.transaction() as tx:
                await tx.create(Plain(1))

        task = asyncio.ensure_future(write())
        await asyncio.sleep(0.02)
        assert not task.done()
        go_on.set()
        await task

    run(body)


def test_a_commit_that_is_not_settled_at_once_is_presented_again_under_its_id() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        ids: list[bytes] = []
        begin, commit = sync.backend.begin_commit, sync.backend.commit

        def lost(partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
            ids.append(tx)
            return begin(partition, tx, work, lambda lsn: done(None))

        def again(partition: str, tx: bytes, work: Work) -> int:
            ids.append(tx)
            return commit(partition, tx, work)

        async with node.transaction() as tx:
            sync.backend.begin_commit, sync.backend.commit = lost, again  # type: ignore[method-assign]
            await tx.create(Plain(1))
        assert tx.outcome == "committed"
        assert len(ids) == 3  # the first attempt of the fake itself goes through `commit`, too
        assert len(set(ids)) == 1
        assert tx.sync.lsn == 1

    run(body)


def test_many_answers_wake_the_loop_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        looks: list[int] = []
        mail = Mailbox(loop, lambda: looks.append(1))
        futures = [Answer(loop=loop) for _ in range(5)]
        rung = []
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *a, **k: rung.append(1) or real(*a, **k)  # type: ignore[method-assign,func-returns-value]

        def answer() -> None:
            for n, f in enumerate(futures):
                mail.put(f, n)

        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
        assert await asyncio.gather(*futures) == [0, 1, 2, 3, 4]
        assert rung == [1]
        await asyncio.sleep(0)
        assert looks == [1]

    asyncio.run(main())


@pytest.mark.feature("R5")
def test_who_assigns_while_the_commit_is_under_way_changes_nothing_for_others() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as tx:
            await tx.create(Plain(1, "old"))
        entered, go_on = threading.Event(), threading.Event()

        def hold(partition: str, work: Work) -> None:
            entered.set()
            assert go_on.wait(5)

        kept: list[Plain] = []

        async def write() -> None:
            async with node.transaction() as tx:
                kept.append(await tx.get(Plain, 1))
                kept[0].text = "new"

        sync.backend.before_commit = hold
        task = asyncio.ensure_future(write())
        await asyncio.to_thread(entered.wait, 5)
        kept[0].text = "late"
        sync.backend.before_commit = None
        go_on.set()
        await task
        async with node.transaction() as tx:
            assert (await tx.get(Plain, 1)).text == "new"

    run(body)


def test_a_transaction_that_is_being_committed_refuses_every_verb() -> None:
    """Another task of the same transaction is too late: what it did would be lost."""

    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        entered, go_on = threading.Event(), threading.Event()

        def hold(partition: str, work: Work) -> None:
            entered.set()
            assert go_on.wait(5)

        tx = node.transaction()

        async def write() -> None:
            async with tx:
                await tx.create(Plain(1))

        sync.backend.before_commit = hold
        task = asyncio.ensure_future(write())
        await asyncio.to_thread(entered.wait, 5)
        assert tx.outcome == "committing"
        for late in (tx.create(Plain(2)), tx.get(Plain, 1), tx.commit()):
            with pytest.raises(NoTransactionError, match="is being committed"):
                await late
        go_on.set()
        await task
        assert tx.outcome == "committed"

    run(body)


def test_a_commit_that_cannot_even_begin_ends_with_its_error() -> None:
    """The local store fails while versions are looked up: the transaction is over, and says why."""

    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as tx:
            await tx.create(Plain(1))

        def broken(*args: Any) -> Any:
            raise StoreError("the disk is full")

        begin, commit = sync.backend.begin_commit, sync.backend.commit
        sync.backend.begin_commit = sync.backend.commit = broken  # type: ignore[method-assign, assignment]
        tx = node.transaction()
        with pytest.raises(StoreError):
            async with tx:
                (await tx.get(Plain, 1)).text = "never"
        assert tx.outcome == "rolled back"
        sync.backend.begin_commit, sync.backend.commit = begin, commit  # type: ignore[method-assign]
        async with node.transaction() as tx:
            assert (await tx.get(Plain, 1)).text == ""

    run(body)


def test_a_cancelled_commit_that_conflicts_is_cancelled_and_not_run_again() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        async with node.transaction() as tx:
            await tx.create(Plain(1))
        entered, go_on = threading.Event(), threading.Event()

        def hold(partition: str, work: Work) -> None:
            sync.backend.before_commit = None
            entered.set()
            assert go_on.wait(5)
            with sync.transaction():
                sync.get(Plain, 1).text = "theirs"

        calls: list[halog.aio.Transaction] = []

        @node.transactional()
        async def change(tx: halog.aio.Transaction) -> None:
            calls.append(tx)
            (await tx.get(Plain, 1)).text = "mine"

        sync.backend.before_commit = hold
        task = asyncio.ensure_future(change())
        await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert [tx.outcome for tx in calls] == ["rolled back"]

    run(body)


def test_an_answer_that_does_not_come_in_time_is_said_to_be_late() -> None:
    async def main() -> None:
        mail = Mailbox(asyncio.get_running_loop(), lambda: None)
        first = mail.expect(0.02)
        await asyncio.sleep(0.01)
        second, third = mail.expect(0.02), mail.expect(0.02)
        mail.put(third, 7)
        for answer in (first, second):
            with pytest.raises(OutcomeUnknownError):
                await answer
        assert await third == 7
        later = mail.expect(0.02)  # the timer goes on for those that come after
        with pytest.raises(OutcomeUnknownError):
            await later

    asyncio.run(main())


def test_answers_for_a_closed_loop_are_nobodys() -> None:
    loop = asyncio.new_event_loop()
    mail = Mailbox(loop, lambda: None)
    answer = Answer(loop=loop)
    loop.close()
    assert not mail.put(answer, 1)
    assert not answer.done()


def test_a_commit_whose_node_was_closed_meanwhile_is_unknown() -> None:
    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        def closing(partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
            node.pool.shutdown()
            done(None)
            return True

        def closed(partition: str, tx: bytes, work: Work) -> int:
            raise OutcomeUnknownError("the node was closed while this commit was under way")

        tx = node.transaction()
        with pytest.raises(OutcomeUnknownError):
            async with tx:
                sync.backend.begin_commit, sync.backend.commit = closing, closed  # type: ignore[method-assign]
                await tx.create(Plain(1))
        assert tx.outcome == "unknown"
        node.pool = ThreadPoolExecutor(1)

    run(body)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_commit_nobody_answers_is_unknown_when_its_time_is_up(cancelled: bool) -> None:
    """Its task, which cannot be cancelled meanwhile, is free then; an answer that comes later is nobody's."""

    async def body(node: halog.aio.Node, sync: MemoryNode) -> None:
        late: list[Callable[[int | None], bool]] = []

        def never(partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
            late.append(done)
            return True

        sync.backend.begin_commit = never  # type: ignore[method-assign]
        sync.backend.deadline_s = 0.05
        sync.backend.epoch_of = lambda partition: 7  # type: ignore[method-assign]
        tx = node.transaction()

        async def write() -> None:
            async with tx:
                await tx.create(Plain(1))

        task = asyncio.ensure_future(write())
        await asyncio.sleep(0)
        if cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else OutcomeUnknownError) as caught:
            await task
        assert tx.outcome == "unknown"
        if isinstance(caught.value, OutcomeUnknownError):
            assert caught.value.evidence["tx"] == (tx.sync.id or b"").hex()
            assert caught.value.evidence["epoch"] == 7
        assert late[0](7)
        assert tx.sync.lsn is None

    run(body)
