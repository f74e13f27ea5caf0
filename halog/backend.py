"""This module defines the interface between transactions and a node. `Backend` is narrow; the node's runtime serves it,
here or across the network.

The active node keeps no state of a transaction. The initiator holds the transaction (versions read, write set, results
of calls made) and presents it whole, so a new active node can be given it, and nothing is lost when the old one dies
(R5). The backend hides where the active node is: it waits, retries and follows hand-overs for as long as `deadline_of`
says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from halog.core.durability import Durability
from halog.core.ids import Reference
from halog.core.keys.mapping import Place
from mappers import NewObject


class CommittedObject(
    msgspec.Struct, frozen=True, array_like=True, gc=False
):  # 100,000s are cached; they cannot form cycles
    """Holds a committed object: its reference, the lsn that last changed it, its encoded value, its index key."""

    ref: bytes
    version: int
    value: bytes
    key: bytes


class Write(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Holds one object's change inside a transaction. `replaced` is the version that was read (-1: none, a create)."""

    op: int
    ref: bytes
    key: bytes
    value: bytes | None
    replaced: int


class Work(msgspec.Struct, frozen=True, array_like=True):
    """Holds a transaction's state so far in one partition: what it has read and what it would write. When it is
    presented to be committed, it also says what the transaction asks of its commit, at every attempt."""

    reads: tuple[tuple[bytes, int], ...]
    """Holds (index key, version read) of each object; version -1: the object was found absent."""
    writes: tuple[Write, ...]
    durability: Durability | None = None
    """Says what the commit waits for; None: what the policy says."""
    mapping: int = 0
    """The version of the mapping that this work was routed by (T8)."""
    site: str | None = None
    """The site that served the partition when the transaction began, as `KnownMappings.sites` names it; no other site
    may accept the work. None: any site that serves the partition may."""
    moves: bool = False
    """Does this work carry existing objects from one partition to another? Then objects that exceed today's size limit
    are accepted."""
    later: dict[str, bytes] = {}
    """What a later version of halog adds to a work stands here, by name. Whoever runs a method returns it as it came
    (U1)."""


class Invocation(msgspec.Struct, frozen=True, array_like=True):
    """Holds a method call on an object, to be run on the active node inside the initiator's transaction."""

    type_id: bytes
    key: bytes
    """Index key of the object that the method belongs to. The object's state is in `work`, or is committed."""
    method: str
    args: bytes
    work: Work
    least: int = 0
    """Everything the method reads is at least as new as this lsn."""


class InvocationResult(msgspec.Struct, frozen=True, array_like=True):
    """Holds the answer to an `Invocation`. Exactly one of `result` and `error` is set; `work` replaces the
    initiator's."""

    work: Work
    found: tuple[CommittedObject, ...] = ()
    """Objects that the call read and the initiator had not read yet."""
    result: bytes | None = None
    error: dict[str, object] | None = None
    """{class, message, evidence, traceback}: plain values only."""


Outcome = Literal["happened", "did not happen", "expired", "unknown"]
"""What became of a transaction. "expired": it is so old that no partition remembers its id; "unknown": it may still
happen."""


class Lag(msgspec.Struct, frozen=True, array_like=True):
    """Says how far a copy is behind the active node, as far as the copy knows: in records, and in milliseconds."""

    records: int
    ms: float


class View(Protocol):
    """A `View` is one moment of a partition, which a transaction sees from its first read there to its end. Later
    changes do not show in it. Each method raises ConflictError where the state of an object at that moment is not known
    any more."""

    lag: Lag
    """How far the copy was behind at that moment."""
    mapping: int
    """The version of the mapping that the view was opened by (T8)."""

    def find(self, key: bytes) -> CommittedObject | None:
        """Return the object under an index key, or None."""

    def scan(self, prefix: bytes) -> Iterator[CommittedObject]:
        """Yield the objects whose index key starts with `prefix` (a type family)."""


