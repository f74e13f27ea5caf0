"""Every error halog raises, in one tree.

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
    │   ├── RecordFormatError     an unknown record type or version, or bad bytes
    │   ├── DivergedError         this history and the log's are not one
    │   └── PartedError           two sites have gone on each by itself
    ├── CoordinatorError          ZooKeeper said no
    │   └── VersionError          a compare-and-set found another version
    ├── StoreError                the local store cannot be trusted or used
    ├── FrameError                a peer sent bytes that are no frame of ours
    ├── SiteError                 the embedded servers cannot be brought up
    └── NodeError                 this node cannot work
        ├── DuplicateNodeError    another live node has the same name
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
}


class HalogError(Exception):
    """Root of the tree. `evidence` holds plain values only, so that it can cross a wire and a log."""

    happened: ClassVar[bool | None] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **evidence: Any) -> None:
        super().__init__(message)
        self.message = message
        self.evidence: dict[str, Any] = evidence

    def __str__(self) -> str:
        return self.message


class ConfigError(HalogError):
    """A configuration value is missing, unknown or wrong; names file, key and reason."""

    exit_code = 2


class UnknownNameError(ConfigError):
    """A name was given that no node, partition, policy, zone, site, … has; nothing was changed.

    `evidence`: kind, name, known (all of them)."""

    @classmethod
    def of(cls, kind: str, name: str, known: Collection[str], where: str = "") -> UnknownNameError:
        """The one form of it: what there is none of, what there is, and which command shows all of them."""
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
    """A managed class cannot be declared as written; names class and field."""

    exit_code = 2


class SchemaChangedError(DeclarationError):
    """The stored definition of a type cannot be read with the declared one; carries both."""


class TransactionError(HalogError):
    """The transaction did not happen and changed nothing."""


class ConflictError(TransactionError):
    """A version the transaction read no longer holds. Running the transaction again is safe.

    `evidence["settled_lsn"]` is the lsn a retry should wait for before it reads again (0: none).
    """


class RemappedError(ConflictError):
    """It was routed by a mapping that its partition serves no more, and nothing was done (T8). halog begins again with
    the new one; raised only where that takes the whole transaction. `evidence`: partition, mapping (its version)."""


class SwitchedError(ConflictError):
    """Another site serves the partition than when the transaction began, and nothing was done (M5). Versions read there
    may be something else here; running the transaction again is safe."""


class LockedError(ConflictError):
    """A transaction over several partitions that is not decided yet holds the object (T5); `evidence["tx"]` names it.
    Waited for already; running the transaction again is safe."""


class DuplicateKeyError(TransactionError):
    """An object with this key exists."""


class NotFoundError(TransactionError):
    """No object with this key or reference exists."""

    exit_code = 2


class FieldTypeError(TransactionError):
    """A value does not fit the annotation of its field, argument or result."""


class UnknownTypeError(TransactionError):
    """The type is not declared here, or not bound to a policy."""

    exit_code = 2


class MapperError(TransactionError):
    """A custom mapper failed, or said what is no partition of the policy (P6); names mapper, type, key and answer."""


class RecordTooLargeError(TransactionError):
    """The encoded commit record exceeds the limit (R8); names size, limit and the largest objects."""


class CrossPartitionError(TransactionError):
    """A method touches an object of another partition than its own; names both."""


class NoTransactionError(TransactionError):
    """Called outside a transaction, or on an object whose transaction has ended."""


class RemoteCallError(HalogError):
    """A method raised on the active node an exception this process does not know; carries its evidence."""


class AvailabilityError(HalogError):
    """What was asked for cannot be had now; nothing happened."""

    exit_code = 3


class PartitionUnavailableError(AvailabilityError):
    """No node is active for the partition."""


class NotActiveError(AvailabilityError):
    """The node asked is not the active one; `evidence["active"]` names whom to ask, where known, and
    `evidence["elected"]` the epoch that it was made active in."""


class UnreachableError(AvailabilityError):
    """A server or node does not answer."""


class OverloadedError(AvailabilityError):
    """A limit on work in flight is reached; try again later."""


class QuorumError(AvailabilityError):
    """Nothing was done: too few nodes of the partition's group are there (R7)."""


class SitesError(QuorumError):
    """Nothing was done: a site whose log must have a commit confirms nothing, or too many sites whose votes this one
    needs cannot be reached (M5); `evidence["sites"]` names them."""


class ReplicasError(QuorumError):
    """Nothing was done: too few sync replicas are there for what the transaction asked of them (R6)."""


class ZoneQuorumError(QuorumError):
    """Nothing was done: the node asked has no quorum in one of its zones and is offline (Q1); `evidence["node"]` names
    it, `evidence["why"]` the zone."""


class DeadlineError(AvailabilityError):
    """It did not come about within the time allowed."""

    exit_code = 6


class OutcomeUnknownError(HalogError):
    """It may or may not have happened. Of a commit `node.outcome(error)` says which; its evidence is what that asks by.

    `tx`: the id; `partition`: that which decides; `participants`: all of them, if there are several; `epoch`: the
    highest that a request of it was sent for. Always pass the epoch from the error; with an older one the answer
    "did not happen" may be wrong, since a late request may still be done.
    """

    happened = None


class RefusedError(HalogError):
    """Refused because it would be unsafe; says what would make it safe."""

    exit_code = 5


class NodeListsError(RefusedError):
    """A node's definition of a partition and the cluster's node list are inconsistent (P10); names both. Nothing was
    changed. `evidence["lists"]` has them all: partition, node, defined, listed."""


class NothingToDoError(RefusedError):
    """There is nothing of what was to be ended or undone, or it is so already; nothing was changed."""

    exit_code = 0


class LogError(HalogError):
    """The log cannot be read or written as it stands."""


class RecordFormatError(LogError):
    """A record of an unknown type or version, or bytes that are no record."""


class DivergedError(LogError):
    """This node's history and the log's are not one history."""


class PartedError(LogError):
    """The histories of two sites have parted: each went on by itself (M1). `evidence`: lsn, and the hashes of the two
    records there, `ours` and `theirs`."""


class CoordinatorError(HalogError):
    """The coordinator refused or lost the request."""

    exit_code = 3


class VersionError(CoordinatorError):
    """A compare-and-set found another version than the expected one; nothing was changed."""


class StoreError(HalogError):
    """The local store cannot be used or trusted."""


class FrameError(HalogError):
    """A peer sent bytes that are no frame of this protocol."""


class SiteError(HalogError):
    """The embedded servers cannot be brought up or down; says what to do."""


class NodeError(HalogError):
    """This node cannot do its work."""


class DuplicateNodeError(NodeError):
    """Another live node has the same name."""


class ForkedError(NodeError):
    """A connected node was used in a child process after fork()."""


class ClosedError(NodeError):
    """The node is closed."""


def mark_unsent(error: BaseException, frame: bytes) -> None:
    """Whatever ended this request, also what is none of ours (Ctrl-C), came before anything of `frame` was sent. The
    mark is for this very frame: whoever raises one and the same instance each time interrupts others with it, too."""
    error.__dict__["halog_unsent"] = frame


def unmark(error: BaseException) -> None:
    """What ended a request came when some of it may have been sent, whatever the same instance ended before."""
    error.__dict__.pop("halog_unsent", None)


def is_unsent(error: BaseException, frame: bytes) -> bool:
    """Was it marked so, of this request?"""
    return error.__dict__.get("halog_unsent") is frame
