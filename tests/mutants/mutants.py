"""The mutants: each a small, plausible mistake, put into the core of this process by `break_it`.

There is no way back: a mutant lives and dies in a process of its own. Each names the rule of protocol.md it breaks.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from halog.core import effects as fx, events as ev, partition, results as res, roles
from halog.core.active.hand_over import HandOver
from halog.core.active.leader import Leader
from halog.core.commit import writer
from halog.core.commit.discards import Discards
from halog.core.commit.sync_set import SyncSet
from halog.core.commit.writer import Writer
from halog.core.election import campaign as candidate
from halog.core.election.opening import Opening
from halog.core.ids import EpochId, Member
from halog.core.log import chain, records
from halog.core.log.chain import Chain, Verdict
from halog.core.partition import Partition
from halog.core.replica.follower import Follower
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.state.held import HeldRun
from tests.mutants.registry import mutant, patch
from tests.sim.store import Copy, change_objects


@mutant("W3")
def no_fence() -> None:
    """A gap before one's own record is ignored: acknowledged is acknowledged."""
    patch(Leader, "_verify", lambda self, offset: self._logged(offset))


@mutant("W4")
def acknowledge_before_append() -> None:
    """The client hears "happened" when the record is handed to the producer."""

    def submit(self: Writer, e: ev.Submitted, now: int, out: list[fx.Effect]) -> None:
        lsn = self.last_lsn
        real(self, e, now, out)
        if self.last_lsn > lsn:
            self.queue[-1].tokens.clear()
            self.queue[-1].tokens.append(-1)
            out.append(fx.Reply(e.token, res.Success(self.last_lsn)))

    real = patch(Writer, "submit", submit)


@mutant("restart")
def apply_before_position() -> None:
    """Objects reach the disk in a write of their own, before the position."""

    def apply(self: Copy, record: records.Record, state: chain.ChainState, next_offset: int) -> None:
        real(self, record, state, next_offset)
        if isinstance(record, records.Commit):
            change_objects(self.disk.objects, record)

    real = patch(Copy, "apply", apply)


@mutant("E2")
def epoch_not_raised() -> None:
    """A claim takes the epoch number that is there."""
    patch(candidate, "EpochId", lambda number, site, nonce: EpochId(max(1, number - 1), site, nonce))


@mutant("S3")
def replica_counted_before_ready() -> None:
    """A joining replica enters the sync set at once."""

    def join(self: SyncSet, members: list[Member], last_lsn: int) -> None:
        self.joining = dict.fromkeys(members, -1)

    patch(SyncSet, "_join", join)


@mutant("W6")
def transaction_id_not_checked() -> None:
    """Only what is in flight is deduplicated, not what is committed."""

    def known(self: Writer, e: ev.Submitted) -> res.Result | writer._JoinedAttempt | None:
        return real(self, e) if e.tx in self.by_tx else None

    real = patch(Writer, "_known", known)


@mutant("R2")
def chain_not_checked() -> None:
    """A record of the current epoch counts even where it does not continue the history."""

    def read(self: Chain, record: records.Record, digest: bytes) -> Verdict:
        s, h = self.state, record.header
        if isinstance(record, records.Commit) and h.epoch == s.epoch and not s.void:
            self.accept(record, digest)
            return Verdict.ACCEPTED
        return real(self, record, digest)  # type: ignore[no-any-return]

    real = patch(Chain, "read", read)


@mutant("R2")
def dead_epochs_count() -> None:
    """A record that continues the history counts, whoever wrote it."""

    def read(self: Chain, record: records.Record, digest: bytes) -> Verdict:
        s, h = self.state, record.header
        continues = h.lsn == s.lsn + 1 and h.prev == s.hash
        if isinstance(record, records.Commit) and h.epoch.number < s.epoch.number and continues:
            self.accept(record, digest)
            return Verdict.ACCEPTED
        return real(self, record, digest)  # type: ignore[no-any-return]

    real = patch(Chain, "read", read)


