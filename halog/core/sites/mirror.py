"""What of another site's log is to be appended to this site's log (F2): its chain, and nothing else.

A mirror reads the other log with the automaton every reader uses, so that what did not count there is not carried over.
It goes on from where the own log's history ends, once it has met the record that this history ends with: had the other
log something else there, the two histories have parted, which is a fork, shown and never mended by itself. Two mirrors
of one log do no harm: readers take the next record of the chain, whoever brought it.

Pure: reads no log, appends nothing.
"""

from __future__ import annotations

import msgspec

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.errors import LogError, PartedError


class Checkpoint(msgspec.Struct, frozen=True):
    """Where a mirror may go on reading the other log: what comes before `offset` led to `state`."""

    offset: int
    state: ChainState


class Mirror:
    """Of one partition: from `start`, a place in the other log, to behind the record that the own history ends with."""

    def __init__(self, start: Checkpoint, own: ChainState) -> None:
        self.chain = Chain(start.state)
        self.offset = start.offset
        self.lsn = own.lsn
        self.hash = own.hash
        """Where the own history ends, with all that was given out since."""
        self.parted: LogError | None = None
        """The other log has something else where the own history ends, or begins behind that. A merge that it holds
        further on mends both."""
        self.met = False
        """Is the own history a part of what was read?"""
        self._parts: list[bytes] = []
        self._before: Checkpoint | None = None
        """Where the first of them stands: a mirror that goes on later must bring them, too."""
        self._parted_at: Checkpoint | None = None
        """Where a later one must go on to see what this one has seen."""
        if self.chain.state.lsn > own.lsn:
            self.parted = LogError(
                f"the other log can be read from behind lsn {self.chain.state.lsn} only, and this site's ends at lsn "
                f"{own.lsn}: it cannot be mirrored from there",
                lsn=own.lsn,
            )
            self._parted_at = start
        self._compare()

    @property
    def checkpoint(self) -> Checkpoint:
        return self._parted_at or self._before or Checkpoint(self.offset, self.chain.state)

    @property
    def given_away(self) -> str:
        """The site that the other log belongs to from here on; "": to that site itself."""
        return self.chain.state.owner

    def read(self, offset: int, data: bytes) -> list[bytes]:
        """The next entry of the other log; what is to be appended here: with the record that makes a merge count, all
        that it stands for. Nothing more once the histories have `parted`. DivergedError if that log is not one
        history."""
        if offset < self.offset:
            return []
        record, hash_ = records.decode(data), digest(data)
        was = self.chain.state
        verdict = self.chain.read(record, hash_)
        if verdict is Verdict.HELD:
            self._before = self._before or Checkpoint(self.offset, was)
            self._parts.append(data)
        self.offset = offset + 1
        if verdict in _PASSES_OVER:
            return []
        parts = self._parts
        before = self._before
        self._parts = []
        self._before = None
        if self.chain.state.lsn == was.lsn:
            return []
        if not self.met and (self._compare() or not self._joins(record)):
            if self.parted is not None and self._parted_at is None:
                self._parted_at = before or Checkpoint(offset, was)
            return []
        if self.parted is not None:
            return []
        self.lsn = self.chain.state.lsn
        self.hash = self.chain.state.hash
        return [*parts, data] if type(record) is records.EpochMerged else [data]

    def _compare(self) -> bool:
        """Was what the own history ends with read just now?"""
        theirs = self.chain.state
        if theirs.lsn < self.lsn or self.parted is not None:
            return False
        self.met = theirs.lsn == self.lsn and theirs.hash == self.hash
        if not self.met:
            self.parted = PartedError(
                f"the histories of the two sites have parted: at lsn {self.lsn} the other one has another record",
                lsn=self.lsn,
                ours=self.hash.hex(),
                theirs=theirs.hash.hex(),
            )
        return self.met

    def _joins(self, record: records.Record) -> bool:
        """Does it make the own history a part of that one?"""
        if not isinstance(record, records.EpochMerged):
            return False
        self.met = any(b.lsn == self.lsn and b.hash == self.hash for b in record.branches)
        if self.met:
            self.parted = self._parted_at = None
        return self.met


_PASSES_OVER = frozenset({Verdict.HELD, Verdict.SKIPPED})
