"""This module drives one partition's copy: it posts events to the core and performs its effects, in order, under one
lock.

Events raised while effects are performed wait in the inbox, and answers leave after the lock is released. Entries of
the log come in batches, each followed by its acknowledgement; the store is written behind them (`tick`). This module
decides nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from halog.backend import Work
from halog.core import effects as fx, events as ev, results as res
from halog.core.durability import Durability
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import Ledger
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.state.copy_state import CopyState
from halog.core.state.tail import Tail
from halog.core.table.table import ASYNC, PartitionTable
from halog.core.table.tell import Tell
from halog.errors import HalogError, LaterRecordError, LogError, StoreError
from halog.events import COPY_STOPS, LATER_RECORD
from halog.ports import Entry, LogSession, TopicPartition
from halog.runtime.replica.consistency import Consistency
from halog.runtime.replica.delivery_reports import ReportDuty
from halog.runtime.replica.disk_effects import DiskEffects
from halog.runtime.replica.host_port import CopyPolicy, HostPort
from halog.runtime.replica.object_count import ObjectCount
from halog.runtime.replica.presented import presented
from halog.runtime.replica.reader import CopyReader
from halog.runtime.replica.reports import Report, events_of
from halog.runtime.replica.requests import Answer, tell_all as _tell
from halog.runtime.rpc.errors import ours
from halog.runtime.store import unlogged_tail as left
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.support.clock import monotonic_ms, wall_ahead_ms

logger = logging.getLogger("halog.partition")


class Copy(CopyReader):
    """A `Copy` drives one partition on this node."""

    def __init__(self, node: HostPort, version: int, table: PartitionTable) -> None:
        lock = threading.RLock()
        super().__init__(table.name, ObjectTable(node.store, bytes.fromhex(table.log_id), lock), lock)
        self.node = node
        self.tally = ObjectCount(self.objects)
        self.consistency = Consistency(table.name, self.objects)
        self.tp = TopicPartition(table.topic, table.index)
        self.error: LogError | StoreError | None = None
        self.session: LogSession | None = None
        self.answers: dict[int, Answer] = {}
        self.appended = self.awaited = self.delivered = 0
        """Tags of the last append, of the last one that somebody waits for, and of the last delivery report."""
        self._reports: deque[Report] = deque()
        """Delivery reports not yet given to the core."""
        self._reporting = ReportDuty.KEPT
        """Who runs the delivery report of what is appended now."""
        self._table = (version, table)
        self._policy = node.policies.get(table.policy, CopyPolicy())
        self.keeps_before = self._policy.before_images
        self.early = self._policy.local_sync is Sync.NO_SYNC
        """Are commits answered by the replicas rather than by the log?"""
        self._unstorable = False
        self._token = 0
        self.ended = False
        """Is it hosted here no more? Then nothing reaches its core."""
        self._inbox: deque[ev.Event] = deque()
        self._busy = False
        self.began_at = 0
        """The log offset this run of the copy went on from: beyond 0 a store or a snapshot spared it the rest."""
        self._due: list[tuple[Answer, res.Result]] = []
        self._afters: list[tuple[Answer, res.Result]] = []
        self._end = 0
        self._performers = self._performing(node, DiskEffects(self))

    def _performing(self, node: HostPort, on_disk: DiskEffects) -> dict[type[Any], Callable[[Any], None]]:
        """Return who performs which effect."""
        return {
            fx.Append: self._append,
            fx.EndSession: self._end_session,
            fx.Read: lambda e: node.follow(self.tp, e.offset),
            fx.StopReading: lambda e: node.unfollow(self.tp),
            fx.Apply: self._take,
            fx.Show: self._show,
            fx.Keep: lambda e: self.objects.keep(e.state, e.next_offset),
            fx.KeepTail: lambda e: left.leave(self.objects, self.name, e.records),
            fx.Save: lambda e: self.objects.save(flush=e.flush),
            fx.Flush: on_disk.flush,
            fx.StorePushed: on_disk.store_pushed,
            fx.Stand: self.objects.pushed.stand,
            fx.Reply: self._reply,
            fx.SetTable: lambda e: node.set_table(self, e),
            fx.Renew: lambda e: node.renew_lease(self, e),
            fx.AskVote: lambda e: node.ask_vote(self, e),
            fx.AskLog: lambda e: node.ask_log(self, e),
            fx.Refresh: lambda e: node.refresh_table(self),
            fx.AskPositions: lambda e: node.ask_positions(self.name, e.round, e.nodes),
            fx.TellPosition: lambda e: node.tell_position(self.name, e),
            fx.SendAck: lambda e: node.send_ack(self.name, e),
            fx.AskFlush: lambda e: node.ask_flush(self.name, e),
            fx.Spread: lambda e: node.spread(self, e),
            fx.AskDecision: lambda e: node.ask_decision(self, e),
            fx.Push: lambda e: node.push(self.name, e),
            fx.MergeDue: lambda e: node.merge_due(self, e),
            fx.RoleChanged: self._role_changed,
            Tell: self._tell,
        }

    def start(
        self,
        state: ChainState,
        next_offset: int,
        outcomes: Outcomes,
        last_offset: int,
        end: int,
        before: Tail | None = None,
        *,
        unread: bool = False,
    ) -> None:
        """Begin at a position of the log; `end` is where it ended a moment ago. `before` is what a dropped copy held in
        whose place this one is: to the others it is the same holder (S5). `unread`: a later version of halog wrote some
        of what the store has; the copy is kept, and is to `fail`."""
        settings = msgspec.structs.replace(
            self.node.settings,
            local_sync=self._policy.local_sync,
            remote_sync=self._policy.remote_sync,
            lease_ms=self._policy.lease_ms,
            sites=self._policy.sites,
            votes=self._policy.votes,
            before_images=self.keeps_before,
            **self._policy.times,
        )
        with self.lock:
            self._end = end
            self.began_at = next_offset
            ledger, now = Ledger() if unread else self.objects.load_ledger(), monotonic_ms()
            tail = left.unread(self.objects) if unread else left.found(self.objects, state)
            if before is not None:
                left.carry_over(before, tail, self.objects, self.name, state)
            self.objects.begin(outcomes, last_offset, ledger)
            known = CopyState(self.node.me, *self._table, state, next_offset, outcomes, settings, now, ledger, tail)
            self.core = Partition(known, wall_ahead_ms())
            self.node.follow(self.tp, next_offset)
            self._loaded()

    def restore(self, end: int) -> None:
        """Take part again once everything below `end`, where the log ends, is here: the node is back in its zones'
        quorums."""
        with self.lock:
            self._end = end
            self.post(ev.Restored())
            self._loaded()

    # --- events ---

    def post(self, event: ev.Event) -> None:
        """Give the core an event and do what it asks. Any thread."""
        with self.lock:
            self._post_safely(event)
            due = self._take_due()
        _tell(due)

    def _post_safely(self, event: ev.Event) -> None:
        try:
            self._post(event)
        except (LogError, StoreError) as error:
            self._stop(error)

    def _post(self, event: ev.Event) -> None:
        if self.ended:
            self._dismiss(res.InactiveCopy(None))
            return
        (inbox := self._inbox).append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while (
                inbox
            ):  # each with a time read after it: a process that was stopped in between must not use an older one
                for effect in self.core.step(inbox.popleft(), monotonic_ms()):
                    self._perform(effect)
        finally:
            self._busy = False

    def _perform(self, effect: fx.Effect) -> None:
        """Carry out one effect. Core and world must not part: an effect that cannot be performed, for whatever reason,
        ends this copy."""
        try:
            self._performers[type(effect)](effect)
        except Exception as error:
            raise ours(error, type(effect).__name__) from error

    def read(self, entries: Sequence[Entry]) -> None:
        """Take a run of log entries, then acknowledge them."""
        with self.lock:
            self._batch((ev.EntriesRead([(e.offset, e.value) for e in entries]), ev.Taken()))
            self._loaded()
            due = self._take_due()
        _tell(due)

    def take_reports(self) -> None:
        """Take delivery reports that came together, then give the answers they led to."""
        if not self._reports:
            return  # taken with an earlier one
        with self.lock:
            self._batch(events_of(self._reports))
            due = self._take_due()
        _tell(due)

    def _batch(self, events: Iterable[ev.Event]) -> None:
        try:
            for event in events:
                self._post(event)
            if self.objects.overfull:
                self.objects.save()
        except Exception as error:
            self._stop(ours(error, "a batch"))
        self.progress.notify_all()

    def tick(self) -> None:
        """Let the core look at its deadlines: time passes."""
        self.named.sweep()
        self.post(ev.Ticked(wall_ahead_ms()))

    def leave(self) -> None:
        """Leave, since the node closes: store what was taken, and tell whoever still waits that no answer will come.
        Appends may still fail with their session after that: then nothing is done."""
        self.save()
        with self.lock:
            self.ended = True
            self._dismiss(res.Unknown("the node closed before the answer came"))
            due = self._take_due()
        _tell(due)

    def _dismiss(self, result: res.Result) -> None:
        left = self.answers
        self.answers = {}
        self._due += [(answer, result) for answer in left.values()]

    def save(self) -> None:
        """Store what was taken. A store that fails ends this copy."""
        if self.objects.unsaved and not self._unstorable:
            with self.lock:
                try:
                    self.objects.save()
                except Exception as error:
                    self._unstorable = True
                    self._stop(ours(error, "the store's write"))

    def _loaded(self) -> None:
        if self.core.state.role is Role.LOADING and self.core.state.next_offset >= self._end:
            self.objects.state_hash.settle()
            self._post_safely(ev.LogEnd())

    def fail(self, error: LogError | StoreError) -> None:
        """Stop this copy: what it must read cannot be read."""
        with self.lock:
            self._stop(error)

    def _stop(self, error: LogError | StoreError) -> None:
        """Stop this copy, which cannot go on: say so once, and take no further part."""
        self.error = error
        self.node.states.pop(self.name, None)
        logger.error("partition %s stops: %s", self.name, error)
        self._inbox.clear()
        try:
            self._post(ev.LogLost(str(error), later=isinstance(error, LaterRecordError)))
        except (LogError, StoreError):
            logger.exception("partition %s could not even stop in order", self.name)

    # --- effects ---

    def _append(self, e: fx.Append) -> None:
        session = self.session
        assert session is not None

        def done(offset: int | None, why: str | None) -> None:
            self._reports.append((e.tag, offset, why))
            self.delivered = e.tag
            self.node.reported(self)

        try:
            session.append(self.tp, e.data, done, patience_s=e.patience_ms / 1000)
        except HalogError as error:  # the core counts on this record: without it the epoch is over
            self._inbox.append(ev.AppendFailed(e.tag, str(error)))
            return
        self.appended = e.tag
        if self._reporting is not ReportDuty.LATER:
            self.awaited = e.tag
        if self._reporting is not ReportDuty.CALLER:
            self.node.expect_delivery(soon=self._reporting is ReportDuty.LATER)

    def _end_session(self, e: fx.EndSession) -> None:
        if self.session is not None:
            self.node.end_session(self.session, e.why)

    def _take(self, e: fx.Apply) -> None:
        serving = self.node.states.pop(self.name, None)  # absent while the objects change
        core = self.core
        self.objects.moments.begin()
        try:
            if core.state.table.kind_of(core.state.me) == ASYNC:
                self.consistency.check(e.records, replayed=core.state.role is Role.LOADING)
            self.objects.take(e.records, e.state, e.next_offset)
        finally:
            self.objects.moments.end()
        self.tally.took(e.records)
        if serving is not None:
            self.node.states[self.name] = object()

    def _show(self, e: fx.Show) -> None:
        serving = self.node.states.pop(self.name, None)
        self.objects.show_early(e.records, lost_with_active=not self.early)
        if serving is not None:
            self.node.states[self.name] = object()
        self.progress.notify_all()

    def _reply(self, e: fx.Reply) -> None:
        answer = self.answers.pop(e.token, None)
        if answer is not None:
            self._due.append((answer, e.result))

    def _role_changed(self, e: fx.RoleChanged) -> None:
        if self.serving and e.role == self.core.state.role.value:
            self.node.states[self.name] = object()
        else:
            self.node.states.pop(self.name, None)
            self.tally.forget()
        if e.role == Role.STARTING.value:
            self.session = self.node.current_session()
        elif e.role == Role.FOLLOWING.value:
            self.delivered = self.awaited = self.appended  # nobody polls for what is still under way
        self.node.role_changed(self, e.role, e.why)

    def _tell(self, e: Tell) -> None:
        if e.kind is LATER_RECORD and self.error is None:  # no rebuild would bring it further
            self.error = LaterRecordError(e.cause)
            self.node.states.pop(self.name, None)
        self.node.told(self, e)
        if e.kind is COPY_STOPS and self.error is None:
            self.node.lost(self, e.cause)

    # --- what the node asks ---

    def _expect(self, answer: Answer) -> int:
        self._token += 1
        self.answers[self._token] = answer
        return self._token

    def answers_early(self, durability: Durability | None) -> bool:
        """Say whether a commit that asks for this durability is answered by the replicas rather than by the log."""
        return self.early or (durability is not None and durability.early)

    def submit(self, tx: bytes, work: Work, answer: Answer, epoch: int = 0, *, exact: bool = False) -> int:
        """Ask to commit, knowing of `epoch`; `exact`: only in that one. `answer` is called once, on any thread. Returns
        the tag of the append, whose delivery report the caller runs (`DeliveryReports.follow`). 0: there is none, or
        the replicas answer it."""
        durability = work.durability
        with self.lock:
            changes, found = presented(work, self.objects, keeps_before=self.keeps_before)
            token, mapping = self._expect(answer), work.mapping
            asked = ev.Submitted(token, tx, work.reads, changes, found, epoch, durability, mapping, exact)
            tag = self._ask(asked, served=not self.answers_early(durability))
            due = self._take_due()
        _tell(due)
        return tag

    def barrier(self, answer: Answer) -> int:
        """Ask for the lsn that reads must have to miss nothing answered before now (R5). Returns as `submit` does."""
        return self.question(answer, ev.BarrierAsked, served=not self.early)

    def ask_outcome(self, tx: bytes, attempt: int, answer: Answer) -> None:
        """Ask what became of a transaction."""
        self.question(answer, lambda token: ev.Asked(token, tx, attempt), served=False)

    def question(self, answer: Answer, asked: Callable[[int], ev.Event], *, served: bool) -> int:
        """Ask the core with a token of its own; `asked` is called with the lock held. Returns as `submit` does."""
        with self.lock:
            tag = self._ask(asked(self._expect(answer)), served=served)
            due = self._take_due()
        _tell(due)
        return tag

    def question_later(self, answer: Answer, asked: Callable[[int], ev.Event]) -> bool:
        """Ask the same, in no hurry. Returns False, and asks nothing, if the lock would have to be waited for."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._ask(asked(self._expect(answer)), served=False, later=True)
            due = self._take_due()
        finally:
            self.lock.release()
        _tell(due)
        return True

    def after(self, action: Callable[[], None]) -> None:
        """Do `action` on this thread, once the lock is released and all answers are given. Called with the lock
        held."""
        self._afters.append((lambda _: action(), res.Success(0)))

    def _take_due(self) -> list[tuple[Answer, res.Result]]:
        """Return what is to be done once the lock is released."""
        due = self._due
        self._due = []
        if self._afters:
            due += self._afters
            self._afters = []
        return due

    def _ask(self, event: ev.Event, *, served: bool, later: bool = False) -> int:
        """Give the core an event that may lead to an append. Returns its tag if the caller polls for it (`served`),
        else 0."""
        before = self.appended
        self._reporting = ReportDuty.CALLER if served else ReportDuty.LATER if later else ReportDuty.KEPT
        try:
            self._post_safely(event)
        finally:
            self._reporting = ReportDuty.KEPT
        return self.appended if served and self.appended > before else 0

    def hand_over(self, to: str, answer: Answer, why: str) -> None:
        """Make `to` active; the event history tells `why`."""
        with self.lock:
            token = self._expect(answer)
        self.post(ev.HandOverAsked(token, to, why))
