"""This module has what can happen to a partition's copy on one node.

Events are facts. All are frozen values, so a history is a list that can be printed, stored and replayed. Times are ms
of the driver's monotonic clock, given to `Partition.step`; nothing in here reads a clock. `halog.core.effects` has what
a copy may ask for in return, `halog.core.results` what it answers.
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
    """A `Cas` says how a compare-and-set went, as far as is known."""

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class TableSeen(msgspec.Struct, frozen=True):
    """A `TableSeen` is the partition's znode, with its version, as the coordinator read or announced it."""

    version: int
    table: PartitionTable


class LevelSeen(msgspec.Struct, frozen=True):
    """A `LevelSeen` is the cluster's level, as the coordinator read or announced it (U1)."""

    level: int


class AliveChanged(msgspec.Struct, frozen=True):
    """The incarnations that this node believes to be up have changed; `why` says what happened. This node is one of
    them, unless it is offline because one of its zones has no quorum (Q1)."""

    members: frozenset[Member]
    why: str = ""
    answering: frozenset[Member] = frozenset()
    """Incarnations that are silent, but have answered a fresh challenge (`halog.core.election.challenges`). Nobody
    claims what they serve."""


class EntriesRead(msgspec.Struct, frozen=True):
    """The next entries of the log were read, in order: (offset, data)."""

    entries: Sequence[tuple[int, bytes]]


class LogEnd(msgspec.Struct, frozen=True):
    """Everything below the end offset that was taken at the start has been read and applied."""


class Taken(msgspec.Struct, frozen=True):
    """A batch of the log was applied. Everything accepted so far is visible here, though perhaps not stored yet."""


class Restored(msgspec.Struct, frozen=True):
    """This node is back in its zones' quorums: the copy is to be brought up to where the log ends now (P11)."""


class LogLost(msgspec.Struct, frozen=True):
    """This copy cannot go on: the log no longer holds what it must read next, say. `later`: or a later version of halog
    wrote that."""

    why: str
    later: bool = False


class Submitted(msgspec.Struct, frozen=True):
    """A transaction asks to commit.

    `reads` are (index key, version read); `found` has the current version of each key read or changed (-1: absent). A
    repeated `tx` joins the first attempt or gets its result. `mapping` is the version it was routed by (T8).

    `epoch` is the highest epoch the initiator knew of. A writer of a lower epoch must not judge the transaction, since
    it may not know what became of an earlier attempt. If `exact`, a writer of a higher epoch must not judge it either:
    what is refused there stays refused, whatever of it arrives late.
    """

    token: int
    tx: bytes
    reads: Sequence[tuple[bytes, int]]
    changes: Sequence[Change]
    found: Mapping[bytes, int]
    epoch: int = 0
    durability: Durability | None = None
    """The durability it asks for; None: what the policy says."""
    mapping: int = 0
    exact: bool = False


class BarrierAsked(msgspec.Struct, frozen=True):
    """A `BarrierAsked` is the question of a reader that must miss nothing that was answered before now (R5). The answer
    is `Happened`: a read here with that lsn visible misses nothing. Any other answer means that nothing was done; the
    reader may ask again."""

    token: int


class Asked(msgspec.Struct, frozen=True):
    """Somebody asks what became of transaction `tx`, attempted under epoch number `attempt`."""

    token: int
    tx: bytes
    attempt: int


class Appended(msgspec.Struct, frozen=True):
    """The log acknowledged append `tag` at `offset`, and the appends behind it: `count` in all, one after the other."""

    tag: int
    offset: int
    count: int = 1


class AppendFailed(msgspec.Struct, frozen=True):
    """Append `tag` failed, or nobody knows whether it did. `tag` -1: the whole session ended."""

    tag: int
    why: str


class ReplicaAck(msgspec.Struct, frozen=True):
    """A replica has everything up to `lsn` of `epoch` in memory: `applied` after reading it from the log, or only held.
    It has everything up to `flushed` on its disk, as far as that is known. `sealed`: it holds nothing that is pushed in
    this epoch any more (E1)."""

    member: Member
    epoch: EpochId
    lsn: int
    applied: bool = True
    flushed: int = 0
    sealed: bool = False


class FlushAsked(msgspec.Struct, frozen=True):
    """The active node `member` of `epoch` asks for a flush: commits wait until replicas have everything up to `lsn` on
    disk."""

    member: Member
    epoch: EpochId
    lsn: int


class Pushed(msgspec.Struct, frozen=True):
    """The active node `member` sent records of its `epoch`, in order, while it gave them to the log. Without records it
    only says what it shows."""

    member: Member
    epoch: EpochId
    records: Sequence[bytes]
    shown: int = 0
    """The last lsn that it shows (W7), where commits do not wait for the log."""


