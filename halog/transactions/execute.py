"""This module is the active node's side of a remote call: it runs the method inside the initiator's transaction, and
gives that back.

It keeps nothing between two calls: the transaction comes in as `Work` and leaves as `Work`, so a repeated call starts
from the same state and has no effect twice. It never commits. Whatever the method raises is an answer, not an error
here. Only "this node is not active any more", where that is so, is passed on: then the initiator's node asks the next
one.
"""

from __future__ import annotations

from msgspec import structs

from halog.backend import Backend, CommittedObject, Invocation, InvocationResult, Work
from halog.core.ids import ABSENT
from halog.errors import NotActiveError, NotFoundError, RemappedError, RemoteCallError
from halog.schema.registry import Registry
from halog.transactions import failures, work_set as work
from halog.transactions.context import CURRENT
from halog.transactions.reading import ROLLED_BACK
from halog.transactions.space import Space
from halog.transactions.writing import Transaction


class Executor:
    """An `Executor` runs methods for a node's service: `executor(partition, invocation)`. Thread-safe."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def __call__(self, partition: str, invocation: Invocation, *, own: bool = False) -> InvocationResult:
        """Run the method (R5). NotActiveError if this node ceases to be active; RemappedError if the caller has routed
        by an older mapping than this node would. `own`: the caller is this very process, in its own thread, since its
        node became active; then a BaseException that is no Exception passes to the caller, for it may be meant for the
        process."""
        self._agree(partition, invocation.work.mapping)
        tx = Transaction.special_one(self.space, serving=partition)
        token = CURRENT.set(tx)
        try:
            return _run(tx, partition, invocation, own=own)
        finally:
            CURRENT.reset(token)
            tx.finish(ROLLED_BACK)

    def _agree(self, partition: str, version: int) -> None:
        """Route by the mapping that the method's object was routed by, else they would not meet in one partition
        (T8)."""
        known = self.space.backend.mapped.versions.get(partition, 0)
        if known < version:
            self.space.backend.relearn(partition, version)
            self.space.forget_routes()
        elif known > version:
            raise RemappedError(
                f"a method of partition {partition} was called by mapping version {version}, and {known} is served; "
                "nothing was done: run the transaction again",
                partition=partition,
                mapping=known,
            )


def execute(partition: str, invocation: Invocation, backend: Backend, registry: Registry) -> InvocationResult:
    """Run one method with nothing remembered between calls."""
    return Executor(Space(backend, registry))(partition, invocation)


def _run(tx: Transaction, partition: str, invocation: Invocation, *, own: bool) -> InvocationResult:
    given = invocation.work
    tx.running = invocation.key
    tx.expected.update(given.reads)
    try:
        work.take_over(tx, partition, {}, given.writes)
        result = _result(tx, partition, invocation)
        done = structs.replace(work.work_in(tx, partition), later=given.later)
        return InvocationResult(done, _found(tx, given), result=result)
    except BaseException as error:  # even one that would end a task or process: here it ends the method alone
        if isinstance(error, NotActiveError) and not tx.backend.is_active(partition):
            raise
        if own and not isinstance(error, Exception):
            raise
        kept = Work(_reads(tx, given), given.writes, later=given.later)
        return InvocationResult(kept, _found(tx, given), error=failures.to_wire(error))


def _result(tx: Transaction, partition: str, invocation: Invocation) -> bytes:
    entry = tx.entries.get(invocation.key) or tx.read(invocation.key, partition, invocation.work.mapping)
    obj = entry.get()
    if obj is None:
        raise NotFoundError(f"{tx.space.name_of(invocation.key)} does not exist", key=invocation.key)
    method = type(obj).__halog__.methods.get(invocation.method)
    if method is None:
        raise RemoteCallError(
            f"{type(obj).__halog__.name}.{invocation.method}: the active node's class has no such method; "
            "the nodes run different code"
        )
    args, kwargs = method.decode_args(invocation.args)
    value = method.func(obj, *args, **kwargs)
    result: bytes = method.encode_result(value)
    return result


def _found(tx: Transaction, given: Work) -> tuple[CommittedObject, ...]:
    """Return the objects that the call has read and the initiator has not."""
    known = {key for key, _ in given.reads} | {w.key for w in given.writes}
    return tuple(
        CommittedObject(e.image.ref, e.image.version, e.image.data, e.key)
        for e in tx.entries.values()
        if e.image is not None and e.image.info is not None and e.key not in known
    )


def _reads(tx: Transaction, given: Work) -> tuple[tuple[bytes, int], ...]:
    """Return all versions that were read, for a method whose changes do not count."""
    new = {e.key: ABSENT if e.image is None else e.image.version for e in tx.entries.values() if e.known}
    written = {w.key for w in given.writes}
    return tuple({**dict(given.reads), **{k: v for k, v in new.items() if k not in written}}.items())