@mutant("S2")
def sync_set_shrunk_before_the_znode() -> None:
    """The active stops waiting when it asks, not when the znode knows."""

    def proposed(self: SyncSet, replicas: tuple[Any, ...]) -> None:
        real(self, replicas)
        self._held = self._held[-1:]

    real = patch(SyncSet, "proposed", proposed)


@mutant("S4")
def union_forgotten_on_unknown() -> None:
    """After a set with an unknown result only the old set is waited for."""

    def unknown(self: SyncSet) -> None:
        self.unsettled = True
        self._held = self._held[:1]

    patch(SyncSet, "unknown", unknown)


@mutant("W2")
def conflicts_ignore_what_is_in_flight() -> None:
    """Versions are checked against the store alone."""

    def conflict(self: Writer, e: ev.Submitted) -> res.Result | None:
        overlay = self.overlay
        self.overlay = {}
        try:
            result: res.Result | None = real(self, e)
        finally:
            self.overlay = overlay
        return result

    real = patch(Writer, "_conflict", conflict)


@mutant("S1")
def replicas_not_waited_for() -> None:
    """Answered as soon as the log has it."""
    patch(Writer, "_held", lambda self, lsn: self.chain.state.lsn)


@mutant("S1")
def acknowledge_before_read() -> None:
    """A replica confirms one record more than it has."""

    def acknowledge(self: Follower, *, repeat: bool = False) -> None:
        real(self, repeat=repeat)
        out = self._copy.out
        if out and isinstance(out[-1], fx.SendAck) and out[-1].applied:
            out[-1] = msgspec.structs.replace(out[-1], lsn=out[-1].lsn + 1)

    real = patch(Follower, "acknowledge", acknowledge)


@mutant("E5")
def epoch_opened_skipped() -> None:
    """Serves right after its `EpochStarted`."""

    def started(self: Opening) -> None:
        self._copy.become("started")
        self._campaign.opened()

    patch(Opening, "_started", started)


@mutant("E4")
def serves_without_reading_up_to_its_start() -> None:
    """Opens and serves on the history it had when it claimed."""

    def claimed(self: candidate.Campaign) -> None:
        real(self)
        self.opening._started()
        self.opened()

    real = patch(candidate.Campaign, "_claimed", claimed)


@mutant("H4")
def hand_over_called_off_after_append() -> None:
    """`HandedOver` is on its way, no answer comes: go on as if nothing had been sent."""
    roles.TRANSITIONS[Role.HANDING]["call off"] = Role.ACTIVE

    def overdue(self: HandOver) -> bool:
        if self._copy.role is Role.HANDING and self.now is not None and self._copy.now >= self.now.deadline:
            self._call_off()
        return real(self)

    def done(self: HandOver) -> None:
        if self.now is not None:
            real_done(self)

    real = patch(HandOver, "overdue", overdue)
    real_done = patch(HandOver, "done", done)


@mutant("R4")
def not_happened_before_a_higher_epoch_opened() -> None:
    """ "It did not happen" as soon as the znode names a higher epoch."""

    def became_of(copy: CopyState, writer: Writer | None, e: ev.Asked) -> res.Result:
        if copy.table.epoch.number > e.attempt and copy.outcomes.get(e.tx) is None:
            return res.Abort()
        return real(copy, writer, e)  # type: ignore[no-any-return]

    real = patch(partition, "became_of", became_of)


@mutant("R4")
def reading_to_the_end_proves_absence() -> None:
    """Whoever follows the log and has not seen it says that it did not happen."""

    def became_of(copy: CopyState, writer: Writer | None, e: ev.Asked) -> res.Result:
        if copy.role is Role.FOLLOWING and copy.outcomes.get(e.tx) is None and not copy.outcomes.expired(e.tx):
            return res.Abort()
        return real(copy, writer, e)  # type: ignore[no-any-return]

    real = patch(partition, "became_of", became_of)