class KnownMappings(msgspec.Struct, frozen=True, eq=False):
    """Holds what a node knows of mappings. A node makes another one for each change that it learns of (T8)."""

    versions: Mapping[str, int] = {}
    """The version of its mapping by partition, where it is not 0; requests carry it."""
    changing: bool = False
    """Is any mapping being changed, so that keys have two owners?"""
    listed: Mapping[str, str] = {}
    """Partitions with a key directory, and how their objects are found (`halog.core.keys.mapping`). Their mapper is no
    function of the key (P6), so each object has an entry in the directory, or gets one, or loses it. There is a
    directory for each policy, and it leads to that policy's partitions only."""
    leaving: frozenset[str] = frozenset()
    """Those of the `listed` partitions that the newest layout does not have: nothing is created there."""
    policies: Mapping[str, str] = {}
    """The policy by partition, also of partitions that no layout has any more: these refuse what was routed to them
    before."""
    sites: Mapping[str, str] = {}
    """The other site that serves the partition, by partition that has a home; "": this site does (M5). What was read at
    one site does not justify a change at another."""

    def one_directory(self, one: str, other: str) -> bool:
        """Do both partitions belong to one policy whose objects have entries in a key directory?"""
        return one in self.listed and other in self.listed and self.policies.get(one) == self.policies.get(other)


