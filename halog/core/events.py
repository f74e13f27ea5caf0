"""What can happen to a partition's copy on one node.

Events are facts. All are frozen values, so that a history is a list that can be printed, stored and replayed. Times are
ms of the driver's monotonic clock, given to `Partition.step`; nothing in here reads a clock. What a copy may ask for in
return is in `halog.core.effects`, what it answers in `halog.core.results`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

from halog.core.durability import Durability
from halog.core.ids import EpochId, Member, Position
from halog.core.log.records import Change
from halog.core.table.table import PartitionTable


class Cas(enum.Enum):
    """How a compare-and-set went, as far as is known."""

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class TableSeen(msgspec.Struct, frozen=True):
    """The partition's znode, with its version, as read or announced by the coordinator."""

    version: int
    table: PartitionTable


class AliveChanged(msgspec.Struct, frozen=True):
    """The incarnations this node believes to be up, and why it changed. Itself included, unless it is offline for want
    of a quorum in one of its zones (Q1)."""

    members: frozenset[Member]
    why: str = ""
    answering: frozenset[Member] = frozenset()
    """Who is not heard, and has answered a fresh challenge (`halog.core.election.challenges`): nobody claims what it
    serves."""


class EntriesRead(msgspec.Struct, frozen=True):
    """The next entries of the log, as they came: (offset, data)."""

    entries: Sequence[tuple[int, bytes]]


class LogEnd(msgspec.Struct, frozen=True):
    """Everything below the end offset taken at start has been read and applied."""


class Taken(msgspec.Struct, frozen=True):
    """A batch of the log was taken: everything accepted so far is visible here, though perhaps not stored yet."""


class Restored(msgspec.Struct, frozen=True):
    """This node is back in its zones' quorums: the copy is to be brought up to where the log ends now (P11)."""


class LogLost(msgspec.Struct, frozen=True):
    """The log no longer holds what this copy must read next."""

    why: str


class Submitted(msgspec.Struct, frozen=True):
    """A transaction asks to commit. `reads` are (index key, version read); `found` the version now of each key read or
    changed (-1: absent). A repeated `tx` joins the first attempt or gets its result. `epoch`: the highest the initiator
    knew of; a writer below it may not know what became of an earlier attempt, and must not judge it, nor, if `exact`,
    one above it: what is refused there stays so, whatever of it arrives late. `mapping`: what it was routed by (T8)."""

    token: int
    tx: bytes
    reads: Sequence[tuple[bytes, int]]
    changes: Sequence[Change]
    found: Mapping[bytes, int]
    epoch: int = 0
    durability: Durability | None = None
    """What it asks for; None: what the policy says."""
    mapping: int = 0
    exact: bool = False


class BarrierAsked(msgspec.Struct, frozen=True):
    """Somebody wants to read, and to miss nothing that was answered before now (R5). Answered with `Happened`: what is
    read here with that lsn visible is such a read; else nothing was done, and it may be asked again."""

    token: int


class Asked(msgspec.Struct, frozen=True):
    """What became of transaction `tx`, attempted under epoch number `attempt`?"""

    token: int
    tx: bytes
    attempt: int


class Appended(msgspec.Struct, frozen=True):
    """The log acknowledged append `tag` at `offset`, and those behind it: `count` in all, one after the other."""

    tag: int
    offset: int
    count: int = 1


class AppendFailed(msgspec.Struct, frozen=True):
    """Append `tag` failed, or nobody knows. `tag` -1: the whole session ended."""

    tag: int
    why: str


class ReplicaAck(msgspec.Struct, frozen=True):
    """A replica has everything up to `lsn` of `epoch` in memory: read from the log and applied, or held only; up to
    `flushed` it is on its disk, as far as that is known."""

    member: Member
    epoch: EpochId
    lsn: int
    applied: bool = True
    flushed: int = 0


class FlushAsked(msgspec.Struct, frozen=True):
    """`member`, active in `epoch`, has commits that wait until replicas have everything up to `lsn` on their disks."""

    member: Member
    epoch: EpochId
    lsn: int


class Pushed(msgspec.Struct, frozen=True):
    """`member` sent records of its `epoch`, in order, while it gave them to the log; or none, to say what it shows."""

    member: Member
    epoch: EpochId
    records: Sequence[bytes]
    shown: int = 0
    """The last lsn that it shows (W7), where commits do not wait for the log."""


class Flushed(msgspec.Struct, frozen=True):
    """What was stored up to `lsn` is on the disk, as `Flush` asked."""

    lsn: int


class Renewed(msgspec.Struct, frozen=True):
    """The question `round` whether the znode has that version still was answered so."""

    round: int
    result: Cas


class Died(msgspec.Struct, frozen=True):
    """The host of this incarnation says that its process is no more."""

    member: Member


class SessionLost(msgspec.Struct, frozen=True):
    """The session with the coordinator ended, or another has just begun: its data may be those of another day."""


class PositionAsked(msgspec.Struct, frozen=True):
    """A candidate of the election `round` asks for this copy's position."""

    node: str
    round: int


