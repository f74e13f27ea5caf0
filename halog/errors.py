"""This module defines every error halog raises, in one tree.

    HalogError
    ├── ConfigError               a configuration file or option            (exit 2)
    │   └── UnknownNameError      a name that nothing has
    ├── DeclarationError          a managed class that cannot be declared   (exit 2)
    │   └── SchemaChangedError    a stored definition this one cannot read
    ├── TransactionError          the transaction did not happen
    │   ├── ConflictError         a version read no longer holds; retry
    │   │   ├── LockedError       held by a transaction over several partitions that is not decided yet; retry
    │   │   └── SwitchedError     another site serves the partition by now; retry
    │   ├── DuplicateKeyError     the key exists
    │   ├── NotFoundError         the key or reference does not exist       (exit 2)
    │   ├── FieldTypeError        a value that does not fit its annotation
    │   ├── UnknownTypeError      a type nobody declared or bound           (exit 2)
    │   ├── MapperError           a mapper failed, or named no partition (P6)
    │   ├── RecordTooLargeError   the commit record exceeds the limit (R8)
    │   ├── CrossPartitionError   a method that reaches beyond its object's partition
    │   └── NoTransactionError    used outside a transaction, or after its end
    ├── RemoteCallError           a method raised on the active node
    ├── AvailabilityError         not now                                   (exit 3)
    │   ├── PartitionUnavailableError   no node can be active
    │   ├── NotActiveError        this node is not (or no longer) the active one
    │   ├── UnreachableError      a server or a node does not answer
    │   ├── OverloadedError       a limit on work in flight is reached
    │   ├── QuorumError           too few nodes are there to hold a commit (R7)
    │   │   ├── SitesError        a site whose log, or vote, a commit needs is away (M5)
    │   │   ├── ReplicasError     too few sync replicas are there to flush what asks for it (R6)
    │   │   └── ZoneQuorumError   the node has no quorum in one of its zones (Q1)
    │   └── DeadlineError         not within the time allowed               (exit 6)
    ├── OutcomeUnknownError       it may or may not have happened; `node.outcome` says which
    ├── RefusedError              refused because it would be unsafe        (exit 5)
    │   ├── NodeListsError        a node's definition of a partition says otherwise than the cluster (P10)
    │   └── NothingToDoError      there is nothing of what was to be ended or undone (exit 0)
    ├── LogError                  the log cannot be read as it stands
    │   ├── RecordFormatError     bytes that are no record, or no value
    │   │   └── LaterRecordError  a record or a row that a later version of halog wrote (exit 7)
    │   ├── DivergedError         this history and the log's are not one
    │   ├── PartedError           two sites have gone on each by itself
    │   └── LogAccessError        brokers do not allow it                   (exit 8)
    ├── CoordinatorError          ZooKeeper said no
    │   ├── VersionError          a compare-and-set found another version
    │   └── ZnodeAccessError      a znode belongs to somebody else          (exit 8)
    ├── StoreError                the local store cannot be trusted or used
    ├── FrameError                a peer sent bytes that are no frame of ours
    ├── SiteError                 the embedded servers cannot be brought up
    ├── UnauthorizedError         a certificate, or a user's role, does not allow it (exit 8)
    ├── VersionMismatchError      another process runs a halog that this one cannot work with (exit 7)
    │   └── UnsupportedRequestError   a node was asked for what its halog does not know
    └── NodeError                 this node cannot work
        ├── DuplicateNodeError    another live process is the same node
        │   ├── DuplicateLocationError    it has the same name
        │   └── DuplicateTimestampError   it has the same installation timestamp
        ├── ForkedError           used in a child after fork()
        └── ClosedError           used after close

Each error says whether the thing asked for happened (`happened`: True, False, or None for unknown), carries its
evidence in `evidence`, and knows the exit code the command line ends with. Messages are one line: what is wrong, with
the culprit's name, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

_SHOWN = 10
_SEE = {
    "node": "halog node list",
    "partition": "halog partition list",
    "policy": "halog mapper list",
    "zone": "halog zone list",
    "site": "halog site list",
    "plan": "halog plan list",
    "version": "halog config history",
    "definition": "halog type list",
    "certificate": "halog certs list",
}


class HalogError(Exception):
    """A `HalogError` is the root of the tree. `happened`: did the thing asked for happen (None: unknown)? `exit_code`
    is that of the command line. `evidence` holds plain values only, so that it can cross a wire and a log."""

    happened: ClassVar[bool | None] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **evidence: Any) -> None:
        super().__init__(message)
        self.message = message
        self.evidence: dict[str, Any] = evidence

    def __str__(self) -> str:
        return self.message


class ConfigError(HalogError):
    """A configuration value is missing, unknown or wrong; the message names file, key and reason."""

    exit_code = 2


class UnknownNameError(ConfigError):
    """No node, partition, policy, zone, site, … has the name that was given; nothing was changed. `evidence`: kind,
    name, known (all names there are)."""

    @classmethod
    def of(cls, kind: str, name: str, known: Collection[str], where: str = "") -> UnknownNameError:
        """Make the error: it says which name is missing, which names there are, and which command shows all of them."""
        shown = [*known][:_SHOWN]
        more = f", … ({len(known)} in all)" if len(known) > _SHOWN else ""
        see = f": see `{_SEE[kind]}`" if kind in _SEE else ""
        return cls(
            f"{where + ': ' if where else ''}there is no {kind} {name}; known are {', '.join(shown) or 'none'}"
            f"{more}{see}",
            kind=kind,
            name=name,
            known=[*known],
        )


class DeclarationError(HalogError):
    """A managed class cannot be declared as written; the message names class and field."""

    exit_code = 2


class SchemaChangedError(DeclarationError):
    """The stored definition of a type cannot be read with the declared one; the error carries both."""


class TransactionError(HalogError):
    """The transaction did not happen and changed nothing."""


class ConflictError(TransactionError):
    """A version the transaction read no longer holds. Running the transaction again is safe.

    `evidence["settled_lsn"]` is the lsn a retry should wait for before it reads again (0: none).
    """


class RemappedError(ConflictError):
    """The transaction was routed by a mapping that its partition does not serve any more; nothing was done (T8). halog
    routes it anew by itself, and raises this only where the whole transaction must run again. `evidence`: partition,
    mapping (its version)."""


class SwitchedError(ConflictError):
    """Another site serves the partition than when the transaction began; nothing was done (M5). The versions that were
    read may name other states here. Running the transaction again is safe."""


class LockedError(ConflictError):
    """A transaction over several partitions that is not decided yet holds the object (T5); `evidence["tx"]` names it.
    halog has waited for it already. Running the transaction again is safe."""


class DuplicateKeyError(TransactionError):
    """An object with this key exists already; nothing was changed."""


class NotFoundError(TransactionError):
    """No object with this key or reference exists."""

    exit_code = 2


class FieldTypeError(TransactionError):
    """A value does not fit the annotation of its field, argument or result."""


class UnknownTypeError(TransactionError):
    """The type is not declared in this process, or not bound to a policy. Import its module, or bind it."""

    exit_code = 2


class MapperError(TransactionError):
    """A custom mapper failed, or named something that is no partition of the policy (P6). The message names mapper,
    type, key and answer."""


class RecordTooLargeError(TransactionError):
    """The encoded commit record exceeds the limit (R8); the message names size, limit and the largest objects."""


class CrossPartitionError(TransactionError):
    """A method has touched an object of another partition than its own; the message names both."""


class NoTransactionError(TransactionError):
    """The call was made outside a transaction, or on an object whose transaction has ended."""


class RemoteCallError(HalogError):
    """The method has raised on the active node an exception that this process does not know; the error carries its text
    and evidence."""


class AvailabilityError(HalogError):
    """The thing asked for is not available now; nothing happened. Try again later."""

    exit_code = 3


class PartitionUnavailableError(AvailabilityError):
    """No node is active for the partition."""


class NotActiveError(AvailabilityError):
    """The node asked is not the active one. `evidence["active"]` names the active node, where known;
    `evidence["elected"]` is the epoch in which that node was elected."""


class UnreachableError(AvailabilityError):
    """A server or node does not answer."""


class OverloadedError(AvailabilityError):
    """A limit on work in flight is reached; try again later."""


class QuorumError(AvailabilityError):
    """Too few nodes of the partition's group are up (R7); nothing was done."""


