"""What can happen to a partition's copy on one node, and what it may ask for in return.

Events are facts, effects are wishes; the driver performs an effect and reports how it went as another event. All are
frozen values, so that a history is a list that can be printed, stored and replayed. Times are ms of the driver's
monotonic clock, given to `Partition.step`; nothing in here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from halog.core.ballots import (
    AskDecision as AskDecision,
    Confirmed as Confirmed,
    DecideAsked as DecideAsked,
    MappingAsked as MappingAsked,
    PrepareAsked as PrepareAsked,
    Spread as Spread,
)
from halog.core.cas import Cas as Cas
from halog.core.durability import Durability
from halog.core.ids import EpochId, Member, Position
from halog.core.log.chain import ChainState
from halog.core.log.records import Change, Record
from halog.core.log.transactions import Applied
from halog.core.log_events import AskLog as AskLog, LogAnswered as LogAnswered
from halog.core.merge_events import MergeAsked as MergeAsked, MergeDue as MergeDue, MergeMade as MergeMade
from halog.core.results import (
    Busy as Busy,
    Conflicted as Conflicted,
    Duplicated as Duplicated,
    Expired as Expired,
    Happened as Happened,
    Locked as Locked,
    NotHappened as NotHappened,
    NotServing as NotServing,
    Otherwise as Otherwise,
    Refused as Refused,
    Remapped as Remapped,
    Result as Result,
    TooFew as TooFew,
    TooLarge as TooLarge,
    Unknown as Unknown,
)
from halog.core.site_events import AskVote as AskVote, SiteAck as SiteAck, VoteAnswered as VoteAnswered
from halog.core.stow_events import Stand as Stand, Stow as Stow, Stowed as Stowed
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell as Tell

# --- events ---------------------------------------------------------------------------------------------------------


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


# --- effects --------------------------------------------------------------------------------------------------------


class Append(msgspec.Struct, frozen=True):
    """Append `data` under the current session; report Appended or AppendFailed with `tag`, in order. `patience_ms`: so
    long it may wait for others to travel with, since nobody waits for the log."""

    tag: int
    data: bytes
    patience_ms: int = 0


class EndSession(msgspec.Struct, frozen=True):
    """Abandon the producer session: it can no longer be trusted. Every partition that writes through it hears
    AppendFailed(-1)."""

    why: str


class Read(msgspec.Struct, frozen=True):
    """Deliver EntriesRead from `offset` on."""

    offset: int


class StopReading(msgspec.Struct, frozen=True):
    """Deliver no more entries; the active learns its log from acknowledgements."""


class Apply(msgspec.Struct):
    """Apply accepted records, one after the other in the log, storing `state` and `next_offset` behind the last with
    them. (It grows while the step that makes it goes on.)"""

    records: list[Applied]
    state: ChainState
    next_offset: int


class Show(msgspec.Struct, frozen=True):
    """Commits the log may not have yet are acknowledged: visible from here on, stored once an `Apply` brings them."""

    records: list[Record]


class Keep(msgspec.Struct, frozen=True):
    """Nothing to apply, but store `state` and `next_offset`: the chain has moved."""

    state: ChainState
    next_offset: int


class KeepTail(msgspec.Struct, frozen=True):
    """This copy stops, and holds commits that its log never had: they go down to the disk, for when it is opened again
    (E6). Where that fails it stops all the same."""

    records: tuple[bytes, ...]


class Save(msgspec.Struct, frozen=True):
    """Store everything applied so far, before the effects behind this one; `flush`: down to the disk."""

    flush: bool


class Flush(msgspec.Struct, frozen=True):
    """Store everything applied so far, which ends with `lsn`, and report Flushed once that is on the disk."""

    lsn: int


class Reply(msgspec.Struct, frozen=True):
    """Answer whoever waits on `token`."""

    token: int
    result: Result


class SetTable(msgspec.Struct, frozen=True):
    """Compare-and-set the znode; report CasDone(round)."""

    round: int
    version: int
    table: PartitionTable


class Renew(msgspec.Struct, frozen=True):
    """Ask, as a write is asked for, whether the znode has this version still; report Renewed(round)."""

    round: int
    version: int


class Refresh(msgspec.Struct, frozen=True):
    """Read the znode again (after a sync) and report TableSeen."""


class AskPositions(msgspec.Struct, frozen=True):
    """Ask these nodes for their positions."""

    round: int
    nodes: tuple[str, ...]


class TellPosition(msgspec.Struct, frozen=True):
    """Answer a candidate."""

    node: str
    round: int
    position: Position
    eligible: bool
    tail: tuple[bytes, ...] | None = None
    stood: tuple[int, ...] = ()


class SendAck(msgspec.Struct, frozen=True):
    """Tell node `to` how far this copy is: what it has applied, or what it merely holds; and what is on its disk."""

    to: str
    epoch: EpochId
    lsn: int
    applied: bool = True
    flushed: int = 0


class AskFlush(msgspec.Struct, frozen=True):
    """Ask these nodes to flush what they have up to `lsn`, and to say so."""

    to: tuple[str, ...]
    epoch: EpochId
    lsn: int


class Push(msgspec.Struct, frozen=True):
    """Send `data`, just appended, to these nodes too, in order; what cannot be sent is dropped. Empty: there is nothing
    to send but `shown`, see `Pushed`."""

    to: tuple[str, ...]
    epoch: EpochId
    data: bytes
    shown: int = 0


class RoleChanged(msgspec.Struct, frozen=True):
    """For observers: the copy's role, and why."""

    role: str
    why: str


Effect = (
    Append
    | EndSession
    | Read
    | StopReading
    | Apply
    | Show
    | Keep
    | Save
    | Flush
    | Reply
    | SetTable
    | Renew
    | Refresh
    | AskPositions
    | TellPosition
    | SendAck
    | AskFlush
    | Push
    | RoleChanged
    | Tell
    | Spread
    | AskDecision
    | MergeDue
    | AskVote
    | KeepTail
    | Stow
    | Stand
    | AskLog
)
