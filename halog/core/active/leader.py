"""This module is the active copy of one epoch. It ties the writer, the wait set and the hand-over to their partition.

Any surprise ends the epoch (W1, W4): what is in flight becomes unknown, the node follows the log again and stands for
election anew. A leader never repairs an epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.epoch_merge import EpochMerge
from halog.core.active.epoch_renewal import EpochRenewal
from halog.core.active.hand_over import HandOver, HandOverCallbacks, PlannedHandOver
from halog.core.active.lease import Lease
from halog.core.active.migration_steps import MigrationSteps
from halog.core.active.quorum_overrides import QuorumOverrides
from halog.core.active.read_barriers import ReadBarriers
from halog.core.active.resync_steps import ResyncSteps
from halog.core.active.role_return import OWN, RoleReturn
from halog.core.commit.durability_requests import DurabilityRequests
from halog.core.commit.log_clock import AwakeClock, LogPace
from halog.core.commit.participant import Participant
from halog.core.commit.push import AGAIN_MS, ReplicaPush
from halog.core.commit.sync_set import SyncSet, usable
from halog.core.commit.writer import Writer
from halog.core.ids import EpochId, Member
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.roles import Role
from halog.core.sites.sync_sites import SITE, SyncSites
from halog.core.state.copy_state import CopyState
from halog.core.table.changes import NodeList, migration_over
from halog.core.table.definitions import shut
from halog.core.table.group import counts, needed
from halog.core.table.table import SYNC, PartitionTable, Replica
from halog.core.table.tell import Tell
from halog.events import NO_QUORUM


class Leader:
    """A `Leader` exists exactly while the partition's role is one of LEADING."""

    def __init__(
        self,
        copy: CopyState,
        epoch: EpochId,
        group: NodeList,
        overrides: QuorumOverrides,
        merging: EpochMerge,
        renewal: EpochRenewal,
        *,
        answers_early: Callable[[], None],
        step_down: Callable[[str, str], None],
        handed_over: Callable[[PlannedHandOver], None],
    ) -> None:
        """Begin to lead `epoch`. `answers_early` is called before something is answered that the log may lack.
        `step_down` is called with the happening and the reason where the epoch is over, `handed_over` where it ended in
        favour of another node or site."""
        self._copy = copy
        self._overrides = overrides
        self._merging = merging
        self._renewal = renewal
        self._step_down = step_down
        self.epoch = epoch
        self.node_list = group
        self.writer = writer = Writer(copy.chain, copy.outcomes, copy.settings, copy.next_offset, copy.tag)
        self.pushing = ReplicaPush(copy, epoch, writer, answers_early)
        self.votes = Participant(writer, copy.ledger, copy.table.name, copy.now)
        self.sync = SyncSet(copy.table)
        self.awake = AwakeClock(copy)
        self.sites = SyncSites(copy, epoch, writer, self.awake)
        self.cas_round = 0
        self.calm = False
        """The compare-and-set under way, or 0; and whether one waits until the log has what was acknowledged."""
        self.proposal = copy.table
        self.verify_to = -1
        self.silent: set[Member] = set()
        """Living members whose copies acknowledge nothing new, though there is something. Commits no longer wait for
        them."""
        self.applied: dict[Member, int] = {}
        """How far each replica says it has read the log; `Writer.acks` also counts what it only holds."""
        self.returning = RoleReturn(copy)
        self.pace = LogPace(copy, writer, self.awake)
        self.asking = DurabilityRequests(copy, epoch, writer, self.pushing, self.silent)
        self.barriers = ReadBarriers(copy, writer, self.pushing, self.sites.quorum)
        self.lease = Lease(copy, epoch, writer, self.pushing)
        ends = HandOverCallbacks(step_down, self._called_off, handed_over)
        self.hand_over = HandOver(copy, epoch, writer, self.votes, self.sites, self.lease, self.applied, ends)
        self._anew = ResyncSteps(copy, writer, self.pushing)
        self.migrating = MigrationSteps(copy, writer, self.asking, self.silent, self._anew)

    def begin(self) -> None:
        self.sites.quorum.begin()
        self._count()
        self._copy.out += self.node_list.changed(self._copy.table)
        self.reconcile()
        self.state_level()

    def state_level(self) -> None:
        """Say in the log of which level this epoch writes from here on (U1)."""
        copy, writer = self._copy, self.writer
        if copy.level > writer.level and copy.role is Role.ACTIVE:
            self.votes.state_level(copy.level, copy.now, copy.out)
            copy.tag = writer.tag

    # --- commits ---

    def submit(self, e: ev.Submitted) -> None:
        if e.mapping != self.writer.mapping:
            admitted = self.votes.admits(e, self._copy.now, self._copy.out)
            self._copy.tag = self.writer.tag
            if not admitted:
                return
        if e.durability is not None:
            self.asking.submit(e, e.durability)
            return
        self.writer.submit(e, self._copy.now, self._copy.out)
        if self.writer.tag > self._copy.tag:
            self.pushing.sent(self._copy.out)

    def vote_asked(self, e: ev.PrepareAsked | ev.DecideAsked | ev.MappingAsked) -> None:
        """Take a question of a transaction over several partitions, or of the mapping."""
        self.votes.asked(e, self._copy.now, self._copy.out)
        self._copy.tag = self.writer.tag

    def appended(self, e: ev.Appended) -> None:
        """Take an acknowledgement. It is believed for the head of the queue at the expected offset; else it is
        verified, or ends the epoch."""
        head = self.writer.head()
        if head is None or e.tag < head.tag:
            return
        if self._copy.role is Role.VERIFYING:
            self.verify_to = max(self.verify_to, e.offset)
        elif e.tag != head.tag or e.offset < self.writer.expected:
            self._end(f"append {e.tag} acknowledged at {e.offset}, expected {head.tag} at {self.writer.expected}")
        elif e.offset == self.writer.expected:
            self._logged(e.offset)
        elif self._copy.role is Role.HANDING or self._copy.role is Role.DRAINING:
            self._step_down("epoch ended", "somebody else wrote during the hand-over")  # the session has told it right
        else:
            self._verify(e.offset)

    def appended_run(self, e: ev.Appended) -> bool:
        """Take several acknowledgements at once, if all is as expected. Return False if they must be looked at one by
        one."""
        writer, head = self.writer, self.writer.head()
        if head is None or self._copy.role is not Role.ACTIVE or writer.flying_votes or len(writer.queue) < e.count:
            return False
        if e.tag != head.tag or e.offset != writer.expected:
            return False
        self._copy.next_offset = e.offset + e.count
        writer.logged_run(e.count, self._copy.next_offset, self._copy.out)
        writer.settle(self._copy.out)
        if self.barriers.waiting:
            self.barriers.progress()
        return True

    def _logged(self, offset: int) -> None:
        item = self.writer.logged(offset + 1, self._copy.out, self._copy.now)
        self._copy.next_offset = offset + 1
        self.writer.settle(self._copy.out)
        if self.barriers.waiting:
            self.barriers.progress()
        if type(item.record) is records.HandedOver:
            self.hand_over.done()
        else:
            self.hand_over.progress()

    def append_failed(self, e: ev.AppendFailed) -> None:
        head = self.writer.head()
        if e.tag == -1:
            self._step_down("epoch ended", e.why)
        elif head is not None and e.tag >= head.tag:
            self._end(e.why)

    def _end(self, why: str) -> None:
        """End epoch and session: nothing that this session sent can be told apart any more."""
        self._copy.out.append(fx.EndSession(why))
        self._step_down("epoch ended", why)

    def abandon(self, why: str) -> None:
        """Tell all callers that the outcome is unknown: the epoch is over."""
        self.hand_over.abandon(why)
        self.barriers.abandon()
        self.writer.abandon(why, self._copy.out)

    # --- a gap: read it like any reader (W3) ---

    def _verify(self, offset: int) -> None:
        self.verify_to = offset
        self._copy.become("gap", f"acknowledged at {offset}, expected {self.writer.expected}")
        self._copy.out.append(fx.Read(self.writer.expected))

    def own_read(self, record: records.Record, digest: bytes) -> bool:
        """Take an accepted record that was read while verifying. Return whether it is the head of our queue, which is
        then logged."""
        head = self.writer.head()
        if head is None or head.digest != digest:
            return False
        self.writer.logged(self._copy.next_offset, self._copy.out, self._copy.now, own=False)
        self.writer.settle(self._copy.out)
        if self.barriers.waiting:
            self.barriers.progress()
        return True

    def verified(self, record: records.Record, verdict: Verdict, offset: int) -> None:
        """Take one more record of the gap."""
        if verdict is Verdict.STARTED:
            self._step_down("deposed", f"fenced by epoch {record.header.epoch.number} in the log")
        elif verdict is Verdict.VOIDED:
            self._end("the log voided this epoch")
        elif offset >= self.verify_to:
            self.writer.expected = offset + 1
            self._copy.become("gap is dead", "only dead epochs in the gap")
            self._copy.out.append(fx.StopReading())

    # --- replicas ---

    def replica_ack(self, e: ev.ReplicaAck) -> None:
        """Take a replica's acknowledgement. It counts for this epoch and a living incarnation only (S5)."""
        stale = self._copy.table.resync is not None and self._anew.stale(e)
        if e.epoch != self.epoch or e.member not in self._copy.alive or stale or not self._hosts(e.member):
            return
        if not e.applied and not self._copy.settings.pushes:
            return  # memory is not what this policy asks for (R6)
        self._renewal.heard(e)
        acks = self.writer.acks
        known, flushed = acks.get(e.member), e.flushed and self.asking.flushed(e)
        if e.applied:
            self._reads(e.member, e.lsn)
        if known is None or e.lsn > known:
            acks[e.member] = e.lsn
            self.writer.settle(self._copy.out)
        elif flushed:
            self.writer.settle(self._copy.out)
        if e.applied:
            self.hand_over.progress()
        if known is None or self.sync.joining or e.member not in self._copy.listed:
            self.reconcile()

    def _reads(self, m: Member, lsn: int) -> None:
        """Note what the replica's copy has read of the log. What it only holds proves just its connection."""
        known = self.applied.get(m)
        if known is None or lsn > known:
            self.pace.word()
        if known is None or lsn > known or lsn >= self._copy.chain.state.lsn:
            self.pace.heard(m)
            if m in self.silent:
                self.silent.discard(m)
                self._count()
        self.applied[m] = lsn if known is None else max(known, lsn)

    def site_acked(self, e: ev.SiteAck) -> None:
        """Take a site's acknowledgement: its log has more of this epoch."""
        heard = self.sites.acked(e)
        if heard.more:
            self.hand_over.progress()
        if heard.joins:
            self.reconcile()

    def vote_answered(self, e: ev.VoteAnswered) -> None:
        """Take what a site says of its votes."""
        if self.sites.quorum.answered(e):
            self.sites_changed()

    def _hosts(self, m: Member) -> bool:
        """Say whether the node has a copy, as the table says. One that moved away and comes back begins with an empty
        copy."""
        return m.incarnation == SITE or (m.node in self._copy.table.hosts and m.node != self._copy.table.away)

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
        for m in self._copy.alive:
            self.pace.follows(m)
        self._count()
        self.reconcile()

    def _listen(self) -> None:
        """Note which copies have fallen silent."""
        young = self._young()
        self.awake.ticked()
        if young and not self._young():
            self._count()
        there = self._copy.listed & self._copy.alive - self.silent
        if silent := {m for m in there if self.pace.is_silent(m)}:
            self.silent |= silent
            for m in silent:
                self.node_list.because(m, f"its copy acknowledged nothing new for {self._copy.settings.silent_ms} ms")
            self._count()
        self.pace.listen(there - silent)

    def _young(self) -> bool:
        """Say whether the epoch is too young for a replica to have fallen silent: the node list is still being
        filled."""
        return self.awake.ms < self._copy.settings.silent_ms

    def reconcile(self) -> None:
        """Bring the node list to what it should be, and then the sites, one compare-and-set at a time."""
        if self.cas_round:
            return
        wanted = max(self._copy.table.sync_replicas, self.writer.quorum)  # more where an override needs more of them
        able = usable(self._copy, self.writer, self.silent)
        replicas = self.sync.plan(self._copy.table, able, self.writer.acks, self.writer.last_lsn, wanted)
        self.sites.plan()
        self._wait_set()
        if replicas is not None:
            table: PartitionTable | None = msgspec.structs.replace(self._copy.table, replicas=replicas)
        elif (table := self.sites.due() or (None if self.hand_over.now else self.migrating.due())) is not None:
            for m in self._copy.listed - {r.member for r in table.replicas}:
                self.node_list.because(m, "the partition has moved")
        self.calm = table is not None and self.writer.unlogged and self._drops_one(table.replicas)
        if table is not None and not self.calm:
            self._set(table)

    def _drops_one(self, replicas: tuple[Replica, ...]) -> bool:
        """Say whether this list drops a member that may hold what the log lacks. It must stay in the table until the
        log has it (E2)."""
        return self._copy.unlogged and not self._copy.table.sync_set <= {r.member for r in replicas if r.kind == SYNC}

    def _set(self, table: PartitionTable) -> None:
        copy = self._copy
        self.sync.proposed(table.replicas)
        self.sites.proposed(table)
        self._wait_set()
        self.cas_round = copy.next_round()
        copy.out.append(fx.SetTable(self.cas_round, copy.version, table))
        self.proposal = table

    def _wait_set(self) -> None:
        self.writer.wait_set = self.sync.wait_set() | self.sites.waited()
        self.writer.backed = self.sync.backed
        self.writer.early = self._copy.unlogged and self.writer.backed and not self.calm
        self.writer.settle(self._copy.out)

    def cas_done(self, e: ev.CasDone) -> None:
        if e.round != self.cas_round:
            return
        self.cas_round = 0
        copy = self._copy
        if e.result is ev.Cas.OK:
            if e.version > copy.version:
                copy.out += migration_over(copy.table, self.proposal)
                copy.version, copy.table = e.version, self._overrides.of(self.proposal)
            self._settled()
        else:
            self.sync.unknown()
            copy.out.append(fx.Refresh())

    def table_seen(self, moved: bool) -> None:
        """Take a znode that still names our epoch. Only this node changes it now, so a new version is one of our
        sets."""
        if moved:
            self.cas_round = 0
            self._settled()
        elif self.sync.unsettled:
            self.reconcile()

    def _settled(self) -> None:
        self.sync.settled(self._copy.table)
        self.sites.settled()
        self.migrating.settled()
        for m in [m for m in self.writer.acks if not self._hosts(m)]:
            self._forget(m)
        self._count()
        self._copy.out += self.node_list.changed(self._copy.table)
        self._wait_set()
        self.reconcile()

    # --- the quorum (R7) ---

    def _count(self) -> None:
        """Count the members that count for the quorum, and how many are needed now."""
        table, me = self._copy.table, self._copy.me
        need = needed(table, me.node)
        self.writer.counted = frozenset(m for m in self._copy.alive if m != me and counts(table, m.node))
        self.writer.quorum = need - 1
        there = self.writer.counted - self.silent
        if not self._young():
            there &= self._copy.listed
        have = 1 + len(there)
        self.sites.quorum.count()
        short, self.writer.short = self.writer.short, res.Shortage(have, need) if have < need else None
        self.writer.closed = shut(table) or self.writer.short or self.sites.short()
        if self.writer.short is not None and short is None:
            self._copy.out.append(Tell(NO_QUORUM, "", "no new commits", {"have": have, "needed": need}))

    def sites_changed(self) -> None:
        """Count again: commits wait for others than before, or what a new commit is told has changed."""
        self._count()
        self._wait_set()
        self.barriers.progress()
        self.hand_over.progress()

    def could_take_over(self, m: Member) -> bool:
        """Say whether a hand-over to this member would be over in a moment."""
        near = self.writer.last_lsn - self._copy.settings.ready_lag // 10
        return m in self._copy.alive and m not in self.silent and self.applied.get(m, -1) >= max(0, near)

    # --- its end ---

    def merge_asked(self, e: ev.MergeAsked) -> None:
        """End this epoch for a merge that somebody has."""
        self._merging.asked(e, self.votes, self.hand_over)

    def _may_renew(self) -> bool:
        """Say whether this epoch could end in favour of this node now: nothing else ends it, and the log answers."""
        head = self.writer.head()
        answers = head is None or self._copy.now - head.since_ms < AGAIN_MS
        return answers and self._copy.role is Role.ACTIVE and self.hand_over.now is None and not self._merging.settles

    def _called_off(self, token: int) -> None:
        if token == OWN:
            self.returning.failed(self.awake.ms)
        self._merging.over(res.Refusal("the epoch did not end in time"))

    # --- time ---

    def ticked(self) -> None:
        now = self._copy.now
        self.votes.closed = self.votes.closed and (bool(self._copy.table.owner) or self._merging.settles)
        if self.writer.overdue(now):
            self._end("the log did not acknowledge in time")
        elif not self.hand_over.overdue():
            self._listen()
            if self.sites.ticked():
                self.sites_changed()
            self.reconcile()
            self.hand_over.look()
            self.asking.ticked()
            self.lease.ticked()
            self.pushing.ticked()
            self._merging.progress(self.votes, self.hand_over)
            self.votes.ticked(now, self._copy.out, serving=self._copy.serving)
            self._copy.tag = self.writer.tag
            self.state_level()
            self._copy.out += self.node_list.ticked(now, self._copy.settings.silent_ms)
            to = self.returning.due(self.awake.ms, self.could_take_over)
            if self._copy.table.owner:
                self.hand_over.leave()
            elif to is not None:
                self.hand_over.begin(to)
            elif self._may_renew() and (why := self._renewal.due(self.writer.wait_set)):
                self.hand_over.renew(why)
