"""This module holds one transaction, from `with` to commit or rollback, and the verbs that change objects.

A transaction holds everything itself; nodes learn of it only when it fetches, calls or commits. It is optimistic: it
notes versions, and presents one `Work` at the end, or one for each partition, which happen together (D4). If it read
more than one object, the versions are checked at the end, whether it changes something or not. It is not thread-safe:
one thread or task at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from halog.backend import Outcome
from halog.core.durability import Durability
from halog.core.ids import ABSENT
from halog.errors import (
    DuplicateKeyError,
    FieldTypeError,
    NoTransactionError,
    RefusedError,
    TransactionError,
)
from halog.schema.methods import BINDING
from halog.schema.reference import Ref
from halog.schema.typeinfo import TypeInfo
from halog.transactions import commit, remapped as moving
from halog.transactions.context import CURRENT, TRIGGERED, check_may_change, forked_error, open_here, task_now
from halog.transactions.directory import is_absent
from halog.transactions.ended_objects import class_of, end, revive, thaw
from halog.transactions.entry import ObjectEntry
from halog.transactions.families import entry_at
from halog.transactions.outcomes import UnknownOutcome
from halog.transactions.reading import COMMITTED, NEW, OPEN, OUTCOMES, ROLLED_BACK, Reading
from halog.transactions.space import Space
from halog.transactions.token import Token
from halog.transactions.untouched_reads import Bond, let_go

T = TypeVar("T")


class Transaction(Reading):
    """A `Transaction` reads and changes objects; everything it changes happens at its end, or nothing (D1).

    `node.transaction()` returns one; use it in a with-block, once. The end of the block commits; an exception rolls
    back. The node has the same verbs.
    """

    task: Any = None
    left_behind = False
    """Was it open when this process was forked? Then it belongs to the parent."""
    durability: Durability | None = None
    """What its commit waits for; None: what the policy says (R6)."""
    id: bytes | None = None
    """The transaction's id, once its commit was sent."""
    home: str | None = None
    """The partition that it changed, once it has committed; of several, the one that decided."""
    lsn: int | None = None
    """The lsn at which it was committed; None if it changed nothing or did not commit."""
    unsettled: UnknownOutcome | None = None
    """How to ask for its outcome, if that is unknown."""
    spread: Mapping[str, int] | None = None
    """Its lsn by partition, if it changed or relied on more than one."""

    @classmethod
    def special_one(
        cls,
        space: Space,
        *,
        local: bool = False,
        settled: Mapping[str, int] | None = None,
        serving: str | None = None,
        after: dict[str, int] | None = None,
        barrier: bool = False,
        leased: bool = False,
    ) -> Transaction:
        """Return a transaction that reads from this node's copies, or waits for positions or the log, or runs a call
        for another node."""
        tx = cls(space)
        tx.local, tx.settled, tx.serving, tx.special = local, settled, serving, True
        tx.after = after
        if local:
            tx.views = {}
        if barrier or leased:
            tx.least, tx.leased = {}, leased
        if serving is not None:
            tx.state = OPEN
        return tx

    # --- life ---

    def __enter__(self) -> Transaction:
        """Begin. ForkedError in a forked child; TransactionError inside another transaction; NoTransactionError if it
        was used before; RefusedError in a compensation trigger, unless it has `read="local"`."""
        if (
            self.space.forked
            or self.state != NEW
            or (CURRENT.get() is not None and open_here() is not None)
            or (TRIGGERED.get() and not self.local)
        ):
            self._refuse_begin()
        self.task = task_now()
        self.state = OPEN
        CURRENT.set(self)
        return self

    def begin(self) -> None:
        """Begin without becoming the current transaction of this thread or task: for `halog.aio`."""
        if self.space.forked or self.state != NEW or (TRIGGERED.get() and not self.local):
            self._refuse_begin()
        self.state = OPEN

    def _refuse_begin(self) -> None:
        if self.space.forked:
            raise forked_error()
        if self.state != NEW:
            raise NoTransactionError("a transaction is used once; call node.transaction() again")
        if not self.local:
            check_may_change()
        raise TransactionError(
            "a transaction is open here already; transactions do not nest: use the open one (halog.current())"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit, or roll back if an exception passes. It raises what `commit` raises."""
        CURRENT.set(None)
        if self.state == OPEN:
            if kind is None:
                commit.commit(self)
            else:
                self.finish(ROLLED_BACK)
        elif self.left_behind and kind is None:
            self.check_open()

    def leave_behind(self) -> None:
        """End an open transaction in a forked child, where it belongs to the parent."""
        if self.state == OPEN:
            self.finish(ROLLED_BACK)
            self.left_behind = True

    def commit(self) -> None:
        """End the transaction and keep its changes; the end of the with-block does this by itself.

        ConflictError (LockedError among them), DuplicateKeyError, FieldTypeError, RecordTooLargeError (R8),
        AvailabilityError, RefusedError (R6): nothing happened. OutcomeUnknownError: no answer came in time;
        `Node.outcome` says what became of it. TransactionError in a method of an object: nothing happened.
        """
        self.check_open()
        self._check_no_call()
        commit.commit(self)

    def rollback(self) -> None:
        """End the transaction and forget its changes; do nothing if it has ended. TransactionError in a method of an
        object."""
        if self.state == OPEN:
            self._check_no_call()
            self.finish(ROLLED_BACK)

    def _check_no_call(self) -> None:
        """Refuse to end the transaction inside a method: it has only a part of its caller's transaction, and elsewhere
        only that part would be committed."""
        if self.saved is not None or self.serving is not None:
            raise TransactionError(
                "a method cannot end the transaction, which is its caller's; nothing was done: raise an exception to "
                "undo what the method did, and end the transaction where it began"
            )

    def finish(self, state: int) -> None:
        """End the transaction: its objects stay readable and refuse everything else."""
        self.state = state
        if self.special:
            self.last_seen = self.seen_now()
        if self.looked:
            let_go(self.looked.values())
        if self.life is not None:
            self.life.state = state
        self.looked = {}
        self.given = []
        interrupted: BaseException | None = None
        for e in self.held.values():
            obj = e.obj
            if obj is not None:
                image = e.image
                if image is not None and image.mutable and image.info is not None and not e.made:
                    try:  # this may run the application's code, and be interrupted there
                        self.space.kept.note(image.info, e.key, obj.__dict__)
                    except BaseException as raised:
                        interrupted = raised
                end(obj)
                e.obj = None  # object and entry name each other: only the garbage collector would free them
        self.held = {}
        self.saved = self.pinned = self.views = None
        if interrupted is not None:
            raise interrupted

    def settled_as(self, said: Outcome) -> None:
        """Note the outcome of a transaction whose outcome was unknown."""
        if said == "happened":
            self.state = COMMITTED
        elif said == "did not happen":
            self.state = ROLLED_BACK

    @property
    def token(self) -> Token:
        """Return what this transaction has seen and, if it has committed, written. Reads of another transaction begun
        `after` this token are no older (R5). If the transaction only reads, take the token inside the block, unless it
        has `read="local"` or `after`."""
        seen = self.last_seen if self.last_seen is not None else self.seen_now()
        written = self.spread or ({} if self.home is None or self.lsn is None else {self.home: self.lsn})
        return Token(seen) | Token(written)

    @property
    def outcome(self) -> str:
        """Return `new`, `open`, `committing`, `committed`, `rolled back` or `unknown` (see `Node.outcome`)."""
        return OUTCOMES[self.state]

    # --- verbs ---

    def create(self, obj: T) -> T:
        """Keep a new object: give it a reference (D1), write it at commit, and return it.

        DuplicateKeyError here if this transaction knows that the key exists, else at commit; UnknownTypeError;
        MapperError (P6); CrossPartitionError in a method of an object in another partition. RefusedError if classes of
        one family are bound to different policies, and the transaction has an object of this key at another place.
        """
        self._check_writable()
        bound = _binding(obj)
        if bound is not None:
            self._check_again(bound, obj)
        info = self.space.info_of(class_of(obj))
        key = _key_of(info, obj)
        index_key = info.index_key(key)
        place = self.backend.place_of(info.name, info.routing_key(key))
        partition = place.partition
        if place.before or place.listed:
            partition = moving.create_in(self, index_key, place, info, obj)
        entry = self._entry_to_create(index_key, partition)
        if place.listed and is_absent(self, index_key, partition):  # it has looked: a lost race is a conflict
            entry.known = True
        if bound is not None:
            revive(obj)
        elif info.mutable:
            thaw(info, obj)
        entry.ref = self.backend.new_reference().to_bytes()
        entry.obj, entry.made, entry.pending = obj, True, None
        obj.__dict__[BINDING] = entry
        return obj

    def _entry_to_create(self, key: bytes, partition: str) -> ObjectEntry:
        self.check_reach(key, partition)
        entry = entry_at(self, key, partition)
        if entry is None:
            known = self.expected.get(key) == ABSENT
            entry = self.entries[key] = ObjectEntry(self, key, partition, known=known)
        elif entry.ref is not None:
            raise DuplicateKeyError(f"{self.space.name_of(key)} exists", key=key)
        if self.saved is not None:
            self.saved.touch(entry)
        return entry

    def _check_again(self, bound: ObjectEntry, obj: Any) -> None:
        """Check that an object that is given to `create` again is one whose create was undone."""
        state, is_now = bound.tx.state, bound.obj is obj
        if bound.made and (state == ROLLED_BACK or (state == OPEN and bound.obj is None)):
            return
        name = self.space.name_of(bound.key)
        if bound.tx is self and is_now:
            raise DuplicateKeyError(f"{name}: this very object was created or read in this transaction", key=bound.key)
        raise NoTransactionError(f"{name}: this Python object belongs to another transaction; make a new one to create")

    def delete(self, obj: Any) -> None:
        """Delete an object of this transaction. NoTransactionError if it is not one; CrossPartitionError in a method of
        an object in another partition."""
        self._check_writable()
        entry = self._entry_of(obj)
        self.check_reach(entry.key, entry.partition)
        if self.saved is not None:
            self.saved.touch(entry)
        entry.detach()
        entry.ref = entry.pending = None

    def ref(self, obj: T) -> Ref[T]:
        """Return the object's reference (D1), also after its transaction has committed. NoTransactionError for an
        object that was not created, or whose create did not happen, or that was deleted."""
        entry = _binding(obj)
        if entry is None or entry.ref is None or (entry.made and entry.tx.state == ROLLED_BACK):
            raise NoTransactionError(f"this {type(obj).__name__} is not kept: it was not created, or it was deleted")
        info = self.space.info_of(class_of(obj))
        return info.ref(entry.ref, info.key_of(obj))

    # --- checks ---

    def check_open(self) -> None:
        """Check that the transaction is open, as `Reading` does; ForkedError in a child of the process that began
        it."""
        if self.state or self.space.forked:
            if self.left_behind or self.space.forked:
                raise forked_error()
            super().check_open()

    def _check_writable(self) -> None:
        if self.state:
            self.check_open()
        if self.local:
            raise RefusedError('a transaction with read="local" changes nothing: its reads may be old')

    def _entry_of(self, obj: Any) -> ObjectEntry:
        entry = _binding(obj)
        if entry is None:
            raise NoTransactionError(f"this {type(obj).__name__} is not kept by halog; create or get it first")
        entry.tx.check_live(entry, obj)
        if entry.tx is not self:
            raise NoTransactionError(f"{self.space.name_of(entry.key)} belongs to another open transaction")
        return entry


def _binding(obj: Any) -> ObjectEntry | None:
    found: ObjectEntry | Bond | None = obj.__dict__.get(BINDING) if hasattr(obj, "__dict__") else None
    return found.entry() if isinstance(found, Bond) else found


def _key_of(info: TypeInfo, obj: Any) -> tuple[Any, ...]:
    try:
        return info.key_of(obj)
    except AttributeError as error:
        raise FieldTypeError(f"{info.name}: {error}", type=info.name) from None
