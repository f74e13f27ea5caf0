"""A `Host` is the hosting half of a node: its copies, one producer session, one tail of the log, and their threads.

All copies share the session (rule W1 allows it: its end ends every epoch that writes through it) and the tail, so that
both are warm when a partition fails over. Each epoch is bound to the session it began with. This module moves events
and effects; it decides nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.settings import Settings
from halog.core.table.tell import Tell
from halog.errors import CoordinatorError, HalogError, VersionError
from halog.ports import Log, LogSession, LogTail, TopicPartition, UnknownResult
from halog.runtime.events.reporter import EventReporter
from halog.runtime.host.assignment import CopyPlacement
from halog.runtime.host.control_frames import Control
from halog.runtime.host.lease_renewal import LeaseRenewal
from halog.runtime.host.level_feed import LevelFeed
from halog.runtime.host.log_probe import ASKERS, LogQuestions
from halog.runtime.host.log_reader import LogReader
from halog.runtime.host.log_tails import Tails
from halog.runtime.host.override_expiry import OverrideExpiry
from halog.runtime.host.producer import Producer
from halog.runtime.host.push_batches import Pushes
from halog.runtime.host.services import CopyRequests, NodeContext, TableFeed
from halog.runtime.host.snapshotter import Snapshots
from halog.runtime.host.table_refresh import TableRefresh
from halog.runtime.host.threads import HostThreads
from halog.runtime.host.throttle import ReadPace
from halog.runtime.membership.members import Membership
from halog.runtime.replica.delivery_reports import SOON_S, DeliveryReports
from halog.runtime.replica.disk_effects import Disk
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.host_port import CopyPolicy
from halog.runtime.rpc import frames
from halog.runtime.store.flusher import FlushedStore

logger = logging.getLogger("halog.host")

Ack = tuple[str, fx.SendAck]
"""Partition, epoch, lsn, applied, flushed."""

SNAPSHOT_CHECK_S = 0.5
"""How often each copy is looked at for a snapshot that is due."""

TICK_S = 0.02
"""Deadlines are in tens of ms; a tick costs about 3 µs a copy."""

SAVE_TICKS = 5
"""The store is given what was taken every so many ticks (100 ms): a write costs tens of µs, however little is in it,
and what is not stored is in the log."""


class OutcomeDelivery(Protocol):
    """Carries decisions between partitions, of transactions over several of them (T3-T6)."""

    def spread(self, copy: Copy, e: fx.Spread) -> None:
        """Tell each of the participants."""

    def ask_decision(self, copy: Copy, e: fx.AskDecision) -> None:
        """Ask the first partition to abort it, or what it has decided."""

    def close(self) -> None:
        """Whoever comes next asks again."""


def _told_nobody(partition: str, role: str) -> None:
    """Nobody is told of roles."""


class Host:
    """A `Host` is the hosting half of a node; it implements what copies ask of their surroundings."""

    members: Membership
    """Who is up. It is known from `start` on, as is `_tail`."""
    _tail: Tails

    def __init__(
        self,
        context: NodeContext,
        settings: Settings,
        policies: Mapping[str, CopyPolicy],
        log: Log,
        store: FlushedStore,
        tables: TableFeed,
        snapshots: Snapshots,
        telling: EventReporter,
        settling: OutcomeDelivery,
        requests: CopyRequests,
        roles_seen: Callable[[str, str], None] = _told_nobody,
    ) -> None:
        """Take what it stands on. `requests` answers what copies ask of features. `roles_seen` is told of every change
        of a copy's role: (partition, role)."""
        self.me = context.me
        self.site = context.site
        self.settings = settings
        self.policies = policies
        self.log = log
        self.coordinator = coordinator = context.coordinator
        self.store = store
        self.router = tables.router
        self.tables = tables
        self.table_seen = tables.seen
        self.snapshots = snapshots
        self.telling = telling
        self.copies = tables.copies
        self._closing = context.closing
        self.threads = HostThreads(context.closing)
        self.run = self.threads.run
        self.spawn = self.threads.spawn
        self.keep_on = self.threads.keep_on
        self.by_tp: dict[TopicPartition, Copy] = {}
        self.states: dict[str, object] = {}
        self.control = Control(self.copies).take
        self.leasing = LeaseRenewal(coordinator, self.copies, self.run)
        self.producer = Producer(log, self.threads, context.closing, self._ended)
        self.log_questions = LogQuestions(log.bounds, self.producer.is_whole, telling.of_log)
        self.ask_log = self.log_questions.ask
        self._settling = settling
        self.spread = settling.spread
        self.ask_decision = settling.ask_decision
        self.pacing = ReadPace(self)
        self.levels = LevelFeed(coordinator, self.hosted)
        self.placing = CopyPlacement(self)
        self.disk = Disk(store)
        self.merge_due = requests.merge_due
        self.ask_vote = requests.ask_vote
        self.to_stir: list[Callable[[], None]] = []
        """Called after each batch of the log that was read."""
        self._roles_seen = roles_seen
        self._refreshing = TableRefresh(coordinator, self.table_seen)
        self._tails_made: list[Future[LogTail]] = []
        self._ticks = 0
        self._collecting = threading.local()
        """`acks`: of a thread that sends acknowledgements to the same node together."""
        self.pause = context.pause
        self._pushes = Pushes(lambda node, frame: self.members.offer(node, frame), settings.max_record_bytes)
        self.deliveries = DeliveryReports(self.producer.session, self.hosted, self._pushes.flush, self.end_session)

    # --- life ---

    def prepare(self) -> None:
        """Begin to make what takes as long as the rest of joining and does not need it. Whoever leaves early does not
        wait for it: the log may never answer."""
        for patient in (False, True):
            made: Future[LogTail] = Future()
            self._tails_made.append(made)
            make = partial(self.log.tail, patient=patient)
            threading.Thread(target=_make, args=(made, make), name="halog-tail-made", daemon=True).start()

    def start(self, members: Membership) -> None:
        """Start the threads, once the topics exist, behind `prepare`; copies are added one by one."""
        self.members = members
        self.producer.start()
        self._tail = Tails(*(made.result() for made in self._tails_made))
        overrides = OverrideExpiry(self.coordinator, self.hosted)
        prompt = LogReader(self._tail.prompt, self.by_tp.get, self._batch_read)
        self.keep_on("tail", prompt.turn)
        for name, turn in (
            ("deliveries", lambda: self.deliveries.run(self._closing)),
            ("patient-tail", LogReader(self._tail.patient, self.by_tp.get, self._batch_read).turn),
            ("members", lambda: members.turn(self._closing, TICK_S)),
            ("ticks", self._tick),
            ("snapshots", self._take_snapshots),
            ("flushes", self.store.run),
            ("refresh", lambda: self._refreshing.turn(self._closing)),
            ("overrides", lambda: overrides.turn(self._closing)),
            ("levels", lambda: self.levels.turn(self._closing)),
            ("placing", lambda: self.placing.turn(self._closing)),
            *((f"log-asked-{i}", lambda: self.log_questions.turn(self._closing)) for i in range(ASKERS)),
        ):
            self.keep_on(name, turn)

    def close(self) -> None:
        """Stop the threads; nothing is handed over here."""
        self._closing.set()
        self.states.clear()
        self.store.wake()
        self.placing.stir()
        self.threads.close()
        self.disk.close()
        self._settling.close()
        self.snapshots.close()
        for copy in self.copies.values():
            copy.leave()
        self.store.end()
        if self.threads.started:
            self._tail.close()
            self.producer.session().abandon()
            self.deliveries.flush()
        else:
            for made in self._tails_made:
                made.add_done_callback(_close)

    # --- threads ---

    def _take_snapshots(self) -> None:
        if not self._closing.wait(SNAPSHOT_CHECK_S):
            self.snapshots.tend(self.hosted())

    def _tick(self) -> None:
        if not self._closing.wait(TICK_S):
            self._ticks += 1
            saves = self._ticks % SAVE_TICKS == 0
            for copy in self.hosted():
                try:
                    copy.tick()
                    self._tail.place(copy)
                    if saves:
                        copy.save()
                except Exception:  # of this copy only
                    logger.exception("partition %s goes on after an error", copy.name)
            self.flush_acks()
            self._pushes.flush()  # what no record goes with

    # --- what copies ask ---

    def hosted(self) -> list[Copy]:
        """Return the copies that are here now."""
        return list(self.copies.values())

    def level_stands(self, level: int) -> None:
        self.levels.stands(level)

    def renew_lease(self, copy: Copy, effect: fx.Renew) -> None:
        self.leasing.renew(copy, effect)

    def current_session(self) -> LogSession:
        return self.producer.session()

    def end_session(self, session: LogSession, why: str) -> None:
        self.producer.end(session, why)

    def expect_delivery(self, *, soon: bool) -> None:
        self.deliveries.expect(SOON_S if soon else 0.0)

    def reported(self, copy: Copy) -> None:
        self.deliveries.reported(copy)

    def _ended(self, session: LogSession, why: str) -> None:
        session.abandon()
        self.deliveries.flush()
        for copy in self.hosted():
            if copy.session is session:
                copy.post(ev.AppendFailed(-1, why))

    @property
    def followed(self) -> Tails:
        """Return what tells its copies of the log."""
        return self._tail

    def follow(self, tp: TopicPartition, offset: int) -> None:
        self._tail.follow(tp, offset)

    def unfollow(self, tp: TopicPartition) -> None:
        self._tail.unfollow(tp)

    def set_table(self, copy: Copy, effect: fx.SetTable) -> None:
        self.run(lambda: self._set_table(copy, effect))

    def _set_table(self, copy: Copy, effect: fx.SetTable) -> None:
        try:
            version = self.coordinator.set(f"partitions/{copy.name}", effect.table.to_bytes(), effect.version)
        except VersionError:
            copy.post(ev.CasDone(effect.round, ev.Cas.CONFLICT))
        except (UnknownResult, CoordinatorError, HalogError):
            copy.post(ev.CasDone(effect.round, ev.Cas.UNKNOWN))
        else:
            copy.post(ev.CasDone(effect.round, ev.Cas.OK, version))
            self.router.table_seen(copy.name, version, effect.table)

    def refresh_table(self, copy: Copy) -> None:
        self._refreshing.ask(copy.name)

    def alive_changed(self, members: frozenset[Member], why: str) -> None:
        """The members this node believes to be up changed."""
        for copy in self.hosted():
            copy.post(ev.AliveChanged(members, why, self.members.answering))
        self.router.nudge()

    def ask_positions(self, partition: str, round_: int, nodes: Sequence[str]) -> None:
        frame = frames.encode(frames.AskPosition(partition, round_))
        for node in nodes:
            self.members.send(node, frame)

    def tell_position(self, partition: str, effect: fx.TellPosition) -> None:
        frame = frames.PositionReply(
            partition, effect.round, effect.position, effect.eligible, effect.tail, effect.stood
        )
        self.members.send(effect.node, frames.encode(frame))

    def push(self, partition: str, effect: fx.Push) -> None:
        self._pushes.add(partition, effect)

    def send_ack(self, partition: str, effect: fx.SendAck) -> None:
        """Acknowledgements found while a batch of the log is read, or in one tick, leave in one frame at its end."""
        item = (partition, effect)
        acks: dict[str, list[Ack]] | None = getattr(self._collecting, "acks", None)
        if acks is not None:
            acks.setdefault(effect.to, []).append(item)
        else:
            self.members.send(effect.to, frames.encode(_acks([item])))

    def ask_flush(self, partition: str, effect: fx.AskFlush) -> None:
        frame = frames.encode(frames.FlushRequest(partition, effect.epoch, effect.lsn))
        for node in effect.to:
            self.members.send(node, frame)

    def _batch_read(self) -> None:
        self.flush_acks()
        for stir in self.to_stir:
            stir()

    def flush_acks(self) -> None:
        """Send what a thread found while it read a batch."""
        due: dict[str, list[Ack]] = getattr(self._collecting, "acks", {})
        self._collecting.acks = {}
        for to, items in due.items():
            self.members.send(to, frames.encode(_acks(items)))

    def role_changed(self, copy: Copy, role: str, why: str) -> None:
        logger.info("partition %s: %s (%s)", copy.name, role, why)
        if role in _STANDING:
            self._tail.hurry(copy)
        self.telling.role_changed(copy, role, why)
        self._roles_seen(copy.name, role)
        self.router.nudge()

    def told(self, copy: Copy, effect: Tell) -> None:
        self.telling.told(copy, effect)

    def lost(self, copy: Copy, why: str) -> None:
        self.placing.lost(copy, why)

    def tails(self) -> dict[str, int]:
        """Last committed lsn of every partition this node is active for."""
        return {c.name: c.core.state.chain.state.lsn for c in self.hosted() if c.serving}


_STANDING = (Role.ELECTING.value, Role.CLAIMING.value)


def _make(made: Future[LogTail], make: Callable[[], LogTail]) -> None:
    try:
        made.set_result(make())
    except BaseException as e:
        made.set_exception(e)


def _close(made: Future[LogTail]) -> None:
    if made.exception() is None:
        made.result().close()


def _acks(items: list[Ack]) -> frames.Acks:
    return frames.Acks(
        [(partition, e.epoch, e.lsn, e.applied, e.flushed) for partition, e in items],
        [(partition, e.epoch) for partition, e in items if e.sealed],
    )
