"""A partition of one node whose commits wait for the log of another site, played by chance: lines that are cut, answers
that are late, doubled or lost, epochs that end, operators, a takeover that comes to nothing. What is mirrored, and what
is told of it, the real `Mirror` and `AcknowledgementSender` say. After each step it is looked whether what somebody was
told is in that log, as long as the znode says that it is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import EpochId, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.outcomes import Outcomes
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.settings import Settings, Sites
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.core.state.copy_state import CopyState
from halog.ports import TopicPartition
from halog.runtime.sites.acknowledgements import AcknowledgementSender
from tests.unit.core.kit import LOG_ID, SITE, A, create, table, tx

STEPS = 400
AWAY_MS = 400
EAST = "east"


class BrokenError(Exception):
    """A promise was not kept."""


class World:
    """The node, the log of its site, the znode, and how far the other site's log has it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.strict = self.chance.random() < 0.5
        settings = Settings(
            sites=Sites((EAST,), strict=self.strict, away_ms=AWAY_MS),
            start_grace_ms=0,
            first_election_ms=10,
            ready_lag=self.chance.choice((2, 1_000)),
        )
        self.now = 10_000
        self.version = 0
        self.table = table(sync=0, configured=("A",))
        self.p = Partition(CopyState(A, 0, self.table, ChainState(LOG_ID, SITE), 0, Outcomes(), settings, self.now))
        self.log: list[bytes] = []
        self.appends: list[fx.Append] = []
        self.sets: list[fx.SetTable] = []
        self.late: list[ev.SiteAck] = []
        self.there = Chain(ChainState(LOG_ID, EAST, owner=SITE))
        """What the other site's log has accepted."""
        self.mirror = self._mirror()
        self.confirming = self._confirming()
        self.reading: int | None = 0
        self.line = True
        self.let_go = False
        """Is it whole; did an operator ever let go of the site?"""
        self.loses = 0.2
        self.delays = 0.3
        """So many answers of the coordinator; so much of what the other site tells."""
        self.tx = self.acknowledged = self.dropped = 0
        self.step(ev.LogEnd())

    def _mirror(self) -> Mirror:
        """One that begins."""
        return Mirror(Checkpoint(0, ChainState(LOG_ID, SITE)), self.there.state)

    def _confirming(self) -> AcknowledgementSender:
        """Of the node there that mirrors."""
        state = SimpleNamespace(table=self.table, chain=self.there)
        copy: Any = SimpleNamespace(name="p", core=SimpleNamespace(state=state))
        host: Any = SimpleNamespace(copies={"p": copy})
        mirroring: Any = SimpleNamespace(is_wanted=lambda copy: True)
        nowhere: Any = None
        return AcknowledgementSender(host, mirroring, SITE, nowhere, TopicPartition("arrived", 0), {self.table.policy})

    # --- the node ---

    def step(self, event: ev.Event) -> None:
        self._perform(self.p.step(event, self.now))

    def _perform(self, effects: list[fx.Effect]) -> None:
        for e in effects:
            match e:
                case fx.Append():
                    self.appends.append(e)
                case fx.EndSession():
                    self.appends.clear()
                case fx.SetTable():
                    self.sets.append(e)
                case fx.Read():
                    self.reading = e.offset
                case fx.StopReading():
                    self.reading = None
                case fx.AskLog():
                    self.step(ev.LogAnswered(e.round))
                case fx.Refresh():
                    self.step(ev.TableSeen(self.version, self.table))
                case fx.Reply(result=res.Success(lsn=lsn)):
                    self.acknowledged = max(self.acknowledged, lsn)
                case _:
                    pass
        self.check()

    def check(self) -> None:
        """What was told is in the log of a site that the znode names, or that a strict policy never lets go of."""
        awaited = EAST in self.table.synced or (self.strict and not self.let_go)
        if awaited and self.acknowledged > self.there.state.lsn:
            raise BrokenError(f"lsn {self.acknowledged} was acknowledged, the other log has {self.there.state.lsn}")

    # --- what may happen ---

    def submits(self) -> None:
        self.tx += 1
        self.step(ev.Submitted(self.tx, tx(self.tx), [], [create(b"%d" % self.tx)], {}))

    def asks_again(self) -> None:
        if self.tx:
            some = self.chance.randint(max(1, self.tx - 3), self.tx)
            if self.chance.random() < 0.5:
                self.step(ev.Asked(1 << 40, tx(some), 0))
            else:
                self.step(ev.Submitted(1 << 41, tx(some), [], [create(b"%d" % some)], {}))

    def lands(self) -> None:
        if self.appends:
            e = self.appends.pop(0)
            self.log.append(e.data)
            if self.reading is None:
                self.step(ev.Appended(e.tag, len(self.log) - 1))

    def reads(self) -> None:
        if self.reading is not None and self.reading < len(self.log):
            at = self.reading
            self.reading = self.reading + 1
            self.step(ev.EntriesRead([(at, self.log[at])]))

    def sets_table(self) -> None:
        if not self.sets:
            return
        e, lost = self.sets.pop(0), self.chance.random() < self.loses
        landed = e.version == self.version and not (lost and self.chance.random() < 0.5)
        if landed:
            self.dropped += EAST in self.table.synced and EAST not in e.table.synced
            self.table = e.table
            self.version = self.version + 1
            self.check()
        if lost:
            self.step(ev.CasDone(e.round, ev.Cas.UNKNOWN))
        elif landed:
            self.step(ev.CasDone(e.round, ev.Cas.OK, self.version))
        else:
            self.step(ev.CasDone(e.round, ev.Cas.CONFLICT))

    def mirrors(self) -> None:
        """Some more is in the other log."""
        if self.line and self.mirror.offset < len(self.log):
            for data in self.mirror.read(self.mirror.offset, self.log[self.mirror.offset]):
                self._lands_there(data)

    def _lands_there(self, data: bytes) -> None:
        assert self.there.read(records.decode(data), digest(data)) is not Verdict.VOIDED

    def begins_there_or_gives_back(self) -> None:
        """The other site begins an epoch that nobody opens, as one that takes over does; it gives its log away again,
        and the mirror begins anew."""
        if self.chance.random() < 0.2:
            self._begins_or_gives_back()

    def _begins_or_gives_back(self) -> None:
        s = self.there.state
        if s.owner:
            own = EpochId(max(s.epoch.number, s.fenced) + 1, EAST, 1)
            self._lands_there(records.encode(records.EpochStarted(records.Header(LOG_ID, own), s.epoch, s.lsn)))
        else:
            header = records.Header(LOG_ID, s.epoch)
            self._lands_there(records.encode(records.SiteSwitched(header, SITE, s.head)))
            self.mirror = self._mirror()

    def tells(self) -> None:
        """What the other log has, now or later."""
        for _, (epoch, lsn) in self.confirming._mine() if self.line else ():
            told = ev.SiteAck(EAST, epoch, lsn)
            if self.chance.random() < self.delays:
                self.late.append(told)
            else:
                self.step(told)

    def tells_late(self) -> None:
        if self.late:
            self.step(self.chance.choice(self.late))

    def passes(self) -> None:
        self.now += self.chance.choice((10, 100, 100, 300))
        self.step(ev.Ticked())

    def cuts_or_heals(self) -> None:
        if self.chance.random() < 0.3:
            self.line = not self.line

    def ends_epoch(self) -> None:
        if self.chance.random() < 0.15 and self.p.leading is not None:
            self.appends.clear()
            self.step(ev.AppendFailed(-1, "by chance"))

    def lets_go(self) -> None:
        if self.chance.random() < 0.05:
            self.let_go = True
            synced = tuple(n for n in self.table.synced if n != EAST)
            self.table = msgspec.structs.replace(self.table, synced=synced, let_go=(EAST,))
            self.version += 1
            self.step(ev.TableSeen(self.version, self.table))

    # --- the play ---

    def play(self) -> None:
        usual: list[Callable[[], None]] = [
            self.submits,
            self.lands,
            self.lands,
            self.reads,
            self.reads,
            self.sets_table,
            self.mirrors,
            self.mirrors,
            self.tells,
            self.passes,
        ]
        rare = [
            self.asks_again,
            self.tells_late,
            self.cuts_or_heals,
            self.ends_epoch,
            self.lets_go,
            self.begins_there_or_gives_back,
        ]
        for _ in range(STEPS):
            self.chance.choice(usual if self.chance.random() < 0.8 else rare)()

    def heal(self) -> None:
        """The line is whole, nothing is late any more: a new commit is acknowledged, and the site is waited for."""
        self.line = True
        self.loses = 0.0
        self.delays = 0.0
        self.late.clear()
        if not self.there.state.owner:
            self._begins_or_gives_back()
        for _ in range(60):
            for _ in range(20):
                self.lands(), self.reads(), self.mirrors()
            while self.sets:
                self.sets_table()
            self.tells()
            self.now += 100
            self.step(ev.Ticked())
        before = self.acknowledged
        self.submits()
        for _ in range(20):
            self.lands(), self.reads(), self.mirrors(), self.tells(), self.sets_table()
        if self.p.state.role is not Role.ACTIVE or self.acknowledged == before:
            raise BrokenError(f"nothing is committed any more: {self.p.state.role}")
        if EAST not in self.table.synced:
            raise BrokenError("the other site is not waited for again")


def failure_of(seed: int) -> str:
    """What went wrong with this seed, or ""."""
    world = World(seed)
    try:
        world.play()
        world.heal()
    except BrokenError as error:
        return f"seed {seed}: {error}"
    return ""
