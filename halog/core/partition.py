"""One partition's copy on one node: events in, effects out.

`Partition.step(event, now)` is the whole interface. It holds what this node knows of the partition, which is never more
than the log and the znode told it: the log decides who may write (`chain`), the znode who should (`table`). Elections
are in `campaign.py`, writing in `writer.py`, the wait set in `sync_set.py`, what a replica holds and says in `held.py`
and `following.py`; roles and their table in `roles.py`. No clock, chance, threads, I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halog.core import events as ev
from halog.core.active.epoch_merge import Merging
from halog.core.active.leader import Leading
from halog.core.active.lease import Predecessor
from halog.core.active.quorum_overrides import Overrides
from halog.core.commit.discards import Discarded, passed_over
from halog.core.commit.outcome_answers import became_of
from halog.core.election.campaign import Campaign
from halog.core.election.positions import position_asked
from halog.core.ids import Member, Position, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Applied, DecidedTransaction, Ledger
from halog.core.replica.follower import Following
from halog.core.replica.held import Held
from halog.core.replica.tail import Tail
from halog.core.roles import CLAIMANT, OUT, Role, next_role
from halog.core.settings import Settings, Sync
from halog.core.table.group import priority
from halog.core.table.preference import NEVER
from halog.core.table.table import PartitionTable
from halog.errors import DivergedError
from halog.events import COPY_STOPS


class Partition:
    """A copy of one partition. Created LOADING; the driver then reports TableSeen, AliveChanged and the log."""

    def __init__(
        self,
        me: Member,
        table_version: int,
        table: PartitionTable,
        chain: ChainState,
        next_offset: int,
        outcomes: Outcomes,
        settings: Settings,
        now: int,
        ledger: Ledger | None = None,
        wall_ahead_ms: int = 0,
        tail: Tail | None = None,
    ) -> None:
        self.me = me
        self.settings = settings
        self.outcomes = outcomes
        self.ledger = ledger or Ledger()
        self.version = table_version
        self.table = table
        self.chain = Chain(chain)
        self.next_offset = next_offset
        self.dropped = -1
        """The first entry not taken since `next_offset`; see `_unasked`."""
        self.alive: frozenset[Member] = frozenset({me})
        self.answering: frozenset[Member] = frozenset()
        """Who is not heard, and lives all the same."""
        self.role = Role.LOADING
        self.now = now
        self.out: list[ev.Effect] = []
        self.overrides = Overrides(self, wall_ahead_ms)
        self.tag = 0
        """The last append tag given out."""
        self.round = 0
        self.held = Held()
        self.tail = tail or Tail()
        self.discarded = Discarded(outcomes, self.ledger)
        self.following = Following(self, now)
        self.predecessor = Predecessor(self)
        self.campaign = Campaign(self, now)
        self.merging = Merging(self)
        self.leading: Leading | None = None
        self._handlers = self._wired()

    def _wired(self) -> dict[type[Any], Callable[[Any], None]]:
        """Who takes which event."""
        return {
            ev.TableSeen: self._table_seen,
            ev.AliveChanged: self._alive_changed,
            ev.EntriesRead: self._entries_read,
            ev.LogEnd: self.following.log_ended,
            ev.Taken: self.following.taken,
            ev.Restored: self.following.restored,
            ev.LogLost: lambda e: self.lost(e.why),
            ev.Submitted: self._submitted,
            ev.BarrierAsked: self._barrier_asked,
            ev.Asked: lambda e: self.out.append(ev.Reply(e.token, became_of(self, e))),
            ev.Appended: self._appended,
            ev.AppendFailed: self._append_failed,
            ev.ReplicaAck: self._led(Leading.replica_ack),
            ev.VoteAnswered: self._led(lambda leading, e: leading.sites.quorum.answered(e)),
            ev.SiteAck: self._led(lambda leading, e: leading.sites.acked(e)),
            ev.FlushAsked: self.following.flush_asked,
            ev.Flushed: self.following.flushed,
            ev.Pushed: self.following.pushed,
            ev.Stowed: self.following.stowed,
            ev.PositionAsked: lambda e: position_asked(self, e),
            ev.PositionTold: self.campaign.position_told,
            ev.CasDone: self._cas_done,
            ev.Renewed: self._of_lease,
            ev.SessionLost: self._of_lease,
            ev.Died: self.campaign.died,
            ev.HandOverAsked: self._hand_over_asked,
            **dict.fromkeys((ev.PrepareAsked, ev.DecideAsked, ev.MappingAsked), self._vote_asked),
            ev.Confirmed: self._led(lambda leading, e: leading.votes.confirmed(e)),
            ev.MergeAsked: self.merging.asked,
            ev.MergeMade: self.merging.made,
            ev.LogAnswered: self._log_answered,
            ev.Ticked: self._ticked,
        }

    def _led(self, take: Callable[[Leading, Any], None]) -> Callable[[Any], None]:
        """What only a leader takes."""
        return lambda e: None if self.leading is None else take(self.leading, e)

    def step(self, event: ev.Event, now: int) -> list[ev.Effect]:
        """Take one event; the effects are to be performed in order."""
        self.now = now
        if now >= self.overrides.due:
            self.overrides.end()
        if self.leading is not None and now >= self.leading.sites.quorum.ends:
            self.leading.sites_changed()
        self._handlers[type(event)](event)
        out = self.out
        self.out = []
        return out

    # --- shared with the parts ---

    def become(self, happening: str, why: str = "") -> None:
        """Change role by the table."""
        self.role = next_role(self.role, happening)
        self.out.append(ev.RoleChanged(self.role.value, why or happening))

    def next_round(self) -> int:
        """A number for the next question to the coordinator or the peers, so that late answers are recognised."""
        self.round += 1
        return self.round

    @property
    def position(self) -> Position:
        """How recent this copy is: what it could bring into the log counts (Q2)."""
        s = self.chain.state
        return s.position if not self.unlogged else Position(s.led, max(s.lsn, self.tail.tip, self.held.tip(s)))

    @property
    def visible(self) -> int:
        """The last lsn this copy shows."""
        return max(self.chain.state.lsn, self.following.shown) if self.leading is None else self.leading.visible

    @property
    def serving(self) -> bool:
        """Does this copy answer commits and reads?"""
        return self.role is Role.ACTIVE or self.role is Role.VERIFYING

    @property
    def unlogged(self) -> bool:
        """May commits have been acknowledged that the log does not have?"""
        return self.settings.local_sync is Sync.NO_SYNC

    def _epoch_over(self) -> None:
        """Another epoch began, or this one is void: what was pushed is not to come, unless a later epoch brings it."""
        if self.unlogged and self.held.joined(self.chain.state):
            self.tail.keep((held.record for held in self.held.run), self.chain.state)
        self.held.clear()

    @property
    def eligible(self) -> bool:
        """May this copy take part in an election as a candidate?"""
        if self.role is Role.LOADING or self.role in OUT or self.me.node not in self.table.configured:
            return False
        return not self.table.owner and priority(self.table, self.me.node) != NEVER

    @property
    def epoch_ours(self) -> bool:
        """Does the znode name this incarnation as active?"""
        return self.table.active == self.me

    def step_down(self, happening: str, why: str) -> None:
        """Stop claiming or writing; from here on learn what happened from the log like everybody else."""
        self.merging.over(ev.Unknown(why))
        since = self.now
        if self.leading is not None:
            since = self.leading.writer.unanswered_since(self.now)
            self.discarded.in_flight(self.leading.writer.queue, self.leading.epoch.number, self.now, why)
            if self.unlogged:
                self.following.shown = self.visible
                self.tail.keep((item.record for item in self.leading.writer.queue), self.chain.state)
            self.leading.abandon(why)
            self.leading = None
            self.out.append(ev.Read(self.next_offset))
        opening = self.role in CLAIMANT
        self.become(happening, why)
        self.campaign.pause()
        if happening == "epoch ended":
            self.campaign.gave_up(why, since, opened=not opening)

    # --- the znode and the members ---

    def _table_seen(self, e: ev.TableSeen) -> None:
        if e.version < self.version:
            return
        moved, table = e.version > self.version, self.overrides.of(e.table)
        self.campaign.watch(table)
        self.predecessor.named(table)
        self.version = e.version
        self.table = table
        if self.role is Role.CLAIMING:
            self.campaign.table_seen(moved)
        elif self.role in CLAIMANT or self.leading is not None:
            self._still_ours(moved)
        elif moved:
            self.campaign.settled()
        self.campaign.consider()

    def _still_ours(self, moved: bool) -> None:
        if self.table.epoch != self.campaign.epoch:
            now = self.table.node_list[0] if self.table.node_list else "nobody"
            self.step_down("deposed", f"the znode names {now}, epoch {self.table.epoch.number}")
        elif self.leading is not None:
            self.leading.table_seen(moved)

    def _alive_changed(self, e: ev.AliveChanged) -> None:
        gone, dead = self.alive - e.members, (self.alive | self.answering) - (e.members | e.answering)
        self.alive = e.members
        self.answering = e.answering
        if self.me not in e.members and self.role not in OUT:
            self.step_down("offline", e.why)
            self.out.append(ev.StopReading())
        if self.table.active in dead:
            self.campaign.witnessed(e.why)
        if self.leading is not None:
            self.leading.members_changed(gone, e.why)
        self.campaign.alive_changed()
        self.campaign.consider()

    def _cas_done(self, e: ev.CasDone) -> None:
        if self.role is Role.CLAIMING:
            self.campaign.cas_done(e)
        elif self.leading is not None:
            self.leading.cas_done(e)

    def _of_lease(self, e: ev.Renewed | ev.SessionLost) -> None:
        if self.leading is not None:
            self.leading.lease.heard(e)
        elif isinstance(e, ev.SessionLost):
            self.campaign.session_lost = True

    # --- the log ---

    def _entries_read(self, e: ev.EntriesRead) -> None:
        for offset, data in e.entries:
            self._entry_read(offset, data)

    def _entry_read(self, offset: int, data: bytes) -> None:
        if self.role is Role.FAILED or offset < self.next_offset or self._unasked(offset):
            return
        held = self.held.find(data) if self.held.run else None
        record, hash_ = (held.record, held.digest) if held else (records.decode(data), digest(data))
        try:
            verdict = self.chain.read(record, hash_)
        except DivergedError as error:
            self.lost(error.message)
            return
        self.next_offset = offset + 1
        if verdict is Verdict.ACCEPTED:
            self._accepted(record, hash_)
        elif verdict is Verdict.OPENED:
            self.tail.opened(record.header.epoch)
            self.campaign.log.opened()
            self.following.shown = 0
            self._apply(self.merging.read(record))
        elif verdict is Verdict.SKIPPED:
            passed_over(self, record)
        elif verdict is not Verdict.HELD:  # which counts with another one, and is read again if this copy stops before
            passed_over(self, record)
            self._epoch_over()
            self.out.append(ev.Keep(self.chain.state, self.next_offset))
        if self.role in CLAIMANT:
            self.campaign.opening.read(record, verdict)
        elif self.role is Role.VERIFYING:
            self._leader().verified(record, verdict, offset)

    def _unasked(self, offset: int) -> bool:
        """The rest of a batch fetched before `StopReading`: the active learns these from its acknowledgements. What
        comes behind a dropped entry is dropped too, until a new `Read` brings that entry again: else a hole."""
        if (self.leading is not None and self.role is not Role.VERIFYING) or self.role is Role.OFFLINE:
            if self.dropped < self.next_offset:
                self.dropped = offset
            return True
        return self.next_offset <= self.dropped < offset

    def _accepted(self, record: records.Record, hash_: bytes) -> None:
        if self.role is Role.VERIFYING and self._leader().own_read(record, hash_):
            return
        if type(record) is records.Commit:
            self.outcomes.add(record.header.tx, record.header.lsn)
            self._apply(record)
        else:
            self._apply(meant := self.ledger.accepted(record, self.next_offset - 1))
            if type(meant) is DecidedTransaction and meant.commit is not None:
                self.outcomes.add(record.header.tx, record.header.lsn)
        if self.held.run:
            self.held.accepted(self.chain.state)
        if self.tail.run:
            self.tail.accepted(record)
        if type(record) is records.HandedOver:
            self.held.clear()
            self.predecessor.handed_over(record.header.epoch)
            self.campaign.handed_over()

    def _apply(self, record: Applied) -> None:
        """Records that came together, one behind the other, are applied together."""
        last = self.out[-1] if self.out else None
        if type(last) is ev.Apply and last.next_offset == self.next_offset - 1:
            last.records.append(record)
            last.state, last.next_offset = self.chain.state, self.next_offset
        else:
            self.out.append(ev.Apply([record], self.chain.state, self.next_offset))

    def lost(self, why: str) -> None:
        """This copy cannot go on. What it holds beyond its history may be nowhere else."""
        if self.role is Role.FAILED:
            return
        self._epoch_over()
        self.out.append(ev.Tell(COPY_STOPS, self.me.node, why))
        self.step_down("lost", why)
        self.out.append(ev.StopReading())
        self.campaign.release()
        self.out += self.tail.stopped()  # last: the disk may take its time, and be why this copy stops

    # --- writing ---

    def _leader(self) -> Leading:
        assert self.leading is not None, self.role
        return self.leading

    def _submitted(self, e: ev.Submitted) -> None:
        if self._is_for_now(e):
            self._leader().submit(e)

    def _is_for_now(self, e: ev.Submitted | ev.PrepareAsked) -> bool:
        """Does it concern the epoch that goes on here? Says so, if not."""
        number, serving = self.chain.state.epoch.number, self.serving
        if serving and (number == e.epoch or (number > e.epoch and not e.exact)):
            return True
        self.out.append(ev.Reply(e.token, self._not_serving(number if serving and number > e.epoch else 0)))
        return False

    def _vote_asked(self, e: ev.PrepareAsked | ev.DecideAsked | ev.MappingAsked) -> None:
        if not isinstance(e, ev.PrepareAsked) and not self.serving:
            self.out.append(ev.Reply(e.token, self._not_serving()))
        elif not isinstance(e, ev.PrepareAsked) or self._is_for_now(e):
            self._leader().votes.asked(e, self.now, self.out)
            self.tag = self._leader().writer.tag

    def _barrier_asked(self, e: ev.BarrierAsked) -> None:
        if self.serving:
            self._leader().barriers.asked(e.token)
        else:
            self.out.append(ev.Reply(e.token, self._not_serving()))

    def _not_serving(self, epoch: int = 0) -> ev.NotServing:
        active = self.table.active
        if active is None or active == self.me or active not in self.alive:
            return ev.NotServing(None, epoch)
        return ev.NotServing(active.node, epoch, self.table.epoch.number)

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
        elif self.role in (Role.STARTING, Role.OPENING):
            self.campaign.append_failed(e)

    def _hand_over_asked(self, e: ev.HandOverAsked) -> None:
        if self.role is Role.ACTIVE:
            self._leader().hand_over.begin(e)
        else:
            self.out.append(ev.Reply(e.token, self._not_serving()))

    def _log_answered(self, e: ev.LogAnswered) -> None:
        if self.leading is not None:
            self.leading.pace.answered(e)
        else:
            self.campaign.log.answered(e)

    # --- the rest ---

    def seal(self) -> None:
        """A position is about to be published, or stood on: nothing more of the epochs known now is held (E1)."""
        self.held.seal(max(self.table.epoch.number, self.chain.state.epoch.number))

    def _ticked(self, e: ev.Ticked) -> None:
        if e.wall_ahead_ms is not None:
            self.overrides.look(e.wall_ahead_ms)
        if self.discarded:
            self.out += self.discarded.certain(self.now, self.settings.discarded_ms, self.chain.state.led)
        if self.leading is not None:
            self.leading.ticked()
        else:
            self.campaign.ticked()
            self.merging.ticked()
            self.following.ticked()
