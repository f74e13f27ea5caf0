"""This module offers the API of halog to applications that live in an event loop: the same verbs, awaitable.

    async with node.transaction() as tx:
        aircraft = await tx.get(Aircraft, "N14228")
        await tx.call(aircraft.land, 1400)

No verb blocks the loop. What this node can answer itself is done at once: reads of partitions it is active for (out of
memory, or its own store), and commits to them, whose answer wakes the task. Everything else runs on one of a bounded
number of threads, with the context of the task carried over, so that `halog.current()` works inside methods. Reading
and assigning fields needs no `await`.

A transaction is used by one thread at a time (a lock orders the verbs of one). A verb that has begun is never abandoned
half-way: a cancelled task waits for the request under way, then rolls back. A cancelled commit is settled first; its
outcome is in `tx.outcome`.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from halog.backend import Outcome
from halog.core.durability import Durability
from halog.errors import (
    ClosedError,
    ConflictError,
    DeclarationError,
    HalogError,
    NoTransactionError,
    OutcomeUnknownError,
    RecordFormatError,
    RefusedError,
)
from halog.schema.reference import Ref
from halog.transactions import commit as commits, retry
from halog.transactions.context import CURRENT, check_may_change, forked_error
from halog.transactions.kind import USUAL, Read, TransactionKind
from halog.transactions.load import BATCH, Duplicates, Loaded
from halog.transactions.mailbox import Mailbox
from halog.transactions.node import Node as SyncNode
from halog.transactions.reading import OPEN
from halog.transactions.token import Token
from halog.transactions.writing import Transaction as SyncTransaction

if TYPE_CHECKING:
    from halog.runtime.events.node_notifiers import NodeChange

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

THREADS: Final = 32
"""Requests under way at once per node. A commit takes about a millisecond, so this allows tens of thousands a
second."""
PAGE: Final = 200
"""Objects of an extent that one hop to a thread fetches."""


class Node:
    """A `Node` wraps an ordinary node for an event loop: `Node(halog.node("halog.toml"))`, or `await open(...)`.
    `threads` limits the requests under way at once. Close it, or use it in an `async with` block."""

    def __init__(self, node: SyncNode, *, threads: int = THREADS) -> None:
        self.sync = node
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="halog-aio")
        self._mail: Mailbox | None = None
        self._closed = False

    def submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Run `work` on a thread. NoTransactionError once the node is closed; ForkedError in a child of the process
        that opened it, which does not have the threads."""
        if self.sync.space.forked:
            raise forked_error()
        try:
            return asyncio.wrap_future(self.pool.submit(work))
        except RuntimeError as error:  # the pool is shut down
            raise NoTransactionError(f"the node is closed: {error}") from error

    def mailbox(self) -> Mailbox:
        """Return the mailbox through which the running loop gets its answers."""
        loop = asyncio.get_running_loop()
        mail = self._mail
        if mail is None or mail.loop is not loop:
            backend = self.sync.backend
            mail = self._mail = Mailbox(loop, backend.follow_up)
        return mail

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the cluster, when the requests under way are done. In a forked child it does nothing, nor again."""
        if self.sync.forked or self._closed:
            return
        self._closed = True
        await _finished(self.submit(self.sync.close))
        self.pool.shutdown(wait=False)

    def transaction(
        self, *, read: Read = "active", after: Token | Iterable[Token] = (), durability: Durability | None = None
    ) -> Transaction:
        """Return a new transaction, for an `async with` block; see `halog.Node.transaction` (D1, R6)."""
        return Transaction(self, self.sync.transaction(read=read, after=after, durability=durability))

    def transactional(
        self,
        *,
        retries: int = retry.RETRIES,
        read: Read = "active",
        after: Token | Iterable[Token] = (),
        durability: Durability | None = None,
    ) -> Callable[[Callable[Concatenate[Transaction, P], Awaitable[R]]], Callable[P, Awaitable[R]]]:
        """Decorate a coroutine function whose first parameter is the transaction: `@node.transactional()` over `async
        def land(tx, tail)`, called as `land(tail)`. After a ConflictError it is run again, at most `retries` times
        (D1); `read`, `after` and `durability` are as in `transaction` (R5, R6)."""
        kind = TransactionKind.of(read, after, durability)

        def wrap(func: Callable[Concatenate[Transaction, P], Awaitable[R]]) -> Callable[P, Awaitable[R]]:
            if not inspect.iscoroutinefunction(func):
                raise DeclarationError(f"{getattr(func, '__qualname__', func)}: not a coroutine function")

            @functools.wraps(func)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                return await self._run(lambda tx: func(tx, *args, **kwargs), retries, kind)

            return call

        return wrap

    async def _run(self, func: Callable[[Transaction], Awaitable[R]], retries: int, kind: TransactionKind = USUAL) -> R:
        settled: dict[str, int] = {}
        attempts = retry.RetryCounter(retries)
        while True:
            try:
                async with Transaction(self, self.sync.begin(settled, kind)) as tx:
                    return await func(tx)
            except ConflictError as error:
                seconds = attempts.failed(error)
                retry.remember(settled, error)
            await asyncio.sleep(seconds)

    async def outcome(self, of: Transaction | HalogError) -> Outcome:
        """Say what became of a transaction whose commit raised OutcomeUnknownError, or was cancelled; see
        `halog.Node.outcome`."""
        asked = of.sync if isinstance(of, Transaction) else of
        return await _finished(self.submit(partial(self.sync.outcome, asked)))

    async def load(self, objects: Iterable[Any], *, batch: int = BATCH, duplicates: Duplicates = "raise") -> Loaded:
        """Create many objects fast; see `halog.Node.load`. A thread reads the iterable."""
        check_may_change()  # that thread has another context
        return await _finished(self.submit(partial(self.sync.load, objects, batch=batch, duplicates=duplicates)))

    # --- other nodes ---

    def node_states(self) -> dict[str, NodeChange]:
        """See `node_states` of a running node (N3); it needs no I/O, so no `await`."""
        found: dict[str, NodeChange] = self._running.node_states()
        return found

    def on_node_change(
        self, *, available: NodeNotifier | None = None, unavailable: NodeNotifier | None = None
    ) -> Callable[[], None]:
        """Call coroutine functions in the running loop for remote nodes that come and go: `async def came(tx, change)`.
        Returns what takes both away again (N3).

        What the transaction changes happens when the coroutine returns; after a ConflictError it is run again. For one
        node they run one after the other, for several side by side. Once the loop has ended no call begins.
        RefusedError: neither is given, or it is no coroutine function; ClosedError, ForkedError. See `on_node_change`
        of a running node.
        """
        loop = asyncio.get_running_loop()
        if available is None and unavailable is None:
            raise RefusedError("nothing to call: give on_node_change available=…, unavailable=…, or both")
        remove: Callable[[], None] = self._running.follow_nodes(
            self._handed_over(loop, "available", available), self._handed_over(loop, "unavailable", unavailable)
        )
        return remove

    @property
    def _running(self) -> Any:
        """Return the node as one of a cluster: a node without one, as tests have it, knows of no other nodes."""
        return self.sync

    def _handed_over(
        self, loop: asyncio.AbstractEventLoop, name: str, notifier: NodeNotifier | None
    ) -> Callable[[NodeChange], None] | None:
        """Return what a thread calls: it has the loop run the notifier, and waits for its end."""
        if notifier is None:
            return None
        if not inspect.iscoroutinefunction(notifier):
            said = "is no coroutine function; give `async def` of a transaction and a NodeChange"
            raise RefusedError(f"on_node_change: {name}={notifier!r} {said}")

        @functools.wraps(notifier)
        def call(change: NodeChange) -> None:
            running = self._run(lambda tx: notifier(tx, change), retry.RETRIES)
            try:
                future = asyncio.run_coroutine_threadsafe(running, loop)
            except RuntimeError:
                running.close()
                raise ClosedError("the event loop that it was to run in has ended") from None
            future.result()

        return call


class Transaction:
    """A `Transaction` reads and changes objects; everything it changes happens at its end, or nothing.
    `Node.transaction()` returns one; use it in an `async with` block. Its verbs raise what those of `halog.Transaction`
    raise."""

    def __init__(self, node: Node, tx: SyncTransaction) -> None:
        self.sync = tx
        self._node = node
        self._lock = asyncio.Lock()
        """A verb that runs on a thread holds this lock."""
        self._context: contextvars.Context | None = None

    async def __aenter__(self) -> Transaction:
        self.sync.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                await self.commit()
        finally:
            if self.sync.space.forked:  # this thread rolls back, the only one there is
                self.sync.rollback()
            elif self.sync.state == OPEN:
                await _finished(asyncio.ensure_future(self._run(True, self.sync.rollback)))

    @property
    def outcome(self) -> str:
        """See `halog.Transaction.outcome`."""
        return self.sync.outcome

    @property
    def token(self) -> Token:
        """See `halog.Transaction.token`."""
        return self.sync.token

    async def commit(self) -> None:
        """End the transaction and keep its changes; the end of the block does this by itself. See
        `halog.Transaction.commit`."""
        while self._lock.locked():  # a verb is under way
            async with self._lock:
                pass
        tx = self.sync
        tx.check_open()
        if not self._commits_here():
            await self._do(tx.commit)
            return
        presented = commits.prepare(tx)  # from here on every other verb is refused
        if presented is None:
            return
        if presented.works is not None:
            await self._settle(presented)
            return
        assert tx.id is not None
        mail = self._node.mailbox()
        answer = mail.expect(tx.backend.deadline_of(presented.partition))
        try:
            begun = tx.backend.begin_commit(presented.partition, tx.id, presented.work, partial(mail.put, answer))
        except Exception:  # it is presented again below, under the same id, which raises what is wrong
            begun = False
        if not begun:
            answer.give(None)
            await self._settle(presented)
            return
        mail.follow()
        try:
            lsn = await answer
        except asyncio.CancelledError:  # it comes only when the answer is there
            if answer.exception() is None:
                with suppress(HalogError):  # the caller gets the cancellation; `outcome` tells the rest
                    await self._settled(presented, answer.result())
            else:
                commits.unanswered(tx, presented.partition)
            raise
        except OutcomeUnknownError as error:
            raise commits.unanswered(tx, presented.partition) from error
        await self._settled(presented, lsn)

    def _commits_here(self) -> bool:
        partitions = self.sync.partitions()
        backend = self.sync.backend
        if not backend.mapped.listed.keys().isdisjoint(partitions):  # their key directory may be elsewhere
            return False
        return bool(partitions) and all(map(backend.is_active, partitions))

    async def _settled(self, presented: commits.CommitRequest, lsn: int | None) -> None:
        if lsn is not None:
            commits.happened(self.sync, presented, lsn)
        else:
            await _finished(asyncio.ensure_future(self._settle(presented)))

    async def _settle(self, presented: commits.CommitRequest) -> None:
        """Make a thread present the commit until an answer comes, since the first attempt got none."""
        try:
            settled = self._node.submit(partial(commits.finish, self.sync, presented))
        except NoTransactionError:  # the node was closed meanwhile: this answers at once
            commits.finish(self.sync, presented)
        else:
            await _finished(settled)

    async def create(self, obj: T) -> T:
        """See `halog.Transaction.create` (D1)."""
        listed = self.sync.backend.mapped.listed  # a mapper may look at the partitions' loads, and wait for them
        return await self._run(not listed, self.sync.create, obj)

    async def get(self, cls: type[T], *key: Any) -> T:
        """See `halog.Transaction.get` (D1)."""
        if self.sync.is_here(cls, key) and not self._lock.locked():
            return self.sync.get(cls, *key)
        return await self._do(self.sync.get, cls, *key)

    async def find(self, cls: type[T], *key: Any) -> T | None:
        """See `halog.Transaction.find` (D1)."""
        if self.sync.is_here(cls, key) and not self._lock.locked():
            return self.sync.find(cls, *key)
        return await self._do(self.sync.find, cls, *key)

    async def delete(self, obj: Any) -> None:
        """See `halog.Transaction.delete` (D1)."""
        await self._run(True, self.sync.delete, obj)

    async def resolve(self, ref: Ref[T]) -> T:
        """See `halog.Transaction.resolve` (D1)."""
        return await self._do(self.sync.resolve, ref)

    def ref(self, obj: T) -> Ref[T]:
        """See `halog.Transaction.ref`; it needs no I/O, so no `await`."""
        return self.sync.ref(obj)

    async def extent(self, cls: type[T]) -> AsyncIterator[T]:
        """See `halog.Transaction.extent` (D2): `async for aircraft in tx.extent(Aircraft)`."""
        objects = self.sync.extent(cls)
        while True:
            page, error = await self._do(_take, objects, PAGE)
            for obj in page:
                yield obj
            if error is not None:
                raise error
            if not page:
                return

    async def call(self, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of one of this transaction's objects where the object is active (R5)."""
        return await self._do(method, *args, **kwargs)

    async def _run(self, here: bool, func: Callable[..., R], *args: Any) -> R:
        """Run a verb: at once if it needs no other node, and no other verb of this transaction is under way."""
        if here and not self._lock.locked():
            return func(*args)
        return await self._do(func, *args)

    async def _do(self, func: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Run one verb on a thread. If it is cancelled, it is finished first, so nothing of it is under way any
        more."""
        await self._lock.acquire()
        try:
            if self._context is None:
                self._context = contextvars.copy_context()
                self._context.run(CURRENT.set, self.sync)
            work = partial(self._context.run, func, *args, **kwargs)
            future = self._node.submit(work)
        except BaseException:
            self._lock.release()
            raise
        try:
            return await _finished(future)
        finally:
            self._lock.release()


NodeNotifier = Callable[[Transaction, "NodeChange"], Coroutine[Any, Any, object]]
"""What `Node.on_node_change` calls."""


async def _finished(future: asyncio.Future[R]) -> R:
    """Return the result. A cancellation waits for it, too, and is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # asyncio would log it otherwise; the caller gets the cancellation
        raise cancelled
    return future.result()


def _take(objects: Any, count: int) -> tuple[list[Any], RecordFormatError | None]:
    """Return so many objects, and the error that an extent raises behind its last object, if some cannot be read."""
    page: list[Any] = []
    try:
        for obj in objects:
            page.append(obj)
            if len(page) == count:
                break
    except RecordFormatError as error:
        return page, error
    return page, None


async def open(*args: Any, **kwargs: Any) -> Node:  # noqa: A001 - read as `halog.aio.open`
    """Open a node as `halog.node(...)` does, without blocking the loop, and return it awaitable."""
    from halog.runtime.node.open import node

    return Node(await asyncio.to_thread(node, *args, **kwargs))