class PositionTold(msgspec.Struct, frozen=True):
    """The answer."""

    node: str
    round: int
    position: Position
    eligible: bool
    incarnation: int = 0
    tail: Sequence[bytes] | None = None
    """What it holds beyond the log, if commits do not wait for that; None: it leads, and may acknowledge more."""
    stood: Sequence[int] = ()
    """Earlier incarnations of its node whose word its store keeps."""


class CasDone(msgspec.Struct, frozen=True):
    """Compare-and-set `round` went so; `version` is the new one where it is OK."""

    round: int
    result: Cas
    version: int = -1


class HandOverAsked(msgspec.Struct, frozen=True):
    """The operator (or this node's shutdown) wants `to` to be active; `why`, for whoever reads of it."""

    token: int
    to: str
    why: str = "asked for"


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed. `wall_ahead_ms`: how far the clock that tells ms since 1970 is ahead of the driver's now; None:
    nobody looked."""

    wall_ahead_ms: int | None = None


# --- the log, where it is in doubt ------------------------------------------------------------------------------------


class LogAnswered(msgspec.Struct, frozen=True):
    """The log has answered the question `round`, which was asked of it behind `AskLog`, and a session is there to
    append with."""

    round: int


# --- what replicas store before they acknowledge it (`halog.core.replica.pushed_store`) -------------------------------


class Stowed(msgspec.Struct, frozen=True):
    """What was stowed of `epoch` up to that lsn is on the disk."""

    epoch: EpochId
    upto: int


# --- transactions over several partitions (D4, D5) --------------------------------------------------------------------


class PrepareAsked(msgspec.Struct, frozen=True):
    """A transaction over `participants` asks this one to vote (T1): answered with `Happened` once everything is locked
    and in the log. The rest, `exact` too, is as in `Submitted`; `digest` is of the whole transaction."""

    token: int
    tx: bytes
    first: str
    participants: tuple[str, ...]
    digest: bytes
    reads: Sequence[tuple[bytes, int]]
    changes: Sequence[Change]
    found: Mapping[bytes, int]
    epoch: int = 0
    mapping: int = 0
    last: bool = False
    """All others have voted: this is the first, and decides at once. Answered with `Happened` once it is committed,
    with `Otherwise` where it was aborted before."""
    exact: bool = False
    moves: bool = False
    """It carries what is there already from one partition to another."""


class MappingAsked(msgspec.Struct, frozen=True):
    """Mapping `version` is to be served from now on (T8): answered with `Happened` once the log says so."""

    token: int
    version: int


class DecideAsked(msgspec.Struct, frozen=True):
    """`tx` is to be committed or aborted: as its first partition decides it (`decides`), or as that has decided.
    Answered with `Happened` where that is how it stands, with `Otherwise` where it stands the other way (T2, T3)."""

    token: int
    tx: bytes
    commit: bool
    decides: bool
    participants: tuple[str, ...] = ()
    """Who may have been asked to prepare, where this partition may not know."""
    patient: bool = False
    """The record may wait for company: whoever tells it waits for no answer."""


class Confirmed(msgspec.Struct, frozen=True):
    """The log of `participant` has the outcome of `tx`, a commit that was decided here (T6)."""

    tx: bytes
    participant: str


# --- other sites (`halog.core.sites.sync_sites`, `halog.core.sites.site_quorum`) --------------------------------------


class SiteAck(msgspec.Struct, frozen=True):
    """The log of another site has accepted everything up to `lsn` of `epoch` (M5)."""

    site: str
    epoch: EpochId
    lsn: int


class VoteAnswered(msgspec.Struct, frozen=True):
    """The question `round` for the votes of `site` was answered: they belong to `owner`; "": it cannot be known."""

    round: int
    site: str
    owner: str


# --- merges (`halog.core.active.epoch_merge`) -------------------------------------------------------------------------


class MergeAsked(msgspec.Struct, frozen=True):
    """Somebody has something to merge into this partition: end the epoch, and open the next one, above `floor`, by it.
    Answered with `Happened` once that is open, `Refused` where it opened, or goes on, without."""

    token: int
    floor: int


class MergeMade(msgspec.Struct, frozen=True):
    """What opens `epoch`, as `MergeDue` asked: the parts, and the `EpochMerged`; nothing: it is to open without."""

    token: int
    epoch: EpochId
    records: Sequence[bytes]


Event = (
    TableSeen
    | AliveChanged
    | EntriesRead
    | LogEnd
    | Taken
    | Restored
    | LogLost
    | Submitted
    | BarrierAsked
    | Asked
    | Appended
    | AppendFailed
    | ReplicaAck
    | FlushAsked
    | Flushed
    | Pushed
    | PositionAsked
    | PositionTold
    | CasDone
    | Renewed
    | Died
    | SessionLost
    | HandOverAsked
    | PrepareAsked
    | DecideAsked
    | MappingAsked
    | Confirmed
    | Ticked
    | MergeAsked
    | MergeMade
    | SiteAck
    | VoteAnswered
    | Stowed
    | LogAnswered
)
