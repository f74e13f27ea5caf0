"""The active copy of one epoch: the writer, the wait set and the hand-over, bound to the partition they serve.

Whatever surprises this object ends the epoch (W1, W4): what is in flight becomes unknown, the node follows the log
again and stands anew. It never repairs an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.core.active.hand_over import HandOver
from halog.core.active.lease import Lease
from halog.core.active.migration_steps import Migrating
from halog.core.active.role_return import Returning
from halog.core.commit.durability_requests import Asking
from halog.core.commit.log_clock import LogPace
from halog.core.commit.participant import Voting
from halog.core.commit.push import Pushing
from halog.core.commit.read_barriers import Barriers
from halog.core.commit.sync_set import SyncSet, usable
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId, Member
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.roles import Role
from halog.core.sites.sync_sites import SITE, SyncSites
from halog.core.table.changes import NodeList, migration_over
from halog.core.table.definitions import shut
from halog.core.table.group import counts, needed
from halog.core.table.table import SYNC, PartitionTable, Replica
from halog.events import NO_QUORUM

if TYPE_CHECKING:
    from halog.core.partition import Partition


class Leading:
    """Exists exactly while the partition's role is one of LEADING."""

    def __init__(self, p: Partition, epoch: EpochId, group: NodeList) -> None:
        self.p = p
        self.epoch = epoch
        self.node_list = group
        self.writer = Writer(p.chain, p.outcomes, p.settings, p.next_offset, p.tag)
        self.pushing = Pushing(self)
        self.votes = Voting(self.writer, p.ledger, p.table.name, p.now)
        self.sync = SyncSet(p.table)
        self.sites = SyncSites(self)
        self.cas_round = 0
        self.calm = False
        """The compare-and-set under way, or 0; and does one wait until the log has what was acknowledged?"""
        self.proposal = p.table
        self.verify_to = -1
        self.silent: set[Member] = set()
        """Living members whose copy acknowledges nothing new, though there is: commits wait no longer."""
        self.applied: dict[Member, int] = {}
        """How far each replica says it has read the log; `Writer.acks` also counts what it merely holds."""
        self.returning = Returning(p)
        self.awake_ms = 0
        self._ticked_at = p.now
        """Time as this copy has lived through it: while the process was stopped nobody could be heard."""
        self.pace = LogPace(self)
        self.hand_over = HandOver(self)
        self.asking = Asking(self)
        self.barriers = Barriers(self)
        self.lease = Lease(self)
        self.migrating = Migrating(self)

    def begin(self) -> None:
        self.sites.quorum.begin()
        self._count()
        self.p.out += self.node_list.changed(self.p.table)
        self.reconcile()

    def knows(self, tx: bytes) -> bool:
        """Is `tx` in flight here?"""
        return tx in self.writer.by_tx

    @property
    def visible(self) -> int:
        """The last lsn that is logged, or acknowledged before."""
        writer = self.writer
        return writer.queue[writer.shown - 1].lsn if writer.shown else self.p.chain.state.lsn

    def acknowledged(self, tx: bytes) -> int:
        """Its lsn, if it was acknowledged before the log had it; else 0."""
        item = self.writer.by_tx.get(tx)
        return item.lsn if item is not None and item.answered else 0

    # --- commits ---

    def submit(self, e: ev.Submitted) -> None:
        if e.mapping != self.writer.mapping:
            admitted = self.votes.admits(e, self.p.now, self.p.out)
            self.p.tag = self.writer.tag
            if not admitted:
                return
        if e.durability is not None:
            self.asking.submit(e, e.durability)
            return
        self.writer.submit(e, self.p.now, self.p.out)
        if self.writer.tag > self.p.tag:
            self.sent()

    def append_nothing(self) -> None:
        """A record for barriers. It is pushed too: what is pushed behind it is held only if it is (`Held.offer`)."""
        self.writer.append_nothing(self.p.now, self.p.out)
        self.sent()

    def sent(self) -> None:
        """The commit just appended is pushed, too."""
        self.p.tag = self.writer.tag
        self.pushing.sent(self.p.out)

    def appended(self, e: ev.Appended) -> None:
        """An acknowledgement: believed for the head of the queue at the expected offset, else verified or fatal."""
        head = self.writer.head()
        if head is None or e.tag < head.tag:
            return
        if self.p.role is Role.VERIFYING:
            self.verify_to = max(self.verify_to, e.offset)
        elif e.tag != head.tag or e.offset < self.writer.expected:
            self._end(f"append {e.tag} acknowledged at {e.offset}, expected {head.tag} at {self.writer.expected}")
        elif e.offset == self.writer.expected:
            self._logged(e.offset)
        elif self.p.role is Role.HANDING or self.p.role is Role.DRAINING:
            self.p.step_down("epoch ended", "somebody else wrote during the hand-over")  # the session has told it right
        else:
            self._verify(e.offset)

    def appended_run(self, e: ev.Appended) -> bool:
        """Several at once, if all is as it should be; else they are to be looked at one by one."""
        writer, head = self.writer, self.writer.head()
        if head is None or self.p.role is not Role.ACTIVE or writer.flying_votes or len(writer.queue) < e.count:
            return False
        if e.tag != head.tag or e.offset != writer.expected:
            return False
        self.p.next_offset = e.offset + e.count
        writer.logged_run(e.count, self.p.next_offset, self.p.out)
        writer.settle(self.p.out)
        if self.barriers.waiting:
            self.barriers.progress()
        return True

    def _logged(self, offset: int) -> None:
        item = self.writer.logged(offset + 1, self.p.out, self.p.now)
        self.p.next_offset = offset + 1
        self.writer.settle(self.p.out)
        if self.barriers.waiting:
            self.barriers.progress()
        if type(item.record) is records.HandedOver:
            self.hand_over.done()
        else:
            self.hand_over.progress()

    def append_failed(self, e: ev.AppendFailed) -> None:
        head = self.writer.head()
        if e.tag == -1:
            self.p.step_down("epoch ended", e.why)
        elif head is not None and e.tag >= head.tag:
            self._end(e.why)

    def _end(self, why: str) -> None:
        """End epoch and session: nothing this session sent can be told apart any more."""
        self.p.out.append(ev.EndSession(why))
        self.p.step_down("epoch ended", why)

    def abandon(self, why: str) -> None:
        """The epoch is over; answer everybody with what is known: nothing."""
        self.hand_over.abandon(why)
        self.barriers.abandon()
        self.writer.abandon(why, self.p.out)

    # --- a gap: read it like any reader (W3) ---

    def _verify(self, offset: int) -> None:
        self.verify_to = offset
        self.p.become("gap", f"acknowledged at {offset}, expected {self.writer.expected}")
        self.p.out.append(ev.Read(self.writer.expected))

    def own_read(self, record: records.Record, digest: bytes) -> bool:
        """An accepted record read while verifying: True if it is the head of our queue, which is then logged."""
        head = self.writer.head()
        if head is None or head.digest != digest:
            return False
        self.writer.logged(self.p.next_offset, self.p.out, self.p.now, own=False)
        self.writer.settle(self.p.out)
        if self.barriers.waiting:
            self.barriers.progress()
        return True

    def verified(self, record: records.Record, verdict: Verdict, offset: int) -> None:
        """One more record of the gap has been read."""
        if verdict is Verdict.STARTED:
            self.p.step_down("deposed", f"fenced by epoch {record.header.epoch.number} in the log")
        elif verdict is Verdict.VOIDED:
            self._end("the log voided this epoch")
        elif offset >= self.verify_to:
            self.writer.expected = offset + 1
            self.p.become("gap is dead", "only dead epochs in the gap")
            self.p.out.append(ev.StopReading())

    # --- replicas ---

    def replica_ack(self, e: ev.ReplicaAck) -> None:
        """S5: counts for this epoch and a living incarnation only."""
        stale = self.p.table.resync is not None and self.migrating.anew.stale(e)
        if e.epoch != self.epoch or e.member not in self.p.alive or stale or not self._hosts(e.member):
            return
        if not e.applied and not self.p.settings.pushes:
            return  # memory is not what this policy asks for (R6)
        acks = self.writer.acks
        known, flushed = acks.get(e.member), e.flushed and self.asking.flushed(e)
        if e.applied:
            self._reads(e.member, e.lsn)
        if known is None or e.lsn > known:
            acks[e.member] = e.lsn
            self.writer.settle(self.p.out)
        elif flushed:
            self.writer.settle(self.p.out)
        if e.applied:
            self.hand_over.progress()
        if known is None or self.sync.joining or e.member not in self.listed:
            self.reconcile()

    def _reads(self, m: Member, lsn: int) -> None:
        """Its copy says what it has of the log; what it merely holds proves its connection only."""
        known = self.applied.get(m)
        if known is None or lsn > known:
            self.pace.word()
        if known is None or lsn > known or lsn >= self.p.chain.state.lsn:
            self.pace.heard(m)
            if m in self.silent:
                self.silent.discard(m)
                self._count()
        self.applied[m] = lsn if known is None else max(known, lsn)

    @property
    def listed(self) -> set[Member]:
        """Who is in the node list, as the znode has it."""
        return {r.member for r in self.p.table.replicas}

    def _hosts(self, m: Member) -> bool:
        """Has it a copy, as the table says? One that moved away and comes back begins with an empty one."""
        return m.incarnation == SITE or (m.node in self.p.table.hosts and m.node != self.p.table.away)

    def _forget(self, m: Member) -> None:
        self.writer.acks.pop(m, None)
        self.writer.demands.flushed.pop(m, None)
        self.pace.forget(m)
        self.applied.pop(m, None)
        self.silent.discard(m)

    def members_changed(self, gone: frozenset[Member], why: str) -> None:
        self.hand_over.members_gone(gone)
        for m in gone:
            self._forget(m)
            self.node_list.because(m, why)
        for m in self.p.alive:
            self.pace.follows(m)
        self._count()
        self.reconcile()

    def _listen(self) -> None:
        """Note whose copy has fallen silent."""
        young = self._young()
        passed = min(self.p.now - self._ticked_at, self.p.settings.ack_every_ms)
        self.awake_ms = self.awake_ms + passed
        self._ticked_at = self.p.now
        if young and not self._young():
            self._count()
        there = self.listed & self.p.alive - self.silent
        if silent := {m for m in there if self.pace.is_silent(m)}:
            self.silent |= silent
            for m in silent:
                self.node_list.because(m, f"its copy acknowledged nothing new for {self.p.settings.silent_ms} ms")
            self._count()
        self.pace.listen(there - silent)

    def _young(self) -> bool:
        """Its node list is still being filled: nobody had the time to fall silent."""
        return self.awake_ms < self.p.settings.silent_ms

    def reconcile(self) -> None:
        """Bring the node list to what it should be, and then the sites, one compare-and-set at a time."""
        if self.cas_round:
            return
        wanted = max(self.p.table.sync_replicas, self.writer.quorum)  # more where an override needs more of them
        replicas = self.sync.plan(self.p.table, usable(self), self.writer.acks, self.writer.last_lsn, wanted)
        self.sites.plan()
        self._wait_set()
        if replicas is not None:
            table: PartitionTable | None = msgspec.structs.replace(self.p.table, replicas=replicas)
        elif (table := self.sites.due() or (None if self.hand_over.now else self.migrating.due())) is not None:
            for m in self.listed - {r.member for r in table.replicas}:
                self.node_list.because(m, "the partition has moved")
        self.calm = table is not None and self.writer.unlogged and self._drops_one(table.replicas)
        if table is not None and not self.calm:
            self._set(table)

    def _drops_one(self, replicas: tuple[Replica, ...]) -> bool:
        """One that may hold what the log lacks must stay in the table until the log has it (E2)."""
        return self.p.unlogged and not self.p.table.sync_set <= {r.member for r in replicas if r.kind == SYNC}

    def _set(self, table: PartitionTable) -> None:
        p = self.p
        self.sync.proposed(table.replicas)
        self.sites.proposed(table)
        self._wait_set()
        self.cas_round = p.next_round()
        p.out.append(ev.SetTable(self.cas_round, p.version, table))
        self.proposal = table

    def _wait_set(self) -> None:
        self.writer.wait_set = self.sync.wait_set() | self.sites.waited()
        self.writer.backed = self.sync.backed
        self.writer.early = self.p.unlogged and self.writer.backed and not self.calm
        self.writer.settle(self.p.out)

    def cas_done(self, e: ev.CasDone) -> None:
        if e.round != self.cas_round:
            return
        self.cas_round = 0
        p = self.p
        if e.result is ev.Cas.OK:
            if e.version > p.version:
                p.out += migration_over(p.table, self.proposal)
                p.version, p.table = e.version, p.overrides.of(self.proposal)
            self._settled()
        else:
            self.sync.unknown()
            p.out.append(ev.Refresh())

    def table_seen(self, moved: bool) -> None:
        """The znode still names our epoch; only this node changes it now, so a moved version is one of our sets."""
        if moved:
            self.cas_round = 0
            self._settled()
        elif self.sync.unsettled:
            self.reconcile()

    def _settled(self) -> None:
        self.sync.settled(self.p.table)
        self.sites.settled()
        self.migrating.settled()
        for m in [m for m in self.writer.acks if not self._hosts(m)]:
            self._forget(m)
        self._count()
        self.p.out += self.node_list.changed(self.p.table)
        self._wait_set()
        self.reconcile()

    # --- the quorum (R7) ---

    def _count(self) -> None:
        """Who counts, and how many are needed now."""
        table, me = self.p.table, self.p.me
        need = needed(table, me.node)
        self.writer.counted = frozenset(m for m in self.p.alive if m != me and counts(table, m.node))
        self.writer.quorum = need - 1
        there = self.writer.counted - self.silent
        if not self._young():
            there &= self.listed
        have = 1 + len(there)
        self.sites.quorum.count()
        short, self.writer.short = self.writer.short, ev.TooFew(have, need) if have < need else None
        self.writer.closed = shut(table) or self.writer.short or self.sites.short()
        if self.writer.short is not None and short is None:
            self.p.out.append(ev.Tell(NO_QUORUM, "", "no new commits", {"have": have, "needed": need}))

    def sites_changed(self) -> None:
        """Others are waited for than before, or what a new commit is told has changed."""
        self._count()
        self._wait_set()
        self.barriers.progress()
        self.hand_over.progress()

    def could_take_over(self, m: Member) -> bool:
        """Would a hand-over to it be over in a moment?"""
        near = self.writer.last_lsn - self.p.settings.ready_lag // 10
        return m in self.p.alive and m not in self.silent and self.applied.get(m, -1) >= max(0, near)

    # --- time ---

    def ticked(self) -> None:
        now = self.p.now
        self.votes.closed = self.votes.closed and (bool(self.p.table.owner) or self.p.merging.settles)
        if self.writer.overdue(now):
            self._end("the log did not acknowledge in time")
        elif not self.hand_over.overdue():
            self._listen()
            if self.sites.ticked():
                self.sites_changed()
            self.reconcile()
            self.asking.ticked()
            self.lease.ticked()
            self.pushing.ticked()
            self.p.merging.progress()
            self.votes.ticked(now, self.p.out, serving=self.p.serving)
            self.p.tag = self.writer.tag
            self.p.out += self.node_list.ticked(now, self.p.settings.silent_ms)
            to = self.returning.due(self.awake_ms, self.could_take_over)
            if self.p.table.owner:
                self.hand_over.leave()
            elif to is not None:
                self.hand_over.begin(to)
