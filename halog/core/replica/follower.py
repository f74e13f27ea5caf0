"""This module follows the active node of an epoch: it takes what that sends, and tells it what this copy has (R2, R6).

The copy acknowledges what it has applied, once per batch read, and again in case the acknowledgement was lost. If the
policy asks for it, it also acknowledges what it only holds, in memory or stored. Where a transaction asks for it, it
flushes its store first and says how far. Only the active node of the epoch that this copy has read is told anything.
"""

from __future__ import annotations

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.ids import EpochId, Member
from halog.core.log import records
from halog.core.replica.pushed_store import PushedStore
from halog.core.roles import LEADING, OUT, Role
from halog.core.settings import Sync
from halog.core.state.copy_state import CopyState
from halog.core.table.table import ASYNC

RECENTLY_MS = 1_000
"""If pushes or flush requests came within this time, more are expected. A partition at rest is read like one that is
not pushed to, which saves the log four fifths of the requests."""


LEAVE_MS = 500
"""The time between attempts to leave the znode. It is longer than one attempt takes to be answered."""


class Follower:
    """A `Follower` is the part of one copy that follows an active node."""

    def __init__(self, copy: CopyState) -> None:
        now = copy.now
        self._copy = copy
        self._acked: tuple[EpochId | None, int] = (None, 0)
        self._acked_at = now
        self._flushed = self._flushing = 0
        """The last lsn up to which everything is certainly on the disk, and the last lsn that is being flushed (0:
        none)."""
        self._asked: tuple[int, int] | None = None
        """The first and the last lsn that must be on the disk and is not yet."""
        self._told_at = self._asked_at = now - RECENTLY_MS
        """When the copy last told what it holds; and when it was last asked to flush, or last read a vote that nobody
        pushed."""
        self._left_at = now
        self.pushed_store = PushedStore(copy)
        self._votes = 0
        self._vote_held_at = now - RECENTLY_MS

    @property
    def is_async(self) -> bool:
        """Say whether the node list says that no commit waits for this copy."""
        return self._copy.table.kind_of(self._copy.me) == ASYNC

    @property
    def is_patient(self) -> bool:
        """Say whether nobody waits for what this copy reads. As long as it is pushed to, commits wait for what it
        holds; the log brings a moment later what a push left out."""
        if self.is_async:
            return True
        copy = self._copy
        if copy.chain.state.epoch.number <= copy.held.sealed or copy.now - self._asked_at < RECENTLY_MS:
            return False
        if copy.ledger.undecided and not self._holds_votes:
            return False
        return copy.now - self._told_at < RECENTLY_MS

    @property
    def _holds_votes(self) -> bool:
        """Say whether votes and decisions are pushed to this copy, so that nobody waits until it has read them."""
        return self._copy.now - self._vote_held_at < RECENTLY_MS

    def loaded(self) -> None:
        """Follow the log: the copy has read up to where the log ended when it began."""
        self._copy.become("loaded")
        self.acknowledge()

    def restored(self, e: ev.Restored) -> None:
        """Read on from the log, never from what was held: whatever the log has got meanwhile comes first (Q1, P11)."""
        copy = self._copy
        if copy.role is Role.OFFLINE and copy.me in copy.alive:
            copy.become("restored", "this node is back in its zones' quorums")
            copy.out.append(fx.Read(copy.next_offset))

    def taken(self, e: ev.Taken) -> None:
        """Tell the active node what is new: a batch of the log was applied."""
        copy = self._copy
        votes = len(copy.ledger.undecided) + len(copy.ledger.decided)
        if votes != self._votes:
            self._votes = votes
            if not self._holds_votes:  # more are expected, and they are acknowledged when they are read
                self._asked_at = copy.now
        self._tell_held()
        self._show()
        self._flush()
        waited_for = not self.is_async and copy.chain.state.lsn > copy.held.told
        if waited_for or copy.now - self._acked_at >= copy.settings.async_ack_ms:
            self.acknowledge()

    def pushed(self, e: ev.Pushed) -> None:
        """Hold what the active node of the followed epoch pushes. Pushes of anybody else are ignored (E1, E7)."""
        copy = self._copy
        if copy.role is Role.FOLLOWING and e.member == self._listener() and e.epoch == copy.chain.state.epoch:
            offered = [copy.held.offer(data, copy.chain.state) for data in e.records]
            if any(held is not None and type(held) is not records.Commit for held in offered):
                self._vote_held_at = copy.now
            if not any(offered) and any(copy.held.has(data) for data in e.records):
                copy.held.told = 0  # who pushes it again has not heard that it is held
            copy.held.declared = max(copy.held.declared, e.shown)
            self._tell_held()
            self._show()

    def _show(self) -> None:
        """Show here what the active node shows and this copy holds, before the log has it (W7). The acknowledgement
        comes first: commits wait for it."""
        copy = self._copy
        if due := copy.held.due(max(copy.chain.state.lsn, copy.shown), copy.chain.state):
            copy.shown = due[-1].header.lsn
            copy.out.append(fx.Show(due))

    def pushed_flushed(self, e: ev.PushedFlushed) -> None:
        """Tell what was held: the disk has it. See whether more came meanwhile."""
        self.pushed_store.flushed(e)
        self._tell_held()

    def _tell_held(self) -> None:
        """Tell what is held before the log shows it, where the policy lets that count as an acknowledgement (R6)."""
        copy = self._copy
        if not copy.settings.pushes:
            return
        active = self._listener() if copy.held.run else None
        if active is None:
            return
        if copy.settings.stores_pushed:
            self.pushed_store.stand()
        if lsn := copy.held.news(copy.chain.state, self.pushed_store.store() if copy.settings.stores_pushed else None):
            self._told_at = copy.now
            copy.out.append(fx.SendAck(active.node, copy.chain.state.epoch, lsn, applied=False))

    def acknowledge(self, repeat: bool = False) -> None:
        """Tell the active node how far this copy is: once per batch, and again in case that was lost. Nobody waits for
        what was told as held; it is told again as applied once in a while."""
        copy, active = self._copy, self._listener()
        s = copy.chain.state
        if active is not None and (repeat or self._acked != (s.epoch, s.lsn)):
            self._acked = (s.epoch, s.lsn)
            self._acked_at = copy.now
            self.pushed_store.stand()
            flush = copy.settings.remote_sync is Sync.SYNC
            if copy.settings.remote_sync is not Sync.NO_SYNC:
                copy.out.append(fx.Save(flush))
            if flush:
                self._flushed = s.lsn
            sealed = s.epoch.number <= copy.held.sealed
            copy.out.append(fx.SendAck(active.node, s.epoch, s.lsn, flushed=self._flushed, sealed=sealed))

    def flush_asked(self, e: ev.FlushAsked) -> None:
        """Take a request to flush: commits of this epoch wait for this copy's disk (R6). It is flushed at once if the
        records are here, else when they were read."""
        s = self._copy.chain.state
        if self._copy.settings.remote_sync is Sync.SYNC:
            return  # each of its acknowledgements says so
        if e.member == self._listener() and e.epoch == s.epoch:
            if e.lsn <= self._flushed:
                self.acknowledge(repeat=True)  # what told that was lost
                return
            self._asked_at = self._copy.now
            first, last = self._asked or (e.lsn, e.lsn)
            self._asked = min(first, e.lsn), max(last, e.lsn)
            self._flush()

    def flushed(self, e: ev.Flushed) -> None:
        """Tell that the disk has it, and see whether another flush was asked for meanwhile."""
        self._flushing = 0
        self._flushed = max(self._flushed, e.lsn)
        if self._asked is not None:
            last = self._asked[1]
            self._asked = (self._flushed + 1, last) if last > self._flushed else None
        self.acknowledge(repeat=True)
        self._flush()

    def _flush(self) -> None:
        """Begin a flush of all that is here, one at a time. The disk sets the pace, and all who wait share it."""
        lsn = self._copy.chain.state.lsn
        if self._asked is not None and lsn >= self._asked[0] and not self._flushing:
            self._flushing = lsn
            self._copy.out.append(fx.Flush(lsn))

    def ticked(self) -> None:
        since = self._copy.now - self._acked_at
        if since >= self._copy.settings.async_ack_ms:
            self.acknowledge(repeat=since >= self._copy.settings.ack_every_ms)
        self._leave()

    def _leave(self) -> None:
        """Take this node out of the znode as active: its epoch was handed over to another site, but the znode still
        names it. The set that was made then was lost to another change. Until the znode is right callers wait for this
        node, and the site cannot give its log away (F1)."""
        copy = self._copy
        if (
            copy.table.owner
            and copy.epoch_ours
            and copy.role is Role.FOLLOWING
            and copy.now - self._left_at >= LEAVE_MS
        ):
            self._left_at = copy.now
            copy.out.append(
                fx.SetTable(copy.next_round(), copy.version, msgspec.structs.replace(copy.table, active=None))
            )

    def _listener(self) -> Member | None:
        """Return the active node of the epoch this copy follows, if it is to be told anything."""
        copy = self._copy
        s, active = copy.chain.state, copy.table.active
        if copy.role in LEADING or active is None or active == copy.me or not s.opened:
            return None
        if copy.role is Role.LOADING or copy.role in OUT or s.epoch != copy.table.epoch or active not in copy.alive:
            return None
        return active
