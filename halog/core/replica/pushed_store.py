"""What a replica stores of what it is pushed, before it acknowledges it, where commits do not wait for the log and
`remote_sync` asks for more than memory (R6, decision 38).

Law: nothing is told as held that is not stowed (flushed, with SYNC). A store *stands* for an incarnation of its node if
all that this one told as held is stowed, or in the log; a node that was started anew, with a store that stands for a
holder, is that holder (E2). So a store stands for an incarnation as long as that follows, from before its first word
on; not for one that serves and has acknowledged what the log may lack, which is in its memory only, nor for one that
claims without being a holder: what it has of others' tails it has in memory. Till then an active keeps its word by the
store: whatever was acknowledged before its epoch opened the log has.

Stowed records are of one epoch, one lsn behind the other: an active pushes each once, so what comes behind a hole comes
behind what the log has brought. Those of an epoch before are in the log, or will never be, once a later one is
followed: they are dropped with the first that are stowed of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.ids import NO_EPOCH, EpochId, Member, digest
from halog.core.log import records
from halog.core.settings import Sync
from halog.core.state.copy_state import CopyState

KEPT: Final = 16
"""Earlier incarnations that a store stands for, at most: a set names one of each node, mostly the last."""


class PushedStore:
    """Of one copy."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._epoch: EpochId = NO_EPOCH
        """The one whose records were stowed last, and"""
        self._stowed = self._flushed = 0
        """up to which lsn they were; up to which they are on the disk."""
        self._flushing = False

    @property
    def _flushes(self) -> bool:
        return self._copy.settings.remote_sync is Sync.SYNC

    def stow(self) -> int:
        """Store what is held and was not stored yet; how far what is held may be told. One flush at a time: the disk
        sets the pace, and those that wait share it."""
        copy = self._copy
        state = copy.chain.state
        if not copy.held.joined(state) or state.epoch.number <= copy.held.sealed:
            return 0
        if anew := self._epoch != state.epoch:
            self._epoch = state.epoch
            self._stowed = 0
            self._flushed = 0
            self._flushing = False
        tip = copy.held.tip(state)
        if tip > self._stowed and not self._flushing:
            records = copy.held.beyond(self._stowed)
            copy.out.append(fx.Stow(self._epoch, tip, records, anew, self._flushes))
            self._stowed = tip
            self._flushing = self._flushes
        return self._flushed if self._flushes else self._stowed

    def stowed(self, e: ev.Stowed) -> None:
        """The disk has it."""
        if e.epoch == self._epoch:
            self._flushing, self._flushed = False, max(self._flushed, e.upto)

    # --- for whom the store stands ---

    def stand(self) -> None:
        """This incarnation is about to say what it has: from now on the store stands for it, too."""
        me = self._copy.me.incarnation
        if self._copy.settings.stows and me not in self._copy.tail.stood:
            self._note((*self._copy.tail.stood[1 - KEPT :], me))

    def claims(self, holders: Collection[Member], *, lossy: bool) -> None:
        """It is about to claim in the place of these holders: what they had its store has, if it is one of them by
        that, or if there are none, so that the log has it all."""
        copy = self._copy
        if not lossy and (not holders or is_holder(copy.me.node, copy.tail.stood, holders)):
            self.stand()
        else:
            self.withdraw()

    def withdraw(self) -> None:
        """From now on it may acknowledge what is in its memory only."""
        stood, me = self._copy.tail.stood, self._copy.me.incarnation
        if me in stood:
            self._note(tuple(i for i in stood if i != me))

    def _note(self, stood: tuple[int, ...]) -> None:
        self._copy.tail.stood = stood
        self._copy.out.append(fx.Stand(stood, self._flushes))


def is_holder(node: str, incarnations: Collection[int], holders: Collection[Member]) -> bool:
    """Is it one of these, by its memory or by its store?"""
    return any(Member(node, i) in holders for i in incarnations)


def last_run(stowed: Iterable[bytes]) -> list[bytes]:
    """Of what is stowed, by lsn: the last records of the latest epoch, without a hole. What stands before a hole the
    log has, for what is behind it was told; what is of an earlier epoch the log has, too, or it is not to come."""
    found = [(records.decode(data).header, data) for data in stowed]
    latest = max((h.epoch.number for h, _ in found), default=0)
    run: list[bytes] = []
    next_lsn, prev = 0, b""
    for h, data in found:
        if h.epoch.number == latest:
            if (h.lsn, h.prev) != (next_lsn, prev):
                run.clear()
            run.append(data)
            next_lsn, prev = h.lsn + 1, digest(data)
    return run
