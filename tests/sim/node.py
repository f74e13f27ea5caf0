"""A node: a disk, and at most one process that drives the real core.

The process is what `halog.runtime` is in production, reduced to its obligations: effects are performed in order,
entries of an earlier `Read` are dropped, `Taken` is said behind a batch, the disk is written some time later, an epoch
keeps the session it began with, a request is let in for its epoch only. A paused process hears all when it wakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import ABSENT, Member
from halog.core.log import records
from halog.core.partition import Partition
from halog.core.roles import CLAIMANT, Role
from halog.core.state.copy_state import CopyState
from halog.core.table.tell import Tell
from tests.sim import lasting, late, pushed_store, stopping
from tests.sim.log import Reader, Session
from tests.sim.shown import Overlay
from tests.sim.store import Copy, Disk, one_by_one

if TYPE_CHECKING:
    from tests.sim.world import World

TICK_MS = 20.0


class Node:
    """A machine."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.incarnation = 0
        self.process: Process | None = None

    def start(self) -> None:
        assert self.process is None
        self.incarnation += 1
        self.process = Process(self)
        self.process.begin()

    def crash(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.die()
            self.process = None


class Watched(CopyState):
    """What a copy knows, reporting which edge of the table of roles it took."""

    process: Process

    def become(self, happening: str, why: str = "") -> None:
        before = self.role
        super().become(happening, why)
        self.process.changed_role(before, happening, why)


class Process:
    """One incarnation."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.world = node.world
        self.name = node.name
        self.me = Member(node.name, node.incarnation)
        self.skew = self.world.engine.rng.randrange(10_000)
        """Clocks are monotonic and nobody's equals another's."""
        self.rate = self.world.rate(self.me)
        """And where there are leases, or sites vote, they drift."""
        self.deaf = 0.0
        """How much later it hears what the log took."""
        self.unreached = False
        """Do clients pass it over?"""
        self.alive = True
        self.paused = False
        self.woke_leading = self.fresh = False
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.copy = Copy(node.disk)
        self.shown = Overlay()
        """What is visible, and not yet applied."""
        self.session: Session | None = None
        self.reader = Reader(self.world.log, self.entries)
        self.coordinator = self.world.coordinator.connect(self)
        self.end_at_start = len(self.world.log.entries)
        self.loaded = False
        self.opens_at = self.world.engine.now + stopping.opens_after(self)
        """It takes itself for up to date no earlier."""
        self.flushing = self.taking = self.pushing = self.polling = False
        self.reports: list[ev.Appended | ev.AppendFailed] = []
        self.pushes: deque[fx.Push] = deque()
        self.ticks = 0
        coordinator = self.world.coordinator
        state = Watched(
            self.me,
            coordinator.version,
            coordinator.table,
            node.disk.chain,
            node.disk.next_offset,
            self.copy.outcomes,
            self.world.settings,
            self.clock(),
            self.copy.ledger,
            stopping.brought_along(node),
        )
        state.process = self
        self.partition = Partition(state, lasting.ahead(self))
        self.world.checks.started(self)

    def clock(self) -> int:
        return int(self.world.engine.now * self.rate) + self.skew

    def begin(self) -> None:
        self.reader.follow(self.node.disk.next_offset)
        self.world.members.changed(self.me.node)
        self.world.members.started(self)
        self.world.engine.at(self.world.engine.rng.random() * TICK_MS, self._tick)
        self.world.upgrade.started(self)
        if self.reader.position >= self.end_at_start:
            self.world.engine.at(0.1, self._end_reached)

    def die(self) -> None:
        self.alive = False
        self.reader.close()
        if self.session is not None:
            self.session.abandon()
        self.world.coordinator.close(self.coordinator)

    # --- events ---

    def deliver(self, event: ev.Event) -> None:
        if isinstance(event, ev.Appended | ev.AppendFailed):
            self._report_soon(event)
        else:
            self._deliver(event)

    def _report_soon(self, event: ev.Appended | ev.AppendFailed) -> None:
        """Delivery reports wait for the next poll; what was acknowledged in a row is told at once."""
        last = self.reports[-1] if self.reports else None
        if (
            isinstance(last, ev.Appended)
            and isinstance(event, ev.Appended)
            and (event.tag, event.offset) == (last.tag + last.count, last.offset + last.count)
        ):
            self.reports[-1] = ev.Appended(last.tag, last.offset, last.count + 1)
        else:
            self.reports.append(event)
        if not self.polling:
            self.polling = True
            self.world.engine.at(self.deaf + self.world.nature.delay(self.world.nature.poll), self._report)

    def _report(self) -> None:
        self.polling = False
        reports = self.reports
        self.reports = []
        for event in reports:
            self.world.outages.heard(self, event)
            self._deliver(event)

    def _deliver(self, event: ev.Event) -> None:
        if self.paused:
            self.backlog.append((self._deliver, (event,)))
        elif self.alive:
            self._step(event)

    def entries(self, entries: list[tuple[int, bytes]], generation: int) -> None:
        if self.paused:
            self.backlog.append((self.entries, (entries, generation)))
        elif self.alive and generation == self.reader.generation:
            self._step(ev.EntriesRead(entries))
            self._taken_soon()
            if not self.loaded and entries[-1][0] + 1 >= self.end_at_start:
                self._end_reached()

    def _end_reached(self) -> None:
        if (wait := self.opens_at - self.world.engine.now) > 0.0:
            self.world.engine.at(wait, self._end_reached)
        elif not self.loaded:
            self.loaded = True
            self.deliver(ev.LogEnd())

    def _tick(self) -> None:
        if self.alive:
            self.ticks += 1
            if not self.paused:
                self._step(ev.Ticked(lasting.ahead(self)))
            self.world.engine.at(TICK_MS, self._tick)

    def pause(self) -> None:
        self.paused = True

    def wake(self) -> None:
        if not self.alive or not self.paused:
            return
        self.paused = False
        self.woke_leading = self.partition.leading is not None
        backlog = self.backlog
        self.backlog = []
        for fn, args in backlog:
            fn(*args)

    def submit(self, request: ev.Submitted | ev.PrepareAsked, epoch: int) -> None:
        """A client's request for the active of `epoch`; any other epoch is none of its business."""
        if self.paused:
            self.backlog.append((self.submit, (request, epoch)))
        elif self.alive and late.is_anothers(self, request, epoch):
            self.world.answer(self, request.token, res.InactiveCopy(None))
        elif self.alive:
            keys = [k for k, _ in request.reads] + [c.key for c in request.changes]
            found = {k: self.version(k) for k in keys}
            self._step(msgspec.structs.replace(request, found=found))

    def version(self, key: bytes) -> int:
        if (shown := self.shown.get(key)) is not None:
            return shown[0]
        held = self.copy.objects.get(key)
        return ABSENT if held is None else held[0]

    def value(self, key: bytes) -> bytes | None:
        if (shown := self.shown.get(key)) is not None:
            return shown[2]
        held = self.copy.objects.get(key)
        return None if held is None else held[1]

    def _step(self, event: ev.Event) -> None:
        holding = len(self.partition.state.held.run)
        effects = self.partition.step(event, self.clock())
        self._saw_held(event, holding)
        if self.world.engine.verbose:
            self.world.narrate(self, event, effects)
        for e in effects:
            self._perform(e)
        self.world.checks.stepped(self)

    # --- effects ---

    def _perform(self, e: fx.Effect) -> None:
        match e:
            case fx.Apply():
                self._apply(e)
            case fx.Append():
                self._append(e)
            case fx.Show():
                self.world.shown.show(self, e)
            case fx.Reply():
                self.world.checks.replied(self, e)
                self.world.answer(self, e.token, e.result)
            case fx.SendAck():
                if not e.applied:
                    self.world.checks.said_to_hold(self, e)
                self.world.checks.said_to_have(self, e)
                self.world.send(self.name, e.to, ev.ReplicaAck(self.me, e.epoch, e.lsn, e.applied, e.flushed, e.sealed))
            case fx.Push(data=b""):
                self.world.shown.tell(self, e)
            case fx.Push():
                self.pushes.append(e)
                self._push_soon()
            case fx.Keep():
                self.copy.keep(e.state, e.next_offset)
                self.world.checks.kept(self, e.state)
                self._flush_soon()
            case _:
                self._perform_rarely(e)

    def _apply(self, e: fx.Apply) -> None:
        if len(e.records) > 1:
            self.world.cover.hit(
                "appends acknowledged together" if self.partition.leading is not None else "read together"
            )
        self.world.stills.begin(self)
        for record, state, next_offset in one_by_one(e):
            self.world.stills.change(self, record)
            self.copy.apply(record, state, next_offset)
            self.world.shown.applied(self, record)
            self.world.stills.changed(self)
            self.world.checks.applied(self, record, state)
            if isinstance(record, records.Commit) and record.origin is not None:
                self.world.cover.hit("appended again")
        self.world.stills.end(self)
        self._flush_soon()

    def _perform_rarely(self, e: fx.Effect) -> None:
        match e:
            case fx.Read():
                self.reader.follow(e.offset)
            case fx.StopReading():
                self.reader.stop()
            case fx.SetTable():
                self.world.coordinator.set(self.coordinator, e)
            case fx.Renew():
                self.world.coordinator.confirm(self.coordinator, e)
            case fx.Refresh():
                self.world.coordinator.refresh(self.coordinator)
            case fx.AskPositions():
                for n in e.nodes:
                    self.world.send(self.name, n, ev.PositionAsked(self.name, e.round))
            case fx.TellPosition():
                self.world.checks.published(self)
                told = ev.PositionTold(self.name, e.round, e.position, e.eligible, self.me.incarnation, e.tail, e.stood)
                self.world.send(self.name, e.node, told)
            case fx.EndSession():
                self._end_session(e.why)
            case _:
                self._observe(e)

    def _observe(self, e: fx.Effect) -> None:
        if isinstance(e, fx.RoleChanged):
            self._role_changed(e.role)
        elif isinstance(e, fx.Save):
            pushed_store.saved(self, flush=e.flush)
            self.world.checks.stored(self, e)
            self.world.cover.hit("stored, then acknowledged")
        elif isinstance(e, fx.Flush):
            self.copy.flush()
            pushed_store.then(self, ev.Flushed(e.lsn))
        elif isinstance(e, fx.StorePushed | fx.Stand):
            pushed_store.perform(self, e)
        elif isinstance(e, fx.AskFlush):
            for n in e.to:
                self.world.send(self.name, n, ev.FlushAsked(self.me, e.epoch, e.lsn))
        elif isinstance(e, fx.AskLog | fx.LevelStands):
            self._tell_servers(e)
        elif isinstance(e, fx.Spread | fx.AskDecision | fx.MergeDue | fx.AskVote):
            self.world.asked_for(self, e)
        elif isinstance(e, Tell):
            self.world.checks.told_of(self, e)
            self.world.cover.hit("silent replica left" if "acknowledged nothing" in e.cause else e.kind.name)

    def _tell_servers(self, e: fx.AskLog | fx.LevelStands) -> None:
        if isinstance(e, fx.LevelStands):
            self.world.upgrade.read(self, e)
        else:
            self.world.outages.asked(self, e)
            self.world.log.ask(self, e.round)

    def _append(self, e: fx.Append) -> None:
        assert self.session is not None, "W1: an epoch appends under the session it began with"
        self.session.append(e.tag, e.data)

    def _role_changed(self, role: str) -> None:
        """An epoch that begins takes a session that works, and keeps it to its end (W1)."""
        if role == Role.STARTING.value and (self.session is None or self.session.failed):
            self.session = self.world.log.session(f"{self.me.node}/{self.me.incarnation}", self.deliver)

    def _end_session(self, why: str) -> None:
        if self.session is not None:
            self.session.abandon()
            self.session = None
            self.world.engine.at(0.0, self.deliver, ev.AppendFailed(-1, why))

    def _flush_soon(self) -> None:
        if not self.flushing:
            self.flushing = True
            self.world.engine.at(self.world.nature.delay(self.world.nature.flush), self._flush)

    def _flush(self) -> None:
        self.flushing = False
        if self.alive and self.paused:
            self._flush_soon()
        elif self.alive:
            self.copy.flush()

    def _push_soon(self) -> None:
        if not self.pushing:
            self.pushing = True
            self.world.engine.at(self.world.nature.delay(self.world.nature.push), self._push)

    def _push(self) -> None:
        """What was collected for the same nodes in the same epoch travels in one frame."""
        self.pushing = False
        while self.alive and not self.paused and self.pushes:
            to, epoch = self.pushes[0].to, self.pushes[0].epoch
            datas, shown = [], 0
            while self.pushes and (self.pushes[0].to, self.pushes[0].epoch) == (to, epoch):
                push = self.pushes.popleft()
                datas.append(push.data)
                shown = push.shown
            frame = ev.Pushed(self.me, epoch, tuple(datas), shown)
            self.world.pushed.append(frame)
            for n in to:
                self.world.send(self.name, n, frame)
        if self.pushes:
            self._push_soon()

    def _taken_soon(self) -> None:
        if not self.taking:
            self.taking = True
            self.world.engine.at(self.world.nature.delay(self.world.nature.take), self._taken)

    def _taken(self) -> None:
        self.taking = False
        self.deliver(ev.Taken())

    # --- what was seen ---

    def _saw_held(self, event: ev.Event, before: int) -> None:
        cover, now = self.world.cover, len(self.partition.state.held.run)
        if isinstance(event, ev.Pushed) and event.records:
            cover.hit("push held" if now > before else "push refused")
        elif now < before - 1:
            cover.hit("held forgotten")

    def changed_role(self, before: Role, happening: str, why: str) -> None:
        cover = self.world.cover
        cover.edge(before, happening)
        if happening == "epoch ended":
            self.world.outages.epoch_ended(self, why)
        if happening == "opened":
            cover.hit("elections")
        elif happening == "deposed" and before not in CLAIMANT:
            cover.hit("fenced by gap" if before is Role.VERIFYING else "deposed by the znode")
            if self.woke_leading:
                cover.hit("zombie woke up deposed")
        if before in CLAIMANT or before in (Role.ACTIVE, Role.VERIFYING, Role.DRAINING, Role.HANDING):
            self.woke_leading = self.woke_leading and self.partition.leading is not None