class SitesError(QuorumError):
    """A commit needs the log of a site that confirms nothing, or this site cannot reach enough of the sites whose votes
    it needs (M5); nothing was done. `evidence["sites"]` names the sites."""


class ReplicasError(QuorumError):
    """Too few sync replicas are up for the durability that the transaction asked for (R6); nothing was done."""


class ZoneQuorumError(QuorumError):
    """The node asked has no quorum in one of its zones and is offline (Q1); nothing was done. `evidence["node"]` names
    it, `evidence["why"]` the zone."""


class DeadlineError(AvailabilityError):
    """The thing asked for did not come about within the time allowed; the message says within how long."""

    exit_code = 6


class OutcomeUnknownError(HalogError):
    """The thing asked for may or may not have happened. For a commit, `node.outcome(error)` says which.

    The evidence of a commit is what that call needs. `tx`: the transaction's id. `partition`: the partition that
    decides. `participants`: all partitions, if there are several. `epoch`: the highest epoch that a request was sent
    for. The answer "did not happen" is final only under that epoch or a higher one: under a lower one a late request
    may still happen.
    """

    happened = None


class RefusedError(HalogError):
    """The request was refused because it would be unsafe; the message says what would make it safe."""

    exit_code = 5


class NodeListsError(RefusedError):
    """A node's definition of a partition and the cluster's node list are inconsistent (P10); the message names both.
    Nothing was changed. `evidence["lists"]` holds them all: partition, node, defined, listed."""


