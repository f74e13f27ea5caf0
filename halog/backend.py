"""What transactions ask of a node: one narrow interface, served by the node's runtime here or across the network.

Everything is stateless on the active node: the initiator holds the transaction (versions read, write set, results of
calls made) and presents it whole, so a new active can be given it and nothing is lost when the old one dies (R5). The
backend hides where the active is: it waits, retries and follows hand-overs for as long as `deadline_of` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from halog.core.durability import Durability
from halog.core.ids import Reference
from halog.core.keys.mapping import Place
from mappers import NewObject


class Found(msgspec.Struct, frozen=True, array_like=True, gc=False):  # 100,000s are cached; no cycles possible
    """An object as committed: its reference, the lsn that last changed it, its encoded value, its index key."""

    ref: bytes
    version: int
    value: bytes
    key: bytes


class Write(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One object's change inside a transaction; `replaced` is the version read (-1: none, a create)."""

    op: int
    ref: bytes
    key: bytes
    value: bytes | None
    replaced: int


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A transaction's state so far in one partition: what it has read and what it would write. What is presented to be
    committed also says what it asks of its commit, at every attempt."""

    reads: tuple[tuple[bytes, int], ...]
    """(index key, version read); -1: found absent."""
    writes: tuple[Write, ...]
    durability: Durability | None = None
    """None: what the policy says."""
    mapping: int = 0
    """The version of the mapping it was routed by (T8)."""
    site: str | None = None
    """The site that served the partition when the transaction began, as `Mapped.sites` names it: it is presented to no
    other one. None: to whichever serves it."""
    moves: bool = False
    """Does it carry what is there already from one partition to another? Objects that are too large by now may move."""


class Invocation(msgspec.Struct, frozen=True, array_like=True):
    """A method call on an object, to be run on the active node inside the initiator's transaction."""

    type_id: bytes
    key: bytes
    """Index key of the object it is called on (its state is in `work` or committed)."""
    method: str
    args: bytes
    work: Work
    least: int = 0
    """What it reads is no older than this lsn."""


class Invoked(msgspec.Struct, frozen=True, array_like=True):
    """How the call went. Exactly one of `result` and `error` is set; `work` replaces the initiator's."""

    work: Work
    found: tuple[Found, ...] = ()
    """Objects the call read that the initiator had not read yet."""
    result: bytes | None = None
    error: dict[str, object] | None = None
    """{class, message, evidence, traceback}: plain values only."""


Outcome = Literal["happened", "did not happen", "expired", "unknown"]
"""What became of a transaction. "expired": no partition remembers an id that old; "unknown": it may still happen."""


class Lag(msgspec.Struct, frozen=True, array_like=True):
    """How far a copy is behind the active, as far as it knows."""

    records: int
    ms: float


class View(Protocol):
    """One moment of a partition, as one transaction sees it from its first read there on, whatever is changed
    meanwhile. Each method raises ConflictError where what objects were then is not known any more."""

    lag: Lag
    """How far its copy was behind at the moment."""
    mapping: int
    """By which it was taken up (T8)."""

    def find(self, key: bytes) -> Found | None:
        """The object under an index key."""

    def scan(self, prefix: bytes) -> Iterator[Found]:
        """Objects whose index key starts with `prefix` (a type family)."""


class Mapped(msgspec.Struct, frozen=True, eq=False):
    """What a node knows of mappings; another one for each change it learns of (T8)."""

    versions: Mapping[str, int] = {}
    """By partition, where it is not 0: what requests carry."""
    changing: bool = False
    """Is any of them being changed, so that keys have two owners?"""
    listed: Mapping[str, str] = {}
    """Partitions whose objects have entries in a key directory, since their mapper is no function of the key (P6), or
    get them, or lose them: how they are found (`halog.core.keys.mapping`). There is a directory for each policy, and it
    leads to that policy's partitions only."""
    leaving: frozenset[str] = frozenset()
    """Those of them that the newest layout does not have: nothing is created there."""
    policies: Mapping[str, str] = {}
    """By partition, also of those that no layout has any more: what was routed to them before is refused there."""
    sites: Mapping[str, str] = {}
    """By partition that has a home: the other site which serves it, "" for this one (M5). What was read at one site is
    no ground for what is done at another."""

    def one_directory(self, one: str, other: str) -> bool:
        """Are they partitions of the same policy, and have its objects entries in a key directory?"""
        return one in self.listed and other in self.listed and self.policies.get(one) == self.policies.get(other)


