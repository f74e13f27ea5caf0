"""This module decides what of another site's log is appended to this site's log: the chain, and nothing else (F2).

A mirror reads the other log with the automaton that every reader uses, so what did not count there is not carried over.
It goes on from where the own log's history ends, once it has met the record that this history ends with. If the other
log has something else there, the two histories have parted. That is a fork: it is shown, and never mended by itself.
Two mirrors of one log do no harm: readers take the next record of the chain, whoever brought it.

The module is pure: it reads no log and appends nothing.
"""

from __future__ import annotations

import msgspec

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.errors import LaterRecordError, LogError, PartedError


class Checkpoint(msgspec.Struct, frozen=True):
    """A `Checkpoint` says where a mirror may go on reading the other log: what comes before `offset` led to `state`."""

    offset: int
    state: ChainState


class Mirror:
    """A `Mirror` reads the other log of one partition, from `start` to behind the record that the own history ends
    with."""

    def __init__(self, start: Checkpoint, own: ChainState) -> None:
        self.chain = Chain(start.state)
        self.offset = start.offset
        self.lsn = own.lsn
        self.hash = own.hash
        """Where the own history ends, with all that was returned since."""
        self.parted: LogError | None = None
        """The error, if the other log has another record where the own history ends, or begins behind it. A merge
        further on in the other log mends both."""
        self.met = False
        """Whether the own history is a part of what was read."""
        self._parts: list[bytes] = []
        self._before: Checkpoint | None = None
        """Where the first of these parts stands. A mirror that goes on later must bring the parts too."""
        self._parted_at: Checkpoint | None = None
        """Where a later mirror must go on to see what this one has seen."""
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
        """Return the site that the other log belongs to from here on; "": it belongs to that site itself."""
        return self.chain.state.owner

    def read(self, offset: int, data: bytes) -> list[bytes]:
        """Read the next entry of the other log, and return what to append here. The record that makes a merge count
        comes with all records it stands for. Nothing is returned once the histories have `parted`. Raises DivergedError
        if that log is not one history, and LaterRecordError where a later version of halog wrote it: what is not
        understood is not carried over, since nobody knows whether it counts (U1)."""
        if offset < self.offset:
            return []
        try:
            record, hash_ = records.decode(data), digest(data)
        except LaterRecordError as error:
            lsn = self.chain.state.lsn
            raise error.at(f"the other site's log has at offset {offset}, behind lsn {lsn}", offset=offset) from None
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
        """Say whether the record that the own history ends with was read just now."""
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
        """Say whether this record makes the own history a part of the other one."""
        if not isinstance(record, records.EpochMerged):
            return False
        self.met = any(b.lsn == self.lsn and b.hash == self.hash for b in record.branches)
        if self.met:
            self.parted = self._parted_at = None
        return self.met


_PASSES_OVER = frozenset({Verdict.HELD, Verdict.SKIPPED})