class Flushed(msgspec.Struct, frozen=True):
    """The disk has what was stored up to `lsn`, as `Flush` asked."""

    lsn: int


class Renewed(msgspec.Struct, frozen=True):
    """A `Renewed` is the answer to the question `round`: whether the znode still has that version."""

    round: int
    result: Cas


class Died(msgspec.Struct, frozen=True):
    """The host of this incarnation says that its process has ended."""

    member: Member


class SessionLost(msgspec.Struct, frozen=True):
    """The session with the coordinator ended, or another has just begun: the coordinator may have been put back to
    older data."""


class PositionAsked(msgspec.Struct, frozen=True):
    """A candidate of the election `round` asks for this copy's position."""

    node: str
    round: int


class PositionTold(msgspec.Struct, frozen=True):
    """A `PositionTold` is the position of a copy that was asked for it."""

    node: str
    round: int
    position: Position
    eligible: bool
    incarnation: int = 0
    tail: Sequence[bytes] | None = None
    """What it holds beyond the log, if commits do not wait for the log. None: it leads, and may acknowledge more."""
    stood: Sequence[int] = ()
    """Earlier incarnations of its node that its store stands for."""


class CasDone(msgspec.Struct, frozen=True):
    """Compare-and-set `round` ended with `result`; `version` is the new one where it is OK."""

    round: int
    result: Cas
    version: int = -1


class HandOverAsked(msgspec.Struct, frozen=True):
    """The operator, or this node's shutdown, wants `to` to be active; `why` is for operators."""

    token: int
    to: str
    why: str = "asked for"


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed. `wall_ahead_ms` says how far the clock of ms since 1970 is ahead of the driver's now; None:
    nobody looked."""

    wall_ahead_ms: int | None = None


# --- the log, where it is in doubt ------------------------------------------------------------------------------------


class LogAnswered(msgspec.Struct, frozen=True):
    """The log has answered the question `round` that `AskLog` made, and there is a session to append with."""

    round: int


# --- what replicas store before they acknowledge it (`halog.core.replica.pushed_store`) -------------------------------


class PushedFlushed(msgspec.Struct, frozen=True):
    """The disk has what was stored of `epoch` up to lsn `upto`."""

    epoch: EpochId
    upto: int


# --- transactions over several partitions (D4, D5) --------------------------------------------------------------------


class PrepareAsked(msgspec.Struct, frozen=True):
    """A transaction over `participants` asks this one to vote (T1). It is answered with `Happened` once everything is
    locked and in the log. `digest` is that of the whole transaction; the rest, also `exact`, is as in `Submitted`."""

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
    """All others have voted: this is the first participant, and decides at once. It is answered with `Happened` once it
    is committed, with `Otherwise` where it was aborted before."""
    exact: bool = False
    moves: bool = False
    """It carries existing objects from one partition to another."""


class MappingAsked(msgspec.Struct, frozen=True):
    """Mapping `version` is to be served from now on (T8). It is answered with `Happened` once the log says so."""

    token: int
    version: int


class DecideAsked(msgspec.Struct, frozen=True):
    """Somebody asks to commit or abort `tx`. Either its first partition decides it now (`decides`), or it was decided
    there. Answered with `Happened` where that is the outcome, with `Otherwise` where the outcome is the other one (T2,
    T3)."""

    token: int
    tx: bytes
    commit: bool
    decides: bool
    participants: tuple[str, ...] = ()
    """The participants that may have been asked to prepare, where this partition may not know them."""
    patient: bool = False
    """The record may wait for others to travel with: the sender waits for no answer."""


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
    """A site has answered the question `round` for its votes: they belong to `owner`; "": it cannot be known."""

    round: int
    site: str
    owner: str


# --- merges (`halog.core.active.epoch_merge`) -------------------------------------------------------------------------


class MergeAsked(msgspec.Struct, frozen=True):
    """Somebody has a merge for this partition: the epoch is to end, and the merge is to open the next one, above
    `floor`. It is answered with `Happened` once that epoch is open, with `Refused` where an epoch opened, or goes on,
    without the merge."""

    token: int
    floor: int


class MergeMade(msgspec.Struct, frozen=True):
    """A `MergeMade` is the answer to `MergeDue`. It has the records that open `epoch`: the parts and the `EpochMerged`.
    Without records the epoch opens without a merge."""

    token: int
    epoch: EpochId
    records: Sequence[bytes]


Event = (
    TableSeen
    | LevelSeen
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
    | PushedFlushed
    | LogAnswered
)
