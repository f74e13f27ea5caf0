"""This module is the automaton that says which records of a log count; every reader runs it (rules R1-R3 of
docs/protocol.md).

The log may hold records of dead epochs, late appends and losers of an election. Every reader must accept the same
records. A record is

- STARTED   an `EpochStarted` above everything before it: from here on only its epoch may write (R1);
- OPENED    the `EpochOpened` that states the very history this reader holds (R3);
- ACCEPTED  of the current epoch and continuing the chain of lsn and hash (R2);
- SKIPPED   of a lower epoch, of a voided or closed one, or an `EpochStarted` that lost;
- VOIDED    of the current epoch but not continuing: the rest of that epoch is void, for every reader alike (R2);
- HELD      a part of a merge: it counts together with the `EpochMerged` of its epoch, which is OPENED, or never;
- SWITCHED  a `SiteSwitched` of the current epoch that stands where this history ends (F1).

A log belongs to one site at a time: its own, whose epochs are judged as above, or another one, whose history is
mirrored into it (F1, F2). Of a mirrored history the log has only the chain, the records that have an lsn. The next one
counts, whoever wrote it and however often. Everything else is skipped, and nothing voids. The own site takes its log
over with an `EpochStarted` above its own earlier ones, and gives it away with a `SiteSwitched`.

`DivergedError` means the reader, not the record, is wrong: its history and the log's are not one. This module never
reads bytes or offsets; it sees records in log order and remembers where the accepted history ends.
"""

from __future__ import annotations

import enum

import msgspec

from halog.core.log import merge_parts as merged
from halog.core.log.chain_state import ChainState as ChainState
from halog.core.log.record_types import (
    EpochMerged,
    EpochOpened,
    EpochStarted,
    HandedOver,
    LevelStated,
    MergePart,
    Record,
    SiteSwitched,
)
from halog.errors import DivergedError


class Verdict(enum.Enum):
    """A `Verdict` says how a record counts; the module explains each."""

    STARTED = "started"
    OPENED = "opened"
    ACCEPTED = "accepted"
    SKIPPED = "skipped"
    VOIDED = "voided"
    HELD = "held"
    SWITCHED = "switched"


_NO_COMMITS = frozenset({SiteSwitched, MergePart, EpochOpened, EpochMerged})


