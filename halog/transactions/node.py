"""This module holds the node as an application sees it: its verbs, its transactions and bulk load.

It never talks to a server itself: everything goes through the `Backend` it was given. The verbs are those of the
current transaction; they exist here so that an application needs to pass around one thing only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, Self, TypeVar, overload

from halog.backend import Backend, Outcome
from halog.core.durability import Durability, checked
from halog.errors import ClosedError, HalogError, NoTransactionError
from halog.schema.reference import Ref
from halog.schema.registry import DEFAULT, Registry
from halog.transactions import load as bulk, outcomes, retry
from halog.transactions.context import check_may_change, forked_error, open_here
from halog.transactions.execute import Executor
from halog.transactions.kind import USUAL, Read, TransactionKind, check_read
from halog.transactions.space import MAX_RECORD_BYTES, Space
from halog.transactions.token import Token, merged
from halog.transactions.writing import Transaction

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Node:
    """A `Node` is an application's way to its objects: it begins transactions, and has the verbs of the current one.

    `halog.node(...)` opens one. It is thread-safe. Close it, or use it in a with-block. `close` calls `close_backend`;
    `definition_of` returns the stored definition of a type id, for objects written by older classes; exceptions of
    `application_modules` may cross nodes.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry = DEFAULT,
        *,
        definition_of: Callable[[bytes], str | bytes | None] | None = None,
        application_modules: Collection[str] = (),
        max_record_bytes: int = MAX_RECORD_BYTES,
        close_backend: Callable[[], None] | None = None,
    ) -> None:
        self.backend = backend
        self.space = Space(
            backend,
            registry,
            definition_of=definition_of,
            application_modules=application_modules,
            max_record_bytes=max_record_bytes,
        )
        self.executor = Executor(self.space)
        self._close_backend = close_backend
        self._closed = False
        retry.OPEN_NODES.append(self)

    # --- life ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster. Open transactions of this node can no longer commit. In a process that was forked from the
        one that opened the node it does nothing."""
        if not self._closed and not self.forked:
            self.space.kept.look(last=True)
            self.abandon()
            if self._close_backend is not None:
                self._close_backend()

    @property
    def forked(self) -> bool:
        """Was the node opened by the process that this one was forked from? Then only that process may use it
        (ForkedError)."""
        return self.space.forked

    def check_open(self) -> None:
        """Check that the node may be used. ClosedError once it is closed; ForkedError in a child of the process that
        opened it."""
        if self._closed:
            raise ClosedError("the node is closed")
        if self.forked:
            raise forked_error()

    def abandon(self) -> None:
        """Begin no more transactions, but leave the backend as it is: for tests that pull its plug."""
        self._closed = True
        if self in retry.OPEN_NODES:
            retry.OPEN_NODES.remove(self)

    # --- transactions ---

    def transaction(
        self, *, read: Read = "active", after: Token | Iterable[Token] = (), durability: Durability | None = None
    ) -> Transaction:
        """Return a new transaction, for a with-block (D1).

        `read="active"`: reads ask the partition's active node.

        `read="local"`: the transaction only reads, from this node's own copies where it has them. It sees each
        partition at one moment; `tx.lag` tells how old that is. ConflictError where the state of an object at that
        moment is not known any more.

        `read="barrier"`: reads are linearizable, and the transaction may write. Before its first read of a partition
        the active node appends a record to the log, which proves that it is still active (R5). QuorumError below the
        quorum.

        `read="lease"`: the same promise as a barrier, without a record while the active node's lease lasts. Only where
        the policy has leases.

        `after`: tokens of earlier transactions on any node (`tx.token`). Reads are no older than what those saw and
        wrote: they wait for that, or raise DeadlineError (R5).

        `durability`: what the commit waits for, instead of what the policy says (R6). The commit raises RefusedError if
        the policy cannot give it, ReplicasError if too few replicas are up.

        ClosedError; RefusedError for any other `read`; see `Transaction.__enter__`.
        """
        if self._closed or self.space.forked:
            self.check_open()
        tx = self._special(read, merged(after)) if read != "active" or after else Transaction(self.space)
        if durability is not None:
            tx.durability = checked(durability)
        return tx

    def _special(self, read: str, after: dict[str, int], settled: Mapping[str, int] | None = None) -> Transaction:
        check_read(read)
        return Transaction.special_one(
            self.space,
            local=read == "local",
            settled=settled,
            after=after,
            barrier=read == "barrier",
            leased=read == "lease",
        )

    def begin(self, settled: Mapping[str, int], kind: TransactionKind = USUAL) -> Transaction:
        """Return a new transaction of this kind, whose reads wait for these positions."""
        if self._closed or self.space.forked:
            self.check_open()
        if kind.read != "active" or kind.after:
            tx = self._special(kind.read, dict(kind.after), settled or None)
        else:
            tx = Transaction.special_one(self.space, settled=settled) if settled else Transaction(self.space)
        if kind.durability is not None:
            tx.durability = kind.durability
        return tx

    @overload
    def transactional(self, func: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def transactional(
        self,
        /,
        *,
        retries: int = retry.RETRIES,
        read: Read = "active",
        after: Token | Iterable[Token] = (),
        durability: Durability | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def transactional(
        self,
        func: Callable[..., Any] | None = None,
        /,
        *,
        retries: int = retry.RETRIES,
        read: Read = "active",
        after: Token | Iterable[Token] = (),
        durability: Durability | None = None,
    ) -> Any:
        """Decorate a function: each call runs it in a transaction, and again after a ConflictError, at most `retries`
        times (D1). Write `@node.transactional` or `@node.transactional(retries=5)`. `read`, `after` and `durability`
        are as in `transaction` (R5, R6). Raises the last ConflictError."""
        kind = TransactionKind.of(read, after, durability)
        made: Callable[..., Any] = retry.decorate(lambda: self, retries, kind)
        return made if func is None else made(func)

    def current(self) -> Transaction:
        """Return this node's transaction in this thread or task; NoTransactionError if none is open."""
        tx = open_here()
        if tx is None or tx.space is not self.space:
            if self.forked:
                raise forked_error()
            raise NoTransactionError("no transaction of this node is open here; write `with node.transaction():`")
        return tx

    def outcome(self, of: Transaction | HalogError) -> Outcome:
        """Say what became of a transaction whose commit raised OutcomeUnknownError, on any node. Give the transaction,
        or the error.

        "happened"; "did not happen", and never will; "expired": it is so old that no partition remembers its id;
        "unknown": it may still happen, ask again. The call waits for the answer, up to `timing.call_deadline_ms`. If
        the transaction is over several partitions and not decided yet, asking gives it up. AvailabilityError: no node
        is there to say. NoTransactionError: the transaction has not ended.
        """
        self.check_open()
        return outcomes.outcome(self.backend, of)

    # --- verbs of the current transaction ---

    def create(self, obj: T) -> T:
        """Keep a new object; see `Transaction.create` (D1)."""
        return self.current().create(obj)

    def get(self, cls: type[T], *key: Any) -> T:
        """Return the object of this class and key; see `Transaction.get` (D1)."""
        return self.current().get(cls, *key)

    def find(self, cls: type[T], *key: Any) -> T | None:
        """Return the object of this class and key, or None; see `Transaction.find` (D1)."""
        return self.current().find(cls, *key)

    def delete(self, obj: Any) -> None:
        """Delete an object; see `Transaction.delete` (D1)."""
        self.current().delete(obj)

    def extent(self, cls: type[T]) -> Iterator[T]:
        """Yield all objects of a class; see `Transaction.extent` (D2)."""
        return self.current().extent(cls)

    def resolve(self, ref: Ref[T]) -> T:
        """Return the object that a reference names; see `Transaction.resolve` (D1)."""
        return self.current().resolve(ref)

    def ref(self, obj: T) -> Ref[T]:
        """Return the object's reference; see `Transaction.ref` (D1). It works outside a transaction, too, for objects
        of one that committed."""
        return Transaction(self.space).ref(obj)

    # --- bulk ---

    def load(
        self,
        objects: Iterable[Any],
        *,
        batch: int = bulk.BATCH,
        duplicates: bulk.Duplicates = "raise",
        progress: Callable[[int], None] | None = None,
    ) -> bulk.Loaded:
        """Create many objects fast, in many commits: not one transaction. What was loaded stays if a later commit
        fails.

        `batch`: objects per commit. `progress(n)` is called with the number of objects loaded so far. Keys that exist
        are left alone; at the end DuplicateKeyError names them, or with `duplicates="skip"` the returned summary does.
        Any other error stops the load; its evidence says how many objects were `loaded`, and the `number` of the object
        to blame, from 1. See `halog.transactions.load.load`.
        """
        self.check_open()
        check_may_change()
        return bulk.load(self.space, objects, batch=batch, duplicates=duplicates, progress=progress)