class Backend(Protocol):
    """A node, as transactions see it. All errors are HalogErrors; see each method."""

    @property
    def states(self) -> Mapping[str, object]:
        """By partition this very process is active for: an object that is replaced whenever the partition's objects
        change, and absent while they do. What was read while it was the same, from before the first read on, is one
        snapshot."""

    @property
    def mapped(self) -> Mapped:
        """Another one when this node has learned of a change; while it is the same one, so are places."""

    def deadline_of(self, partition: str) -> float:
        """Longest wait for an answer of this partition, in seconds."""

    def epoch_of(self, partition: str) -> int:
        """The highest epoch of it that is known here; what was presented here was in no higher one."""

    def place_of(self, type_name: str, routing_key: bytes) -> Place:
        """Where this key belongs, and by which version of the mapping; UnknownTypeError if the type is bound to no
        policy. Requests that name it carry the version, and raise RemappedError where another is served (T8)."""

    def partition_of(self, type_name: str, routing_key: bytes) -> str:
        """The partition that owns this key, or is to; UnknownTypeError if the type is bound to no policy."""

    def next_partition(self, type_name: str, made: Callable[[], NewObject]) -> str:
        """Where a new object of this type goes, whose mapper is no function of the key. `made`: what it is, for mappers
        that look at it. MapperError, ConfigError; what `made` raises."""

    def relearn(self, partition: str, version: int) -> None:
        """Learn of mapping `version`, which that partition serves."""

    def gather(self, partition: str, keys: Sequence[bytes]) -> None:
        """Move these objects, which are there or were, where they belong; those that do stay. ConflictError if somebody
        is changing them."""

    def partitions_of(self, type_name: str) -> Sequence[str]:
        """All partitions of the type's policy."""

    def had(self, type_name: str, partition: str) -> bool:
        """Does this partition belong to the type's policy, or did it before a change to fewer (T8)? False for a type
        that is bound to no policy."""

    def new_reference(self) -> Reference:
        """A reference for a new object: never given twice (D1)."""

    def new_transaction_id(self) -> bytes:
        """16 bytes: an 8-byte stamp (ns since 1970, growing on this node), then who gave it and a count."""

    def find(self, partition: str, key: bytes, mapping: int = 0) -> Found | None:
        """`fetch` of one object, which is what most reads are."""

    def fetch(
        self,
        partition: str,
        keys: Sequence[bytes],
        *,
        settled: int = 0,
        least: int = 0,
        mapping: int = 0,
        brief: bool = False,
    ) -> Sequence[Found | None]:
        """The committed objects under these index keys on the active node; it waits a moment for lsn `settled`, and
        answers nothing without lsn `least`: one that does not get there may have been replaced without knowing it.
        `brief`: without their values, for who wants to know whether they are there."""

    def fetch_leased(self, partition: str, keys: Sequence[bytes], *, mapping: int = 0) -> Sequence[Found | None] | None:
        """The same, missing nothing that was answered to anybody before this call, as the active node may say under its
        lease; None if it has none just now. RefusedError if the partition's policy has no leases (R5)."""

    def view(
        self, partition: str, under: tuple[bytes, ...], *, after: int = 0, mapping: int = 0, ahead: bool = False
    ) -> View:
        """What is visible now in this node's own copy, once it has `after`, and shows what became by then of the
        objects under these keys, or prefixes of keys; in the active node's if this node holds no copy, or one that is
        not complete yet, or with `ahead`. DeadlineError if it does not get there in time."""

    def reach(self, partition: str, lsn: int) -> None:
        """Wait until reads of the active node are no older than `lsn`. DeadlineError if that takes too long."""

    def barrier(self, partition: str) -> int:
        """The lsn that reads must have (`least`) to miss nothing that was answered to anybody before this call: known
        by a record appended since. QuorumError below the quorum; DeadlineError if nobody says in time (R5)."""

    def scan(self, partition: str, prefix: bytes, *, least: int = 0, mapping: int = 0) -> Iterator[Found]:
        """Committed objects of the active node whose index key starts with `prefix` (a type family)."""

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        """Commit; the lsn. ConflictError (evidence: settled_lsn), DuplicateKeyError, RecordTooLargeError, RefusedError,
        ReplicasError: nothing happened. OutcomeUnknownError only when the deadline passed without an answer. The same
        `tx` never happens twice."""

    def commit_over(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """Commit over several partitions, all or nothing (D4): in each a lsn that shows it, once nothing prepared up to
        there is in doubt. Raises what `commit` does, with `evidence["partition"]`; LockedError (a ConflictError): an
        object is held by another such transaction."""

    def begin_commit(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
        """Commit without waiting, where this very node is active: `done` is called once, on any thread, with the lsn,
        or with None if it did not simply succeed: `commit` with the same id then says why. It returns whether
        `follow_up` will be called soon, as must be done after this call. False: not active here, nothing was begun."""

    def follow_up(self) -> None:
        """Give the answers that have come to those commits, on this thread, without waiting; the rest come later."""

    def unsent(self, tx: bytes) -> bool:
        """Was this commit interrupted before anybody who may act on it had it? It did not happen then, and will not.
        Asked once, by whoever was interrupted."""

    def outcome(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str] = ()) -> Outcome:
        """What became of a commit that nobody answered, presented in no higher `epoch`; waits until it is known.
        `participants`: of one over several partitions, of which `partition` is the first; what is not decided then is
        given up. DeadlineError, PartitionUnavailableError: nobody is there to say."""

    def validate(
        self, partition: str, reads: Collection[tuple[bytes, int]], *, least: int = 0, mapping: int = 0
    ) -> None:
        """ConflictError unless every version read still holds on the active node, which has lsn `least` (read-only
        transactions)."""

    def invoke(self, partition: str, invocation: Invocation) -> Invoked:
        """Run a method on the active node. A repeated call starts from the same `work`, so it has no effect twice."""

    def is_active(self, partition: str) -> bool:
        """True if this very process is active for the partition now (fetch then costs no I/O)."""


class Execute(Protocol):
    """What runs a method on the node that is active: `halog.transactions.execute.Executor`."""

    def __call__(self, partition: str, invocation: Invocation, *, own: bool = False) -> Invoked:
        """`own`: in its caller's thread, whom what is no Exception goes to as it is."""
