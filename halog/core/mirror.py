"""What of another site's log is to be appended to this site's log (F2): its chain, and nothing else.

A mirror reads the other log with the automaton every reader uses, so that what did not count there is not carried over.
It goes on from where the own log's history ends, once it has met the record that this history ends with: had the other
log something else there, the two histories have parted, which is a fork, shown and never mended by itself. Two mirrors
of one log do no harm: readers take the next record of the chain, whoever brought it.

Pure: reads no log, appends nothing.
"""

from __future__ import annotations

import msgspec

from halog.core import records
from halog.core.chain import Chain, ChainState
from halog.core.ids import digest
from halog.errors import DivergedError, PartedError


class Checkpoint(msgspec.Struct, frozen=True):
    """Where a mirror may go on reading the other log: what comes before `offset` led to `state`."""

    offset: int
    state: ChainState


class Mirror:
    """Of one partition: from `start`, a place in the other log, to behind the record that the own history ends with."""

    def __init__(self, start: Checkpoint, own: ChainState) -> None:
        self.chain = Chain(start.state)
        self.offset = start.offset
        self.lsn, self.hash = own.lsn, own.hash
        """Where the own history ends, with all that was given out since."""
        if self.chain.state.lsn > own.lsn:
            raise DivergedError(
                f"the mirror would go on behind lsn {self.chain.state.lsn}, and its own log ends at lsn {own.lsn}",
                lsn=own.lsn,
            )
        self._compare()

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.offset, self.chain.state)

    @property
    def given_away(self) -> str:
        """The site that the other log belongs to from here on; "": to that site itself."""
        return self.chain.state.owner

    def read(self, offset: int, data: bytes) -> bytes | None:
        """The next entry of the other log; what is to be appended here. PartedError; DivergedError if that log is not
        one history."""
        if offset < self.offset:
            return None
        record = records.decode(data)
        hash_ = digest(data)
        before = self.chain.state.lsn
        self.chain.read(record, hash_)
        self.offset = offset + 1
        now = self.chain.state
        if now.lsn == before:
            return None
        if now.lsn <= self.lsn:
            self._compare()
            return None
        self.lsn, self.hash = now.lsn, now.hash
        return data

    def _compare(self) -> None:
        theirs = self.chain.state
        if theirs.lsn == self.lsn and theirs.hash != self.hash:
            raise PartedError(
                f"the histories of the two sites have parted: at lsn {self.lsn} the other one has another record",
                lsn=self.lsn,
                ours=self.hash.hex(),
                theirs=theirs.hash.hex(),
            )
