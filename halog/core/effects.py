"""This module has what a partition's copy may ask for.

Effects are wishes: the driver performs each, in order, and reports how it went as an event (`halog.core.events`).
"""

from __future__ import annotations

import msgspec

from halog.core.ids import EpochId, Position
from halog.core.log.chain import ChainState
from halog.core.log.records import Record
from halog.core.log.transactions import Applied
from halog.core.results import Result
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell


class Append(msgspec.Struct, frozen=True):
    """Append `data` under the current session; report Appended or AppendFailed with `tag`, in order. It may wait
    `patience_ms` for others to travel with, since nobody waits for the log."""

    tag: int
    data: bytes
    patience_ms: int = 0


class EndSession(msgspec.Struct, frozen=True):
    """Abandon the producer session: it can no longer be trusted. Every partition that writes through it gets
    AppendFailed(-1)."""

    why: str


class Read(msgspec.Struct, frozen=True):
    """Deliver EntriesRead from `offset` on."""

    offset: int


class StopReading(msgspec.Struct, frozen=True):
    """Deliver no more entries; the active node learns its log from acknowledgements."""


class Apply(msgspec.Struct):
    """Apply accepted records, consecutive in the log. Store `state` and `next_offset` as they are behind the last of
    them. The list grows while the step that makes it goes on."""

    records: list[Applied]
    state: ChainState
    next_offset: int


class LevelStands(msgspec.Struct, frozen=True):
    """A level stands that is above what the coordinator says: the log states it, or the coordinator said it before.
    Nothing may lower it, so the coordinator's is to be raised to it (U1)."""

    level: int


class Show(msgspec.Struct, frozen=True):
    """Make acknowledged commits visible from here on. The log may not have them yet; an `Apply` stores them later."""

    records: list[Record]


class Keep(msgspec.Struct, frozen=True):
    """Store `state` and `next_offset`: there is nothing to apply, but the chain has moved."""

    state: ChainState
    next_offset: int


class KeepTail(msgspec.Struct, frozen=True):
    """Write commits that the log never had to the disk, for when this copy is opened again: it stops (E6). It stops
    even if that fails."""

    records: tuple[bytes, ...]


class Save(msgspec.Struct, frozen=True):
    """Store everything applied so far before the effects behind this one. If `flush`, down to the disk."""

    flush: bool


class Flush(msgspec.Struct, frozen=True):
    """Store everything applied so far, which ends with `lsn`. Report Flushed once that is on the disk."""

    lsn: int


class Reply(msgspec.Struct, frozen=True):
    """Send the answer to the caller that waits on `token`."""

    token: int
    result: Result


class SetTable(msgspec.Struct, frozen=True):
    """Write the znode by a compare-and-set; report CasDone(round)."""

    round: int
    version: int
    table: PartitionTable


class Renew(msgspec.Struct, frozen=True):
    """Ask whether the znode still has this version, in the order of writes; report Renewed(round)."""

    round: int
    version: int


class Refresh(msgspec.Struct, frozen=True):
    """Read the znode again (after a sync) and report TableSeen."""


class AskPositions(msgspec.Struct, frozen=True):
    """Ask these nodes for their positions."""

    round: int
    nodes: tuple[str, ...]


class TellPosition(msgspec.Struct, frozen=True):
    """Send this copy's position to a candidate."""

    node: str
    round: int
    position: Position
    eligible: bool
    tail: tuple[bytes, ...] | None = None
    stood: tuple[int, ...] = ()


class SendAck(msgspec.Struct, frozen=True):
    """Tell node `to` how far this copy is: what it has applied or only holds, and what is on its disk. `sealed`: this
    copy holds nothing that is pushed in this epoch any more (E1)."""

    to: str
    epoch: EpochId
    lsn: int
    applied: bool = True
    flushed: int = 0
    sealed: bool = False


class AskFlush(msgspec.Struct, frozen=True):
    """Ask these nodes to flush what they have up to `lsn`, and to say so."""

    to: tuple[str, ...]
    epoch: EpochId
    lsn: int


class Push(msgspec.Struct, frozen=True):
    """Send `data`, just appended, to these nodes too, in order; what cannot be sent is dropped. Empty `data`: there is
    nothing to send but `shown`, see `Pushed`."""

    to: tuple[str, ...]
    epoch: EpochId
    data: bytes
    shown: int = 0


class RoleChanged(msgspec.Struct, frozen=True):
    """A `RoleChanged` tells observers the copy's role, and why."""

    role: str
    why: str


# --- the log, where it is in doubt ------------------------------------------------------------------------------------


class AskLog(msgspec.Struct, frozen=True):
    """Ask the log whether it answers for this partition. Report LogAnswered(round) once it does, however long that
    takes. A later question replaces an earlier one. `since_ms`: since when it is not known to answer."""

    round: int
    since_ms: int
    serves: bool = False
    """The copy is active, and only measures the log's time: no epoch waits for the answer."""


# --- what replicas store before they acknowledge it (`halog.core.replica.pushed_store`) -------------------------------


class StorePushed(msgspec.Struct, frozen=True):
    """Store these held records of `epoch`, up to lsn `upto`, before the effects behind this one. If `anew`, nothing
    that was stored before is needed any more. If `flush`, report PushedFlushed once they are on the disk."""

    epoch: EpochId
    upto: int
    records: tuple[bytes, ...]
    anew: bool
    flush: bool


class Stand(msgspec.Struct, frozen=True):
    """Note, before the effects behind this one, for which incarnations of this node the store stands: what each of them
    told as held is stored, or in the log. If `flush`, down to the disk."""

    incarnations: tuple[int, ...]
    flush: bool


# --- transactions over several partitions (D4, D5) --------------------------------------------------------------------


class Spread(msgspec.Struct, frozen=True):
    """Tell these partitions how `tx` was decided here. Report Confirmed for each that has it."""

    tx: bytes
    commit: bool
    to: tuple[str, ...]


class AskDecision(msgspec.Struct, frozen=True):
    """Ask the first partition of `tx`, which is in doubt for too long, to abort it. Report what it has decided (T3,
    T4)."""

    tx: bytes
    first: str


# --- other sites (`halog.core.sites.site_quorum`) ---------------------------------------------------------------------


class AskVote(msgspec.Struct, frozen=True):
    """Ask the coordinator of a site for its votes, for this partition; report VoteAnswered(round)."""

    round: int
    site: str


# --- merges (`halog.core.active.epoch_merge`) -------------------------------------------------------------------------


class MergeDue(msgspec.Struct, frozen=True):
    """Ask for what opens `epoch`: the history now ends with `state`, for good. All of it is in the log before `offset`.
    Report MergeMade."""

    token: int
    epoch: EpochId
    state: ChainState
    offset: int
    horizon: bytes
    mapper_version: int
    decided: tuple[tuple[bytes, bool], ...]
    """The decisions in the ledger: transaction id, and whether it commits."""


Effect = (
    Append
    | LevelStands
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
    | StorePushed
    | Stand
    | AskLog
)