class Chain:
    """A `Chain` is the automaton: `read` judges each record in log order; `state` is the value to store."""

    __slots__ = ("merged", "parts", "state")

    def __init__(self, state: ChainState) -> None:
        self.state = state
        self.parts: merged.MergeParts | None = None
        """Parts of merges that may still count."""
        self.merged: merged.AppliedMerge | None = None
        """What the last `EpochMerged` that was OPENED says."""

    def read(self, record: Record, digest: bytes) -> Verdict:
        """Return how the next record of the log counts; `digest` is the hash of its bytes."""
        s, h = self.state, record.header
        if h.log_id != s.log_id:
            raise DivergedError(
                "the log holds records of another history: the topic was re-created or is foreign; "
                "rebuild this copy from the right log",
                ours=s.log_id.hex(),
                theirs=h.log_id.hex(),
            )
        if s.owner:
            return self._mirrored(record, digest)
        if type(record) is EpochStarted:
            return self._started(record)
        if h.epoch != s.epoch:
            if h.epoch.site == s.site and h.epoch.number > s.epoch.number:
                raise DivergedError(
                    f"epoch {h.epoch.number} writes but never started in what this copy has read; rebuild it",
                    epoch=h.epoch.number,
                    highest=s.epoch.number,
                )
            return Verdict.SKIPPED
        if type(record) in _NO_COMMITS:
            return self._of_epoch(record, digest)
        if s.void:
            return Verdict.SKIPPED
        if self.parts is not None:
            self.parts = None
        if h.lsn != s.lsn + 1 or h.prev != s.hash:
            self.state = msgspec.structs.replace(s, void=True)
            return Verdict.VOIDED
        self.accept(record, digest)
        return Verdict.ACCEPTED

    def _of_epoch(self, record: Record, digest: bytes) -> Verdict:
        """Judge a record that begins or ends the current epoch, or belongs to its beginning."""
        s = self.state
        if type(record) is SiteSwitched:
            return self._switched(record)
        if s.void or (type(record) is MergePart and s.opened):
            return Verdict.SKIPPED
        if type(record) is MergePart:
            return self._held(record, digest)
        assert isinstance(record, EpochOpened | EpochMerged)
        return self._opened(record, digest)

    def accept(self, record: Record, digest: bytes) -> None:
        """Extend the history by a record known to continue it (the active's own, once the log has it)."""
        s = self.state
        if type(record) is HandedOver:
            self.state = msgspec.structs.replace(s, lsn=record.header.lsn, hash=digest, void=True, closed_for=record.to)
        elif type(record) is LevelStated:
            level = max(s.level, record.level)
            self.state = msgspec.structs.replace(s, lsn=record.header.lsn, hash=digest, level=level)
        else:
            self.state = ChainState(
                s.log_id,
                s.site,
                s.epoch,
                s.opened,
                s.void,
                s.closed_for,
                s.led,
                record.header.lsn,
                digest,
                s.lineage,
                s.owner,
                s.fenced,
                s.joined,
                s.undoings,
                s.level,
            )

    def _started(self, record: EpochStarted) -> Verdict:
        s, epoch = self.state, record.header.epoch
        if epoch.site != s.site or epoch.number <= s.epoch.number:
            return Verdict.SKIPPED
        self.parts = None
        self.state = msgspec.structs.replace(s, epoch=epoch, opened=False, void=False, closed_for="")
        return Verdict.STARTED

    def _opened(self, record: EpochOpened | EpochMerged, digest: bytes) -> Verdict:
        s, h = self.state, record.header
        if type(record) is EpochMerged:
            continues = merged.continues(s, record.branches[0])
        else:
            continues = h.lsn == s.lsn + 1 and h.prev == s.hash
        if s.opened:  # a second one of the same epoch: the writer lost count
            self.state = msgspec.structs.replace(s, void=True)
            return Verdict.VOIDED
        if not continues:
            raise DivergedError(
                f"epoch {h.epoch.number} opened on a history this copy does not have (lsn {h.lsn - 1}, ours {s.lsn}): "
                "the log lost its tail or this copy is foreign; rebuild it",
                theirs=(h.lsn - 1, h.prev.hex()),
                ours=(s.lsn, s.hash.hex()),
            )
        if type(record) is EpochMerged:
            return self._merged(record, digest)
        self.parts = None
        self.state = msgspec.structs.replace(
            s, opened=True, led=h.epoch.number, lsn=h.lsn, hash=digest, lineage=(*s.lineage, (h.epoch, h.lsn))
        )
        return Verdict.OPENED

    def _held(self, record: MergePart, digest: bytes) -> Verdict:
        self.parts = self.parts or merged.MergeParts()
        self.parts.hold(record, digest)
        return Verdict.HELD

    def _merged(self, record: EpochMerged, digest: bytes) -> Verdict:
        """Take a merge that stands on this history. It voids the epoch if its parts are not all there: its writer has
        miscounted."""
        parts = self._parts_of(record)
        if parts is None or not merged.is_whole(record):
            self.state = msgspec.structs.replace(self.state, void=True)
            return Verdict.VOIDED
        self.parts = None
        self.merged = merged.taken(record, parts)
        self.state = merged.opened(self.state, record, digest)
        return Verdict.OPENED

    def _parts_of(self, record: EpochMerged) -> tuple[MergePart, ...] | None:
        return (self.parts or merged.MergeParts()).of(record)

    # --- a log that changes hands (F1, F2) ---

    def _switched(self, record: SiteSwitched) -> Verdict:
        """Give the log away, where its history ends, for the current epoch. This also counts behind a `HandedOver` to
        that site."""
        s = self.state
        if s.void and s.closed_for != record.to:
            return Verdict.SKIPPED
        if record.lineage_head != s.head:  # its writer has read something else
            self.state = msgspec.structs.replace(s, void=True)
            return Verdict.VOIDED
        self.state = msgspec.structs.replace(s, owner=record.to, fenced=s.epoch.number, void=False, opened=True)
        return Verdict.SWITCHED

    def _mirrored(self, record: Record, digest: bytes) -> Verdict:
        s, h = self.state, record.header
        of_own_site = h.epoch.site == s.site
        if of_own_site and h.epoch.number <= s.fenced:
            return Verdict.SKIPPED
        if type(record) is MergePart:
            return self._held(record, digest)
        if type(record) is EpochMerged:
            return self._joined(record, digest)
        if type(record) is EpochStarted and of_own_site:
            self.parts = None
            self.state = msgspec.structs.replace(
                s, epoch=h.epoch, opened=False, void=False, closed_for="", owner="", fenced=0
            )
            return Verdict.STARTED
        if h.lsn != s.lsn + 1 or h.prev != s.hash:
            return Verdict.SKIPPED
        goes_on = not s.void and h.epoch in (s.epoch, s.head[0])  # the log may have been given away in the middle of it
        if self.parts is not None and (type(record) is EpochOpened or goes_on):
            self.parts = None
        if type(record) is EpochOpened:
            self.state = msgspec.structs.replace(
                s,
                epoch=h.epoch,
                opened=True,
                void=False,
                closed_for="",
                led=h.epoch.number,
                lsn=h.lsn,
                hash=digest,
                lineage=(*s.lineage, (h.epoch, h.lsn)),
            )
            return Verdict.OPENED
        if not goes_on:
            return Verdict.SKIPPED
        self.accept(record, digest)
        return Verdict.ACCEPTED

    def _joined(self, record: EpochMerged, digest: bytes) -> Verdict:
        """Take another site's merge, if this history is on one of its branches. Otherwise skip it: its parts may be
        mirrored again."""
        ours = any(merged.continues(self.state, b) for b in record.branches)
        if not ours or self._parts_of(record) is None or not merged.is_whole(record):
            return Verdict.SKIPPED
        return self._merged(record, digest)
