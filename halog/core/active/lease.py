"""This module has leases: reads that ask nobody, and what a new active node owes to the one it replaced (R5).

Law: a lease is renewed by asking the coordinator whether the znode still has the version that names this epoch. It ends
`lease_ms`, less a margin, after that question was *sent*. Whoever replaces the znode waits for all of it and for the
clocks' drift, from when its own compare-and-set was known to be done. Until then it serves nothing: no read, no commit,
and no answer about a commit it found in the log. It need not wait if the one it replaced is known to serve nothing any
more: its host says that it died, or it gave its epoch up in the znode itself, or in the log. A suspicion, or a refused
connection, is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from halog.core import effects as fx, events as ev
from halog.core.commit.push import ReplicaPush
from halog.core.commit.writer import Writer
from halog.core.ids import NO_EPOCH, EpochId, Member
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import LEASE_AWAITED

RENEWALS: Final = 3
"""A lease is renewed so many times before it would end. So neither a lost answer nor a stall of the coordinator ends
one."""


class Lease:
    """A `Lease` lets the active node of one epoch read without asking."""

    __slots__ = (
        "_barred",
        "_copy",
        "_epoch",
        "_given_up",
        "_next",
        "_proof",
        "_pushing",
        "_round",
        "_sent",
        "_writer",
        "ends",
    )

    def __init__(self, copy: CopyState, epoch: EpochId, writer: Writer, pushing: ReplicaPush) -> None:
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._pushing = pushing
        self.ends = 0
        """Until then this node may read without asking."""
        self._given_up = not copy.settings.lease_ms
        self._round = self._sent = self._next = 0
        """The renewal under way, or 0; when it was sent; when the next one is due."""
        self._barred = self._proof = 0
        """After a lost session: no renewal before this time, nor before the log has this lsn."""

    def ticked(self) -> None:
        """Renew it, if it is time."""
        copy = self._copy
        if self._given_up or copy.now < max(self._next, self._barred):
            return
        if self._round and copy.now - self._sent < copy.settings.lease_ms:
            return
        if self._proof > copy.chain.state.lsn:
            if self._proof > self._writer.last_lsn and copy.serving:
                self._pushing.append_nothing()
        elif copy.table.epoch == self._epoch and copy.table.active == copy.me:
            self._round = copy.next_round()
            self._sent = copy.now
            copy.out.append(fx.Renew(self._round, copy.version))

    def heard(self, e: ev.Renewed | ev.SessionLost) -> None:
        """Take what the coordinator says."""
        if isinstance(e, ev.Renewed):
            self._renewed(e)
        else:
            self._session_lost()

    def _renewed(self, e: ev.Renewed) -> None:
        copy = self._copy
        if e.round != self._round or self._given_up:
            return
        self._round = 0
        if e.result is ev.Cas.OK:
            self.ends = max(self.ends, self._sent + copy.settings.lease_ms - copy.settings.lease_margin_ms)
            self._next = self._sent + copy.settings.lease_ms // RENEWALS
        elif e.result is ev.Cas.CONFLICT:
            copy.out.append(fx.Refresh())
        else:
            self._next = copy.now + copy.settings.retry_ms

    def _session_lost(self) -> None:
        """End the lease for a while. The coordinator may have been put back to an older state, in which it names
        another epoch than the log has. No renewal counts before it is settled which node was named meanwhile, and
        before the log has said that this epoch still writes."""
        copy = self._copy
        self.ends = self._round = 0
        self._barred = copy.now + copy.settings.lease_wait_ms
        self._proof = self._writer.last_lsn + 1

    def give_up(self) -> None:
        """Give the lease up for good: another node may serve as soon as it knows (H2)."""
        self._given_up = True
        self.ends = 0


class Predecessor:
    """A `Predecessor` is the active node that may still read under a lease when this node has taken over."""

    __slots__ = ("_closed", "_copy", "_dead", "_known", "_named", "_silent", "_since", "_table", "_unknown", "_until")

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._named = copy.table.epoch
        self._since = copy.now
        """The epoch in the znode, and since when this node has known it."""
        self._dead: dict[str, int] = {}
        """By node, the incarnation that its own host said died."""
        self._closed: EpochId = NO_EPOCH
        """The last epoch that was handed over in the log."""
        self._table: PartitionTable = copy.table
        self._known = self._until = 0
        self._unknown = self._silent = False
        """About the table that a claim replaces: since when its epoch was known, when the wait ends, and whether the
        log had a later epoch, so that the table names the wrong node. `_silent`: whether nobody was told of the wait
        yet."""

    def named(self, table: PartitionTable) -> None:
        """Note the znode, as it is now."""
        if table.epoch != self._named:
            self._named = table.epoch
            self._since = self._copy.now

    def claiming(self, table: PartitionTable) -> None:
        """Note that this table is about to be replaced."""
        self._table = table
        self._known = self._since
        self._unknown = self._copy.chain.state.epoch.number > table.epoch.number

    def claimed(self) -> None:
        """Note that it was replaced by now."""
        self._silent = True
        self._until = self._copy.now + self._copy.settings.lease_wait_ms

    def died(self, member: Member) -> None:
        """Note that the host of this incarnation says that it died."""
        self._dead[member.node] = member.incarnation

    def handed_over(self, epoch: EpochId) -> None:
        """Note an accepted `HandedOver`: its writer had given up the lease before."""
        self._closed = epoch

    def over(self) -> bool:
        """Say whether nobody reads under a lease any more."""
        copy = self._copy
        return not copy.settings.lease_ms or copy.now >= self._until or (not self._unknown and self._gone())

    def told(self) -> Iterator[Tell]:
        """Tell once that there is a wait, unless a witness ends it before anybody notices."""
        copy = self._copy
        since = self._until - copy.settings.lease_wait_ms
        if self._silent and since + copy.settings.retry_ms <= copy.now < self._until:
            self._silent = False
            who = "whoever was active" if self._table.active is None else self._table.active.node
            why = f"{who} may still read under a lease, and nothing proves that its process is no more"
            yield Tell(LEASE_AWAITED, "", why, {"ms": self._until - copy.now})

    def _gone(self) -> bool:
        """Say whether the node that was replaced is known to serve nothing, and its own wait for those before it had
        ended."""
        table, copy = self._table, self._copy
        if not table.epoch.number or table.epoch == self._closed:
            return True
        if copy.now - self._known < copy.settings.lease_wait_ms:
            return False
        active = table.active
        return active is None or active == copy.me or self._dead.get(active.node) == active.incarnation