class NothingToDoError(RefusedError):
    """There is nothing to end or undo, or it is so already; nothing was changed."""

    exit_code = 0


class LogError(HalogError):
    """The log cannot be read or written as it stands."""


class LogAccessError(LogError):
    """Brokers do not allow this process what it asked for; nothing was done. `evidence`: address."""

    exit_code = 8


class RecordFormatError(LogError):
    """Bytes are no record, or no value of their definition."""

    def retold(self, message: str, **evidence: Any) -> RecordFormatError:
        """Return an error of the same class with other words: what a later halog wrote stays what a later one wrote."""
        return type(self)(message, **{**self.evidence, **evidence})


class LaterRecordError(RecordFormatError):
    """A record, or a row of a state topic, is of a version or a kind that this version of halog does not know, or has
    a change of an unknown op: a later one wrote it. Nothing is damaged, and nothing was passed over. Upgrade the
    installation that says so. `evidence`: version and kind (the two bytes, as numbers), op (of a change), head; where
    known, partition or topic, and offset."""

    exit_code = 7

    def at(self, where: str, **place: Any) -> LaterRecordError:
        """Return the same with the place where it was met."""
        return LaterRecordError(f"{where}: {self.message}", **{**self.evidence, **place})


class DivergedError(LogError):
    """This node's history and the log's are not one history."""


class PartedError(LogError):
    """The histories of two sites have parted: each site went on by itself (M1). `evidence`: lsn, and the hashes of the
    two records there, `ours` and `theirs`."""


class CoordinatorError(HalogError):
    """The coordinator refused or lost the request."""

    exit_code = 3


class VersionError(CoordinatorError):
    """A compare-and-set found another version than the expected one; nothing was changed."""


class ZnodeAccessError(CoordinatorError):
    """A znode's ACL does not let this process do what it asked for; nothing was changed. `evidence`: path."""

    exit_code = 8


class StoreError(HalogError):
    """The local store cannot be used or trusted."""


class FrameError(HalogError):
    """A peer sent bytes that are no frame of this protocol."""


class SiteError(HalogError):
    """The embedded servers cannot be brought up or down; the message says what to do."""


class UnauthorizedError(HalogError):
    """A node, or a broker, did not let this process do what it asked for: its certificate, its password, or what it may
    do there does not allow it. Nothing was done."""

    exit_code = 8


class VersionMismatchError(HalogError):
    """This process and another one have no protocol in common (U1); nothing was done. The message names the versions of
    both. `evidence`: node, release, and what it speaks: lowest, protocol."""

    exit_code = 7


class UnsupportedRequestError(VersionMismatchError):
    """A node was asked for something that its version of halog does not know; nothing was done. `evidence`: node,
    release, request."""


class NodeError(HalogError):
    """This node cannot do its work."""


class DuplicateNodeError(NodeError):
    """Another live process is the same node (N1)."""


class DuplicateLocationError(DuplicateNodeError):
    """Another live process has this node's name. The location code is hashed from that. `evidence`: node, and of the
    other process incarnation, pid, address."""


class DuplicateTimestampError(DuplicateNodeError):
    """This node and another live one have the same installation timestamp: the data directory of one is a copy.
    `evidence`: installation, and of that node its name (node), pid, address."""


class ForkedError(NodeError):
    """A forked child process has used its parent's node. Open a node in the child."""


class ClosedError(NodeError):
    """The node is closed."""


def mark_unsent(error: BaseException, frame: bytes) -> None:
    """Note on an exception that it came before any byte of `frame` was sent. The exception may be none of halog's
    (Ctrl-C). The mark names the frame, since the same exception instance may interrupt several requests."""
    error.__dict__["halog_unsent"] = frame


def unmark(error: BaseException) -> None:
    """Remove the mark: the exception came when part of a request may have been sent."""
    error.__dict__.pop("halog_unsent", None)


def is_unsent(error: BaseException, frame: bytes) -> bool:
    """Is the exception marked as one that came before any byte of `frame` was sent?"""
    return error.__dict__.get("halog_unsent") is frame