@mutant("W4")
def in_flight_denied_on_step_down() -> None:
    """Whoever steps down tells its clients that nothing happened."""

    def abandon(self: Writer, why: str, out: list[fx.Effect]) -> None:
        before = len(out)
        real(self, why, out)
        out[before:] = [fx.Reply(e.token, res.Abort()) if isinstance(e, fx.Reply) else e for e in out[before:]]

    real = patch(Writer, "abandon", abandon)


@mutant("W1")
def two_nodes_one_epoch_id() -> None:
    """Epoch ids do not tell two nodes apart (the first core's did not, for equal incarnations)."""
    patch(candidate, "nonce", lambda claimant, claims: 0)

    def init(self: candidate.Campaign, copy: CopyState, *args: Any, **more: Any) -> None:
        real(self, copy, *args, **more)
        copy.campaign = self  # type: ignore[attr-defined]

    def epoch_ours(self: CopyState) -> bool:
        return self.table.active is not None and self.table.epoch == self.campaign.epoch  # type: ignore[attr-defined]

    real = patch(candidate.Campaign, "__init__", init)
    patch(CopyState, "epoch_ours", property(epoch_ours))


@mutant("W4")
def first_failure_does_not_end_the_epoch() -> None:
    """A failed append is answered "unknown", and the next ones are acknowledged as if it had been there."""

    def append_failed(self: Leader, e: ev.AppendFailed) -> None:
        head = self.writer.head()
        if e.tag == -1 or head is None or e.tag < head.tag:
            real(self, e)
        elif e.tag == head.tag:
            self.writer.queue.popleft()
            del self.writer.by_tx[head.tx]
            self._copy.out.extend(fx.Reply(t, res.Unknown(e.why)) for t in head.tokens)

    real = patch(Leader, "append_failed", append_failed)


@mutant("core")
def entries_taken_while_leading() -> None:
    """Entries fetched before `StopReading` are taken (the first core did)."""
    patch(Partition, "_unasked", lambda self, offset: False)


@mutant("E6")
def held_records_outlive_their_epoch() -> None:
    """What was pushed stays held when another epoch starts, or the log voids this one."""

    def clear(self: HeldRun) -> None:
        if sys._getframe(1).f_code.co_name not in ("_epoch_over", "_accepted"):
            real(self)

    real = patch(HeldRun, "clear", clear)


@mutant("E1")
def a_push_of_another_epoch_is_held() -> None:
    """Whoever follows any epoch holds whatever anybody pushes."""

    def offer(self: HeldRun, data: bytes, state: chain.ChainState) -> None:
        epoch = records.decode(data).header.epoch
        real(self, data, msgspec.structs.replace(state, epoch=epoch, opened=True, void=False))

    def pushed(self: Follower, e: ev.Pushed) -> None:
        for data in e.records:
            self._copy.held.offer(data, self._copy.chain.state)
        self._tell_held()

    real = patch(HeldRun, "offer", offer)
    patch(Follower, "pushed", pushed)


@mutant("P1")
def a_push_behind_a_hole_is_acknowledged() -> None:
    """The newest lsn held counts, whether everything before it is there or not."""

    def tip(self: HeldRun, state: chain.ChainState) -> int:
        return self.run[-1].lsn if self.run else state.lsn

    patch(HeldRun, "tip", tip)


@mutant("P1")
def held_records_make_room_for_others() -> None:
    """A push that does not continue displaces what was told as held."""
    patch(HeldRun, "joined", lambda self, state: False)
    patch(HeldRun, "tip", lambda self, state: self.run[-1].lsn if self.run else state.lsn)


@mutant("E1")
def a_told_position_promises_nothing() -> None:
    """After it told a candidate its position a copy goes on holding pushes of that epoch."""
    patch(HeldRun, "seal", lambda self, epoch: None)


@mutant("R4")
def discarded_before_it_is_certain() -> None:
    """What was in flight when an epoch ended is told to be discarded before a higher epoch has opened."""
    honest = Discards.certain
    patch(Discards, "certain", lambda self, now, wait_ms, led: honest(self, now, 0, 1 << 60))
