"""This module stores pushed records on a replica before it acknowledges them. It does so where commits do not wait for
the log and `remote_sync` asks for more than memory (R6, decision 38).

Law: nothing is told as held before it is stored (and flushed, with SYNC). A store *stands* for an incarnation of its
node if all that this incarnation told as held is stored, or in the log. A node that was started anew, with a store that
stands for a holder, is that holder (E2).

- A store stands for an incarnation that follows, from before its first acknowledgement on.
- It does not stand for an incarnation that serves and has acknowledged what the log may lack: that is in memory only.
- It does not stand for one that claims without being a holder: it has the tails of others in memory.

Until an active node acknowledges early, its store keeps its promise: the log has whatever was acknowledged before its
epoch opened.

Stored records are of one epoch with consecutive lsns. An active node pushes each record once, so what comes behind a
hole follows what the log has brought. Records of an earlier epoch are in the log, or never will be, once a later epoch
is followed. They are dropped when the first records of the later epoch are stored.
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
"""A store stands for at most so many earlier incarnations. A set names one of each node, mostly the last."""


class PushedStore:
    """Stores what one copy is pushed."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._epoch: EpochId = NO_EPOCH
        """The epoch whose records were stored last."""
        self._stored = self._flushed = 0
        """The last lsn that was stored, and the last lsn that is on the disk."""
        self._flushing = False

    @property
    def _flushes(self) -> bool:
        return self._copy.settings.remote_sync is Sync.SYNC

    def store(self) -> int:
        """Store what is held and not yet stored. Return up to which lsn what is held may be told. One flush runs at a
        time: the disk sets the pace, and all who wait share it."""
        copy = self._copy
        state = copy.chain.state
        if not copy.held.joined(state) or state.epoch.number <= copy.held.sealed:
            return 0
        if anew := self._epoch != state.epoch:
            self._epoch = state.epoch
            self._stored = 0
            self._flushed = 0
            self._flushing = False
        tip = copy.held.tip(state)
        if tip > self._stored and not self._flushing:
            records = copy.held.beyond(self._stored)
            copy.out.append(fx.StorePushed(self._epoch, tip, records, anew, self._flushes))
            self._stored = tip
            self._flushing = self._flushes
        return self._flushed if self._flushes else self._stored

    def flushed(self, e: ev.PushedFlushed) -> None:
        """Note that the disk has it."""
        if e.epoch == self._epoch:
            self._flushing = False
            self._flushed = max(self._flushed, e.upto)

    # --- for whom the store stands ---

    def stand(self) -> None:
        """Let the store stand for this incarnation from now on: it is about to say what it has."""
        me = self._copy.me.incarnation
        if self._copy.settings.stores_pushed and me not in self._copy.tail.stood:
            self._note((*self._copy.tail.stood[1 - KEPT :], me))

    def claims(self, holders: Collection[Member], *, lossy: bool) -> None:
        """Prepare a claim in the place of these holders. The store has what they had if this node is one of them by its
        store. If there are no holders, the log has it all."""
        copy = self._copy
        if not lossy and (not holders or is_holder(copy.me.node, copy.tail.stood, holders)):
            self.stand()
        else:
            self.withdraw()

    def withdraw(self) -> None:
        """Stop standing for this incarnation: from now on it may acknowledge what is in its memory only."""
        stood, me = self._copy.tail.stood, self._copy.me.incarnation
        if me in stood:
            self._note(tuple(i for i in stood if i != me))

    def _note(self, stood: tuple[int, ...]) -> None:
        self._copy.tail.stood = stood
        self._copy.out.append(fx.Stand(stood, self._flushes))


def is_holder(node: str, incarnations: Collection[int], holders: Collection[Member]) -> bool:
    """Say whether the node is one of the holders, by its memory or by its store."""
    return any(Member(node, i) in holders for i in incarnations)


def last_run(stored: Iterable[bytes]) -> list[bytes]:
    """Return the last records of the latest epoch without a hole; `stored` is in order of lsn. The log has what stands
    before a hole, since what is behind the hole was told. What is of an earlier epoch the log has too, or it will not
    come."""
    found = [(records.decode(data).header, data) for data in stored]
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
