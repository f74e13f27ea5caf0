"""This module is the core's face: one partition's copy on one node takes events and returns effects.

`Partition.step(event, now)` is the whole interface. It gives each event to the part of the core that handles it. The
parts share `state`, which may be read from outside. There are no clocks, no chance, no threads and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.epoch_merge import EpochMerge
from halog.core.active.epoch_renewal import EpochRenewal
from halog.core.active.hand_over import PlannedHandOver
from halog.core.active.leader import Leader
from halog.core.active.lease import Predecessor
from halog.core.active.quorum_overrides import QuorumOverrides
from halog.core.commit.discards import Discards, passed_over
from halog.core.commit.outcome_answers import became_of
from halog.core.election.campaign import Campaign
from halog.core.election.positions import position_asked
from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Verdict
from halog.core.log.transactions import Applied, DecidedTransaction
from halog.core.replica.follower import Follower
from halog.core.roles import CLAIMANT, OUT, Role
from halog.core.state.copy_state import CopyState
from halog.core.table.changes import NodeList
from halog.core.table.tell import Tell
from halog.errors import DivergedError, LaterRecordError
from halog.events import COPY_STOPS, LATER_RECORD, Kind


class Partition:
    """A `Partition` is a copy of one partition. It begins LOADING; the driver then reports TableSeen, AliveChanged and
    the log."""

    def __init__(self, state: CopyState, wall_ahead_ms: int = 0) -> None:
        """Begin with `state`. `wall_ahead_ms` says how far the clock on the wall is ahead of the driver's."""
        self.state = state
        self._dropped = -1
        """The first entry since `next_offset` that was dropped; see `_unasked`."""
        self.overrides = QuorumOverrides(state, wall_ahead_ms)
        self.discarded = Discards(state.outcomes, state.ledger)
        self.following = Follower(state)
        self.predecessor = Predecessor(state)
        self.merging = EpochMerge(state)
        self.renewal = EpochRenewal(state)
        self.campaign = Campaign(
            state,
            self.overrides,
            self.merging,
            self.predecessor,
            self.following.pushed_store,
            step_down=self.step_down,
            lost=self.lost,
            lead=self._lead,
        )
        self.leading: Leader | None = None
        self._handlers = self._wired()

    def _wired(self) -> dict[type[Any], Callable[[Any], None]]:
        """Return which part handles which event."""
        return {
            ev.TableSeen: self._table_seen,
            ev.LevelSeen: self._level_seen,
            ev.AliveChanged: self._alive_changed,
            ev.EntriesRead: self._entries_read,
            ev.LogEnd: self._log_ended,
            ev.Taken: self.following.taken,
            ev.Restored: self.following.restored,
            ev.LogLost: lambda e: self.lost(e.why, LATER_RECORD if e.later else COPY_STOPS),
            ev.Submitted: self._submitted,
            ev.BarrierAsked: self._barrier_asked,
            ev.Asked: lambda e: self.state.out.append(fx.Reply(e.token, self._became_of(e))),
            ev.Appended: self._appended,
            ev.AppendFailed: self._append_failed,
            ev.ReplicaAck: self._led(Leader.replica_ack),
            ev.VoteAnswered: self._led(Leader.vote_answered),
            ev.SiteAck: self._led(Leader.site_acked),
            ev.FlushAsked: self.following.flush_asked,
            ev.Flushed: self.following.flushed,
            ev.Pushed: self.following.pushed,
            ev.PushedFlushed: self.following.pushed_flushed,
            ev.PositionAsked: self._position_asked,
            ev.PositionTold: self.campaign.position_told,
            ev.CasDone: self._cas_done,
            ev.Renewed: self._of_lease,
            ev.SessionLost: self._of_lease,
            ev.Died: self.campaign.died,
            ev.HandOverAsked: self._hand_over_asked,
            **dict.fromkeys((ev.PrepareAsked, ev.DecideAsked, ev.MappingAsked), self._vote_asked),
            ev.Confirmed: self._led(lambda leading, e: leading.votes.confirmed(e)),
            ev.MergeAsked: self._merge_asked,
            ev.MergeMade: self.campaign.merge_made,
            ev.LogAnswered: self._log_answered,
            ev.Ticked: self._ticked,
        }

    def _led(self, take: Callable[[Leader, Any], None]) -> Callable[[Any], None]:
        """Return a handler that ignores the event unless this copy leads."""
        return lambda e: None if self.leading is None else take(self.leading, e)

    def step(self, event: ev.Event, now: int) -> list[fx.Effect]:
        """Take one event, and return the effects, to be performed in order."""
        state = self.state
        state.now = now
        if now >= self.overrides.due:
            self._override_ended()
        if self.leading is not None and now >= self.leading.sites.quorum.ends:
            self.leading.sites_changed()
        try:
            self._handlers[type(event)](event)
        except LaterRecordError as error:  # whatever was decided before it in this step stands
            self.lost(error.message, LATER_RECORD)
        out = state.out
        state.out = []
        return out

    @property
    def visible(self) -> int:
        """Return the last lsn that this copy shows."""
        if self.leading is not None:
            return self.leading.writer.visible
        return max(self.state.chain.state.lsn, self.state.shown)

    def _epoch_over(self) -> None:
        """Keep the pushed records as a tail, and hold nothing more: another epoch began, or this one is void. The
        records come only if a later epoch brings them."""
        state = self.state
        if state.unlogged and state.held.joined(state.chain.state):
            state.tail.keep((held.record for held in state.held.run), state.chain.state)
        state.held.clear()

    def step_down(self, happening: str, why: str) -> None:
        """Stop claiming or writing. From here on this copy learns what happened from the log, like every other copy."""
        state = self.state
        self.merging.over(res.Unknown(why))
        since = state.now
        if self.leading is not None:
            since = self.leading.writer.unanswered_since(state.now)
            self.discarded.in_flight(self.leading.writer.queue, self.leading.epoch.number, state.now, why)
            if state.unlogged:
                state.shown = self.visible
                state.tail.keep((item.record for item in self.leading.writer.queue), state.chain.state)
            self.leading.abandon(why)
            self.leading = None
            state.out.append(fx.Read(state.next_offset))
        opening = state.role in CLAIMANT
        state.become(happening, why)
        self.campaign.pause()
        if happening == "epoch ended":
            self.campaign.gave_up(why, since, opened=not opening)

    def _lead(self, node_list: NodeList) -> None:
        """Serve the epoch that was claimed here: it is open."""
        self.leading = leading = Leader(
            self.state,
            self.campaign.epoch,
            node_list,
            self.overrides,
            self.merging,
            self.renewal,
            answers_early=self.following.pushed_store.withdraw,
            step_down=self.step_down,
            handed_over=self._handed_over,
        )
        self.renewal.begins()
        leading.begin()
        if self.campaign.session_lost:
            leading.lease.heard(ev.SessionLost())

    def _handed_over(self, under_way: PlannedHandOver) -> None:
        """Follow again: the last record of the epoch that was led here is in the log."""
        state = self.state
        self._leader().barriers.abandon()
        self.leading = None
        state.out.append(fx.Read(state.next_offset))
        state.become("handed over", f"handed over to {under_way.to}")
        self.merging.ends()
        if under_way.to_site:  # no node of this site takes its place in the znode
            table = msgspec.structs.replace(state.table, active=None)
            state.out.append(fx.SetTable(state.next_round(), state.version, table))
        self.campaign.handed_over()

    # --- the znode and the members ---

    def _override_ended(self) -> None:
        self.overrides.end()
        if self.leading is not None:
            self.leading.sites_changed()

    def _table_seen(self, e: ev.TableSeen) -> None:
        state = self.state
        if e.version < state.version:
            return
        moved, table = e.version > state.version, self.overrides.of(e.table)
        self.campaign.watch(table)
        self.predecessor.named(table)
        state.version = e.version
        state.table = table
        if state.role is Role.CLAIMING:
            self.campaign.table_seen(moved)
        elif state.role in CLAIMANT or self.leading is not None:
            self._still_ours(moved)
        elif moved:
            self.campaign.settled()
        self.campaign.consider()

    def _level_seen(self, e: ev.LevelSeen) -> None:
        state = self.state
        if e.level < state.level:
            state.out.append(fx.LevelStands(state.level))
        state.level = max(state.level, e.level)
        if self.leading is not None:
            self.leading.state_level()

    def _still_ours(self, moved: bool) -> None:
        if self.state.table.epoch != self.campaign.epoch:
            now = self.state.table.node_list[0] if self.state.table.node_list else "nobody"
            self.step_down("deposed", f"the znode names {now}, epoch {self.state.table.epoch.number}")
        elif self.leading is not None:
            self.leading.table_seen(moved)

    def _alive_changed(self, e: ev.AliveChanged) -> None:
        state = self.state
        gone, dead = state.alive - e.members, (state.alive | state.answering) - (e.members | e.answering)
        state.alive = e.members
        state.answering = e.answering
        if state.me not in e.members and state.role not in OUT:
            self.step_down("offline", e.why)
            state.out.append(fx.StopReading())
        if state.table.active in dead:
            self.campaign.witnessed(e.why)
        if self.leading is not None:
            self.leading.members_changed(gone, e.why)
        self.campaign.alive_changed()
        self.campaign.consider()

    def _cas_done(self, e: ev.CasDone) -> None:
        if self.state.role is Role.CLAIMING:
            self.campaign.cas_done(e)
        elif self.leading is not None:
            self.leading.cas_done(e)

    def _of_lease(self, e: ev.Renewed | ev.SessionLost) -> None:
        if self.leading is not None:
            self.leading.lease.heard(e)
        elif isinstance(e, ev.SessionLost):
            self.campaign.session_lost = True

    def _position_asked(self, e: ev.PositionAsked) -> None:
        campaign = self.campaign
        may_stand = self.state.now >= campaign.not_before and not campaign.log.stands
        position_asked(self.state, e, may_stand=may_stand)

    # --- the log ---

    def _log_ended(self, e: ev.LogEnd) -> None:
        if self.state.role is Role.LOADING:
            self.following.loaded()
            self.campaign.consider()

    def _entries_read(self, e: ev.EntriesRead) -> None:
        for offset, data in e.entries:
            self._entry_read(offset, data)

    def _entry_read(self, offset: int, data: bytes) -> None:
        state = self.state
        if state.role is Role.FAILED or offset < state.next_offset or self._unasked(offset):
            return
        held = state.held.find(data) if state.held.run else None
        record, hash_ = (held.record, held.digest) if held else (self._decoded(offset, data), digest(data))
        try:
            verdict = state.chain.read(record, hash_)
        except DivergedError as error:
            self.lost(error.message)
            return
        state.next_offset = offset + 1
        if verdict is Verdict.ACCEPTED:
            self._accepted(record, hash_)
        elif verdict is Verdict.OPENED:
            state.tail.opened(record.header.epoch)
            self.campaign.log.opened()
            state.shown = 0
            self._apply(self.merging.read(record))
        elif verdict is Verdict.SKIPPED:
            passed_over(state, self.discarded, record)
        elif verdict is not Verdict.HELD:  # a held record counts with a later one
            passed_over(state, self.discarded, record)
            self._epoch_over()
            state.out.append(fx.Keep(state.chain.state, state.next_offset))
        if state.role in CLAIMANT:
            self.campaign.opening.read(record, verdict)
        elif state.role is Role.VERIFYING:
            self._leader().verified(record, verdict, offset)

    def _decoded(self, offset: int, data: bytes) -> records.Record:
        """Decode a record of the log. LaterRecordError names where it stands: this copy must not go on behind it, since
        others see other objects from there on (U1)."""
        try:
            return records.decode(data)
        except LaterRecordError as error:
            lsn = self.state.chain.state.lsn
            raise error.at(f"its log has at offset {offset}, behind lsn {lsn}") from None

    def _unasked(self, offset: int) -> bool:
        """Say whether this entry is the rest of a batch that was fetched before `StopReading`. The active node learns
        such entries from its acknowledgements. What follows a dropped entry is dropped too, until a new `Read` brings
        that entry again; else there would be a hole."""
        state = self.state
        if (self.leading is not None and state.role is not Role.VERIFYING) or state.role is Role.OFFLINE:
            if self._dropped < state.next_offset:
                self._dropped = offset
            return True
        return state.next_offset <= self._dropped < offset

    def _accepted(self, record: records.Record, hash_: bytes) -> None:
        state = self.state
        if state.role is Role.VERIFYING and self._leader().own_read(record, hash_):
            return
        if type(record) is records.LevelStated and record.level > state.level:
            state.level = record.level
            state.out.append(fx.LevelStands(record.level))
        if type(record) is records.Commit:
            state.outcomes.add(record.header.tx, record.header.lsn)
            self._apply(record)
        else:
            self._apply(meant := state.ledger.accepted(record, state.next_offset - 1))
            if type(meant) is DecidedTransaction and meant.commit is not None:
                state.outcomes.add(record.header.tx, record.header.lsn)
        if state.held.run:
            state.held.accepted(state.chain.state)
        if state.tail.run:
            state.tail.accepted(record)
        if type(record) is records.HandedOver:
            state.held.clear()
            self.predecessor.handed_over(record.header.epoch)
            self.campaign.handed_over()

    def _apply(self, record: Applied) -> None:
        """Apply a record, together with those that came just before it."""
        state = self.state
        last = state.out[-1] if state.out else None
        if type(last) is fx.Apply and last.next_offset == state.next_offset - 1:
            last.records.append(record)
            last.state, last.next_offset = state.chain.state, state.next_offset
        else:
            state.out.append(fx.Apply([record], state.chain.state, state.next_offset))

    def lost(self, why: str, kind: Kind = COPY_STOPS) -> None:
        """Stop this copy: it cannot go on. What it holds beyond its history may be nowhere else. `kind` is what
        operators are told."""
        state = self.state
        if state.role is Role.FAILED:
            return
        self._epoch_over()
        state.out.append(Tell(kind, state.me.node, why))
        self.step_down("lost", why)
        state.out.append(fx.StopReading())
        self.campaign.release()
        state.out += state.tail.stopped()  # last: the disk may take its time, and be why this copy stops

    # --- writing ---

    def _leader(self) -> Leader:
        assert self.leading is not None, self.state.role
        return self.leading

    def _submitted(self, e: ev.Submitted) -> None:
        if self._is_for_now(e):
            self._leader().submit(e)

    def _is_for_now(self, e: ev.Submitted | ev.PrepareAsked) -> bool:
        """Say whether the request concerns the epoch that goes on here. If not, answer it."""
        state = self.state
        number, serving = state.chain.state.epoch.number, state.serving
        if serving and (number == e.epoch or (number > e.epoch and not e.exact)):
            return True
        state.out.append(fx.Reply(e.token, self._not_serving(number if serving and number > e.epoch else 0)))
        return False

    def _vote_asked(self, e: ev.PrepareAsked | ev.DecideAsked | ev.MappingAsked) -> None:
        if not isinstance(e, ev.PrepareAsked) and not self.state.serving:
            self.state.out.append(fx.Reply(e.token, self._not_serving()))
        elif not isinstance(e, ev.PrepareAsked) or self._is_for_now(e):
            self._leader().vote_asked(e)

    def _barrier_asked(self, e: ev.BarrierAsked) -> None:
        if self.state.serving:
            self._leader().barriers.asked(e.token)
        else:
            self.state.out.append(fx.Reply(e.token, self._not_serving()))

    def _not_serving(self, epoch: int = 0) -> res.InactiveCopy:
        state = self.state
        active = state.table.active
        if active is None or active == state.me or active not in state.alive:
            return res.InactiveCopy(None, epoch)
        return res.InactiveCopy(active.node, epoch, state.table.epoch.number)

    def _appended(self, e: ev.Appended) -> None:
        if self.leading is None:
            return
        self.leading.pace.word()
        if e.count > 1 and self.leading.appended_run(e):
            return
        for i in range(e.count):
            if self.leading is not None:
                self.leading.appended(ev.Appended(e.tag + i, e.offset + i))

    def _append_failed(self, e: ev.AppendFailed) -> None:
        if self.leading is not None:
            self.leading.append_failed(e)
        elif self.state.role in (Role.STARTING, Role.OPENING):
            self.campaign.append_failed(e)

    def _hand_over_asked(self, e: ev.HandOverAsked) -> None:
        if self.state.role is Role.ACTIVE:
            self._leader().hand_over.begin(e)
        else:
            self.state.out.append(fx.Reply(e.token, self._not_serving()))

    def _log_answered(self, e: ev.LogAnswered) -> None:
        if self.leading is not None:
            self.leading.pace.answered(e)
        else:
            self.campaign.log_answered(e)

    def _became_of(self, e: ev.Asked) -> res.Result:
        return became_of(self.state, None if self.leading is None else self.leading.writer, e)

    def _merge_asked(self, e: ev.MergeAsked) -> None:
        if self.leading is None:
            self.state.out.append(fx.Reply(e.token, res.InactiveCopy(None)))
        else:
            self.leading.merge_asked(e)

    # --- the rest ---

    def _ticked(self, e: ev.Ticked) -> None:
        state = self.state
        if e.wall_ahead_ms is not None:
            self.overrides.look(e.wall_ahead_ms)
            if state.now >= self.overrides.due:
                self._override_ended()
        if self.discarded:
            state.out += self.discarded.certain(state.now, state.settings.discarded_ms, state.chain.state.led)
        if self.leading is not None:
            self.leading.ticked()
        else:
            self.campaign.ticked()
            self.merging.ticked()
            self.following.ticked()
