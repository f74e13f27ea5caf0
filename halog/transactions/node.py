"""What an application holds: a node's verbs, its transactions and bulk load.

Never talks to a server itself: everything goes through the `Backend` it was given. The verbs are those of the current
transaction; they exist here so that an application needs to pass around one thing only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, Self, TypeVar, overload

from halog.backend import Backend, Outcome
from halog.core.durability import Durability, checked
from halog.errors import ClosedError, HalogError, NoTransactionError, RefusedError
from halog.schema.reference import Ref
from halog.schema.registry import DEFAULT, Registry
from halog.transactions import load as bulk, outcomes, retry
from halog.transactions.context import check_may_change, forked_error, open_here
from halog.transactions.execute import Executor
from halog.transactions.space import MAX_RECORD_BYTES, Space
from halog.transactions.token import Token, merged
from halog.transactions.writing import MODES, Read, Transaction

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Node:
    """A node, as applications use it. Thread-safe. Close it, or use it in a with-block.

    `close_backend` is called by `close`; `definition_of` gives the stored definition of a type id, for objects written
    by older classes; `application_modules` are those whose exceptions may cross nodes.
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
        one that opened it there is nothing to leave: it returns at once."""
        if not self._closed and not self.forked:
            self.space.kept.look(last=True)
            self.abandon()
            if self._close_backend is not None:
                self._close_backend()

    @property
    def forked(self) -> bool:
        """Was it opened by another process, which this one was forked from? Then it is that one's (ForkedError)."""
        return self.space.forked

    def check_open(self) -> None:
        """ClosedError once it is closed; ForkedError in a child of the process that opened it."""
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
        """A transaction, for a with-block (D1). `read="local"`: read-only, from this node's own copies where it has
        them, each partition at one moment (ConflictError where it is not known any more what was then); `tx.lag` tells
        how old that was. `read="barrier"`: linearizable, and may write: before the first
        read of a partition its active node shows by a record in the log that it still is active (R5); QuorumError below
        the quorum. `read="lease"`: the same promise, and no question while the active node's lease lasts; only where
        the policy has leases. `after`: tokens of earlier transactions, on any node (`tx.token`); reads are no older
        than what those saw and wrote: they wait for it, or raise DeadlineError (R5). RefusedError for any other `read`.
        `durability`: what its commit waits for, where that is not what the policy says (R6); the commit raises
        RefusedError if the policy cannot give it, ReplicasError if too few replicas are there. ClosedError; see
        `Transaction.__enter__`."""
        if self._closed or self.space.forked:
            self.check_open()
        tx = self._special(read, merged(after)) if read != "active" or after else Transaction(self.space)
        if durability is not None:
            tx.durability = checked(durability)
        return tx

    def _special(self, read: str, after: dict[str, int]) -> Transaction:
        if read not in MODES:
            raise RefusedError(f"read={read!r} is none of {', '.join(MODES)}; see docs/guides/reads.md", read=read)
        return Transaction.special_one(
            self.space, local=read == "local", after=after, barrier=read == "barrier", leased=read == "lease"
        )

    def begin(self, settled: Mapping[str, int], durability: Durability | None = None) -> Transaction:
        """A transaction whose reads wait for these positions."""
        if self._closed or self.space.forked:
            self.check_open()
        tx = Transaction.special_one(self.space, settled=settled) if settled else Transaction(self.space)
        if durability is not None:
            tx.durability = durability
        return tx

    @overload
    def transactional(self, func: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def transactional(
        self, /, *, retries: int = retry.RETRIES, durability: Durability | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def transactional(
        self,
        func: Callable[..., Any] | None = None,
        /,
        *,
        retries: int = retry.RETRIES,
        durability: Durability | None = None,
    ) -> Any:
        """`@node.transactional(retries=5)`: run the function in a transaction, again after a ConflictError, at most
        `retries` times (D1); `durability` as in `transaction` (R6). Raises the last ConflictError."""
        made: Callable[..., Any] = retry.decorate(lambda: self, retries, durability)
        return made if func is None else made(func)

    def current(self) -> Transaction:
        """This node's transaction in this thread or task; NoTransactionError if none is open."""
        tx = open_here()
        if tx is None or tx.space is not self.space:
            if self.forked:
                raise forked_error()
            raise NoTransactionError("no transaction of this node is open here; write `with node.transaction():`")
        return tx

    def outcome(self, of: Transaction | HalogError) -> Outcome:
        """What became of a transaction whose commit raised OutcomeUnknownError, on any node, by the transaction or by
        the error: "happened"; "did not happen", and it will not; "expired": nobody remembers an id that old; "unknown":
        it may still happen, ask again. It is waited for, up to `timing.call_deadline_ms`. Over several partitions
        what is not decided is given up by asking. AvailabilityError: nobody is there to say. NoTransactionError: it has
        not ended."""
        self.check_open()
        return outcomes.outcome(self.backend, of)

    # --- verbs of the current transaction ---

    def create(self, obj: T) -> T:
        """See `Transaction.create` (D1)."""
        return self.current().create(obj)

    def get(self, cls: type[T], *key: Any) -> T:
        """See `Transaction.get` (D1)."""
        return self.current().get(cls, *key)

    def find(self, cls: type[T], *key: Any) -> T | None:
        """See `Transaction.find` (D1)."""
        return self.current().find(cls, *key)

    def delete(self, obj: Any) -> None:
        """See `Transaction.delete` (D1)."""
        self.current().delete(obj)

    def extent(self, cls: type[T]) -> Iterator[T]:
        """See `Transaction.extent` (D2)."""
        return self.current().extent(cls)

    def resolve(self, ref: Ref[T]) -> T:
        """See `Transaction.resolve` (D1)."""
        return self.current().resolve(ref)

    def ref(self, obj: T) -> Ref[T]:
        """See `Transaction.ref` (D1); also outside a transaction, for objects of one that committed."""
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
        """Create many objects fast: see `load.load`."""
        self.check_open()
        check_may_change()
        return bulk.load(self.space, objects, batch=batch, duplicates=duplicates, progress=progress)