class Backend(Protocol):
    """A `Backend` is a node, seen from its transactions. Every error is a HalogError; see each method."""

    @property
    def states(self) -> Mapping[str, object]:
        """Return an object for each partition that this very process is active for. It is replaced whenever the
        partition's objects change, and absent while they do. If it was the same object from before the first read to
        the end of the last, all those reads are one snapshot."""

    @property
    def mapped(self) -> KnownMappings:
        """Return what this node knows of mappings. While this is the same object, places are the same, too."""

    def deadline_of(self, partition: str) -> float:
        """Return the longest wait for an answer of this partition, in seconds."""

    def epoch_of(self, partition: str) -> int:
        """Return the highest epoch of this partition that is known here. What was presented from here was presented in
        no higher one."""

    def place_of(self, type_name: str, routing_key: bytes) -> Place:
        """Return where this key belongs, and by which version of the mapping. UnknownTypeError if the type is bound to
        no policy. Requests that name the place carry the version; they raise RemappedError where another version is
        served (T8)."""

    def partition_of(self, type_name: str, routing_key: bytes) -> str:
        """Return the partition that owns this key, or will own it. UnknownTypeError if the type is bound to no
        policy."""

    def next_partition(self, type_name: str, made: Callable[[], NewObject]) -> str:
        """Return the partition for a new object of this type, whose mapper is no function of the key. `made` returns
        the new object, for mappers that look at it. MapperError, ConfigError; and what `made` raises."""

    def relearn(self, partition: str, version: int) -> None:
        """Learn of mapping `version`, which that partition serves."""

    def gather(self, partition: str, keys: Sequence[bytes]) -> None:
        """Move these objects, which are in this partition or were, to where they belong; objects that belong here stay.
        ConflictError if somebody is changing them."""

    def partitions_of(self, type_name: str) -> Sequence[str]:
        """Return all partitions of the type's policy."""

    def had(self, type_name: str, partition: str) -> bool:
        """Does this partition belong to the type's policy, or did it before a change to fewer partitions (T8)? False
        for a type that is bound to no policy."""

    def new_reference(self) -> Reference:
        """Return a reference for a new object. No reference is given twice (D1)."""

    def new_transaction_id(self) -> bytes:
        """Return a new id of 16 bytes: an 8-byte stamp (ns since 1970, growing on this node), then the node's mark and
        a count."""

    def find(self, partition: str, key: bytes, mapping: int = 0) -> CommittedObject | None:
        """Return one committed object, as `fetch` does; most reads are of one object."""

    def fetch(
        self,
        partition: str,
        keys: Sequence[bytes],
        *,
        settled: int = 0,
        least: int = 0,
        mapping: int = 0,
        brief: bool = False,
    ) -> Sequence[CommittedObject | None]:
        """Return the committed objects under these index keys on the active node. It waits a moment for lsn `settled`.
        An active node that has not reached lsn `least` may have been replaced without knowing it: it gives no answer.
        `brief`: leave out the values, for callers that only ask whether the objects exist."""

    def fetch_leased(
        self, partition: str, keys: Sequence[bytes], *, mapping: int = 0
    ) -> Sequence[CommittedObject | None] | None:
        """Return what `fetch` does, missing nothing that anybody was told before this call; the active node vouches for
        that with its lease. None if it has no lease just now. RefusedError if the partition's policy has no leases
        (R5)."""

    def view(
        self, partition: str, under: tuple[bytes, ...], *, after: int = 0, mapping: int = 0, ahead: bool = False
    ) -> View:
        """Open a view of what is visible now in this node's own copy. The copy first reaches lsn `after`, and applies
        what was decided by then about the objects under these keys, or prefixes of keys. The view is of the active
        node's copy if this node holds none, or an incomplete one, or with `ahead`. DeadlineError if the copy does not
        get there in time."""

    def reach(self, partition: str, lsn: int) -> None:
        """Wait until reads of the active node are no older than `lsn`. DeadlineError if that takes too long."""

    def barrier(self, partition: str) -> int:
        """Return the lsn that reads must have (`least`) to miss nothing that anybody was told before this call. The
        active node appends a record to prove it is still active. QuorumError below the quorum; DeadlineError if no
        answer comes in time (R5)."""

    def scan(self, partition: str, prefix: bytes, *, least: int = 0, mapping: int = 0) -> Iterator[CommittedObject]:
        """Yield committed objects of the active node whose index key starts with `prefix` (a type family)."""

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        """Commit, and return the lsn. ConflictError (evidence: settled_lsn), DuplicateKeyError, RecordTooLargeError,
        RefusedError, ReplicasError: nothing happened. OutcomeUnknownError only when the deadline passed without an
        answer. The same `tx` never happens twice."""

    def commit_over(self, tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
        """Commit over several partitions, all or nothing (D4). Return for each an lsn that shows the commit, once
        nothing prepared up to there is in doubt. It raises what `commit` does, with `evidence["partition"]`;
        LockedError (a ConflictError): another such transaction holds an object."""

    def begin_commit(self, partition: str, tx: bytes, work: Work, done: Callable[[int | None], bool]) -> bool:
        """Begin a commit without waiting, where this very node is active. `done` is called once, on any thread: with
        the lsn, or with None if the commit did not simply succeed; then `commit` with the same id says why. `done`
        returns whether `follow_up` will be called soon; the caller of `begin_commit` must call it soon, too. False:
        this node is not active there, and nothing was begun."""

    def follow_up(self) -> None:
        """Deliver the answers that have come to those commits, on this thread, without waiting. The rest come later."""

    def unsent(self, tx: bytes) -> bool:
        """Was this commit interrupted before it was sent to anybody who may act on it? Then it did not happen, and will
        not. Only the caller that was interrupted asks this, and once."""

    def outcome(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str] = ()) -> Outcome:
        """Say what became of a commit that got no answer and was presented in no higher `epoch`; wait until it is
        known. `participants`: all partitions of a commit over several, of which `partition` is the first; if nothing is
        decided yet, the commit is given up. DeadlineError, PartitionUnavailableError: no node is there to say."""

    def validate(
        self, partition: str, reads: Collection[tuple[bytes, int]], *, least: int = 0, mapping: int = 0
    ) -> None:
        """Check that every version read still holds on the active node, which has lsn `least` (read-only transactions).
        ConflictError if one does not."""

    def invoke(self, partition: str, invocation: Invocation) -> InvocationResult:
        """Run a method on the active node. A repeated call starts from the same `work`, so it has no effect twice."""

    def is_active(self, partition: str) -> bool:
        """Is this very process active for the partition now? Then `fetch` costs no I/O."""


class Execute(Protocol):
    """An `Execute` runs a method on the active node: `halog.transactions.execute.Executor`."""

    def __call__(self, partition: str, invocation: Invocation, *, own: bool = False) -> InvocationResult:
        """Run the method. With `own` it runs in its caller's thread, and a BaseException that is no Exception passes to
        the caller unchanged."""
