"""What a copy that follows takes from the active of its epoch, and what it tells it (R2, R6).

It acknowledges what it has applied, once per batch read, and again in case that was lost; and what it merely holds, in
memory or stowed, if that is what the policy asks for. Where a transaction asks for it, it flushes its store first, and
says how far. Only the active of the very epoch this copy has read hears anything.
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
from halog.core.table.table import ASYNC, Replica

RECENTLY_MS = 1_000
"""What pushes or questions for the disk came in this time, others are expected behind: a partition at rest reads as
one that is not pushed to, which costs the log a fifth of the requests."""


LEAVE_MS = 500
"""Between attempts at leaving the znode: longer than one takes to be answered."""


class Follower:
    """Of one copy."""

    def __init__(self, copy: CopyState) -> None:
        now = copy.now
        self._copy = copy
        self._acked: tuple[EpochId | None, int] = (None, 0)
        self._acked_at = now
        self._flushed = self._flushing = 0
        """Everything up to this lsn is on the disk, for certain; is on its way there (0: nothing is)."""
        self._asked: tuple[int, int] | None = None
        """The first and the last lsn that is to be on the disk, and is not."""
        self._told_at = self._asked_at = now - RECENTLY_MS
        """When it last told what it holds; when it was last asked for its disk, or read a vote nobody pushes."""
        self._left_at = now
        self.stowing = PushedStore(copy)
        self._votes = 0
        self._vote_held_at = now - RECENTLY_MS

    @property
    def is_async(self) -> bool:
        """Does the node list say that no commit waits for this copy?"""
        return Replica(self._copy.me.node, self._copy.me.incarnation, ASYNC) in self._copy.table.replicas

    @property
    def is_patient(self) -> bool:
        """Does nobody wait for what this copy reads? Commits wait for what it holds, as long as it is pushed to; what a
        push left out the log brings a moment later."""
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
        """Are votes and decisions pushed to it, so that nobody waits until it has read them?"""
        return self._copy.now - self._vote_held_at < RECENTLY_MS

    def loaded(self) -> None:
        """Follow the log: the copy is up to where it ended when it began."""
        self._copy.become("loaded")
        self.acknowledge()

    def restored(self, e: ev.Restored) -> None:
        """Never on from what it held: first whatever the log has got meanwhile (Q1, P11)."""
        copy = self._copy
        if copy.role is Role.OFFLINE and copy.me in copy.alive:
            copy.become("restored", "this node is back in its zones' quorums")
            copy.out.append(fx.Read(copy.next_offset))

    def taken(self, e: ev.Taken) -> None:
        """A batch of the log was taken."""
        copy = self._copy
        votes = len(copy.ledger.undecided) + len(copy.ledger.decided)
        if votes != self._votes:
            self._votes = votes
            if not self._holds_votes:  # others are expected behind, and they are acknowledged when they are read
                self._asked_at = copy.now
        self._tell_held()
        self._show()
        self._flush()
        waited_for = not self.is_async and copy.chain.state.lsn > copy.held.told
        if waited_for or copy.now - self._acked_at >= copy.settings.async_ack_ms:
            self.acknowledge()

    def pushed(self, e: ev.Pushed) -> None:
        """A follower of this very epoch holds what its active pushes; anybody else passes over it (E1, E7)."""
        copy = self._copy
        if copy.role is Role.FOLLOWING and e.member == self._listener() and e.epoch == copy.chain.state.epoch:
            for data in e.records:
                held = copy.held.offer(data, copy.chain.state)
                if held is not None and type(held) is not records.Commit:
                    self._vote_held_at = copy.now
            copy.held.declared = max(copy.held.declared, e.shown)
            self._tell_held()
            self._show()

    def _show(self) -> None:
        """What the active shows, and this copy holds, is visible here before the log has it (W7): behind its
        acknowledgement, which commits wait for."""
        copy = self._copy
        if due := copy.held.due(max(copy.chain.state.lsn, copy.shown), copy.chain.state):
            copy.shown = due[-1].header.lsn
            copy.out.append(fx.Show(due))

    def stowed(self, e: ev.Stowed) -> None:
        """The disk has what was held: say so, and see whether more came meanwhile."""
        self.stowing.stowed(e)
        self._tell_held()

    def _tell_held(self) -> None:
        """What the log has not shown yet is told where that is what an acknowledgement promises (R6)."""
        copy = self._copy
        if not copy.settings.pushes:
            return
        active = self._listener() if copy.held.run else None
        if active is None:
            return
        if copy.settings.stows:
            self.stowing.stand()
        if lsn := copy.held.news(copy.chain.state, self.stowing.stow() if copy.settings.stows else None):
            self._told_at = copy.now
            copy.out.append(fx.SendAck(active.node, copy.chain.state.epoch, lsn, applied=False))

    def acknowledge(self, repeat: bool = False) -> None:
        """Tell the active how far this copy is: once per batch taken, and again in case it was lost. What was told as
        held is not waited for, and told again as applied once in a while."""
        copy, active = self._copy, self._listener()
        s = copy.chain.state
        if active is not None and (repeat or self._acked != (s.epoch, s.lsn)):
            self._acked = (s.epoch, s.lsn)
            self._acked_at = copy.now
            self.stowing.stand()
            flush = copy.settings.remote_sync is Sync.SYNC
            if copy.settings.remote_sync is not Sync.NO_SYNC:
                copy.out.append(fx.Save(flush))
            if flush:
                self._flushed = s.lsn
            copy.out.append(fx.SendAck(active.node, s.epoch, s.lsn, flushed=self._flushed))

    def flush_asked(self, e: ev.FlushAsked) -> None:
        """Commits of this epoch wait for this copy's disk (R6): at once what is here, else when it was read."""
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
        """The disk has it: say so, and see whether it was asked for more meanwhile."""
        self._flushing, self._flushed = 0, max(self._flushed, e.lsn)
        if self._asked is not None:
            last = self._asked[1]
            self._asked = (self._flushed + 1, last) if last > self._flushed else None
        self.acknowledge(repeat=True)
        self._flush()

    def _flush(self) -> None:
        """One flush at a time, of all that is here: the disk sets the pace, and those that wait share it."""
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
        """Its epoch was handed over to another site, and the znode still names it: what was set then was lost to some
        other change. As long as it stands there, callers wait for it, and the site cannot give its log away (F1)."""
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
        """The active of the epoch this copy follows, if it is to hear from here."""
        copy = self._copy
        s, active = copy.chain.state, copy.table.active
        if copy.role in LEADING or active is None or active == copy.me or not s.opened:
            return None
        if copy.role is Role.LOADING or copy.role in OUT or s.epoch != copy.table.epoch or active not in copy.alive:
            return None
        return active
