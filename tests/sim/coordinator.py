"""A coordinator with one znode: versioned compare-and-set, watches that come late and skip values, lost replies, sets
that land after their caller was told "unknown" (but never after the caller's session ended), stale reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.table.table import Group, PartitionTable
from tests.sim.coverage import Coverage
from tests.sim.engine import Engine
from tests.sim.nature import Fate, Nature

if TYPE_CHECKING:
    from tests.sim.checks import Checks
    from tests.sim.node import Process

UNKNOWN_AFTER_MS = 30.0
LATE_MS = (5.0, 300.0)


class CoordinatorSession:
    """One process's session. While it is down nothing comes through; what it sent before may no longer land."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.number = 0
        self.up = True
        self.watch_due = False
        self.lag = 0.0
        """How much longer what it asks takes, each way;"""
        self.blind = 0.0
        """and what it is told without asking."""


class FakeCoordinator:
    """The znode, and everybody's session to it."""

    def __init__(self, engine: Engine, nature: Nature, cover: Coverage, checks: Checks, table: PartitionTable) -> None:
        self.engine = engine
        self.nature = nature
        self.cover = cover
        self.checks = checks
        self.values: list[PartitionTable] = [table]
        """Every value so far; the index is the version."""
        self.sessions: list[CoordinatorSession] = []

    @property
    def version(self) -> int:
        return len(self.values) - 1

    @property
    def table(self) -> PartitionTable:
        return self.values[-1]

    def connect(self, process: Process) -> CoordinatorSession:
        made = CoordinatorSession(process)
        self.sessions.append(made)
        return made

    def close(self, session: CoordinatorSession) -> None:
        session.up = False
        self.sessions.remove(session)

    # --- compare-and-set ---

    def set(self, s: CoordinatorSession, e: fx.SetTable) -> None:
        self.checks.sets(s.process, e)
        if not s.up:
            self.engine.at(UNKNOWN_AFTER_MS, self._reply, s, ev.CasDone(e.round, ev.Cas.UNKNOWN))
            return
        fate = self.nature.cas_fate()
        if fate is Fate.FAILED:
            self.cover.hit("set unknown, never landed")
            self.engine.at(UNKNOWN_AFTER_MS, self._reply, s, ev.CasDone(e.round, ev.Cas.UNKNOWN))
        elif fate is Fate.LATE:
            self.engine.at(
                self.nature.delay((1.0, UNKNOWN_AFTER_MS)), self._reply, s, ev.CasDone(e.round, ev.Cas.UNKNOWN)
            )
            self.engine.at(self.nature.delay(LATE_MS), self._arrive, s, s.number, e, fate)
        else:
            self.engine.at(s.lag + self.nature.delay(self.nature.cas), self._arrive, s, s.number, e, fate)

    def _arrive(self, s: CoordinatorSession, number: int, e: fx.SetTable, fate: Fate) -> None:
        if s.number != number:  # that session ended: the request died with it
            if fate is not Fate.LATE:
                self._reply(s, ev.CasDone(e.round, ev.Cas.UNKNOWN))
            return
        landed = e.version == self.version
        if landed:
            self.values.append(e.table)
            self.checks.table_set(self.values[-2], self.values[-1])
            self._announce()
        result = ev.CasDone(e.round, ev.Cas.OK, self.version) if landed else ev.CasDone(e.round, ev.Cas.CONFLICT)
        if fate is Fate.FINE:
            self.engine.at(s.lag + self.nature.delay(self.nature.cas), self._reply, s, result)
            return
        if landed:
            self.cover.hit("set unknown, landed")
        if fate is Fate.UNSAID:
            self.engine.at(UNKNOWN_AFTER_MS, self._reply, s, ev.CasDone(e.round, ev.Cas.UNKNOWN))

    def confirm(self, s: CoordinatorSession, e: fx.Renew) -> None:
        """Is that still the version? Asked as a write is; the answer may take very long."""
        if not s.up or self.nature.cas_fate() is not Fate.FINE:
            self.engine.at(UNKNOWN_AFTER_MS, self._reply, s, ev.Renewed(e.round, ev.Cas.UNKNOWN))
        else:
            self.engine.at(s.lag + self.nature.delay(self.nature.cas), self._confirmed, s, s.number, e)

    def _confirmed(self, s: CoordinatorSession, number: int, e: fx.Renew) -> None:
        result = ev.Cas.OK if e.version == self.version else ev.Cas.CONFLICT
        after = s.lag + self.nature.delay(LATE_MS if self.nature.chance(0.2) else self.nature.cas)
        if s.number == number:
            self.engine.at(after, self._reply, s, ev.Renewed(e.round, result))

    def _reply(self, s: CoordinatorSession, done: ev.CasDone | ev.Renewed) -> None:
        s.process.deliver(done)

    def regroup(self, group: Group) -> None:
        """An operator changes the group, by compare-and-set like everybody (Q2, Q3)."""
        self.put(msgspec.structs.replace(self.table, group=group))

    def put(self, table: PartitionTable) -> None:
        """An operator sets the table."""
        self.values.append(table)
        self.checks.table_set(self.values[-2], self.values[-1])
        self._announce()

    def give_up_unlogged(self) -> None:
        """An operator accepts that what some had in memory only is lost."""
        replicas = tuple(r.as_async for r in self.table.replicas)
        self.values.append(msgspec.structs.replace(self.table, active=None, replicas=replicas))
        self.checks.table_set(self.values[-2], self.values[-1])
        self._announce()

    def restore(self) -> bool:
        """The znode's content is put back to an older epoch's, as from yesterday's backup (its version goes on)."""
        older = [t for t in self.values if 0 < t.epoch.number < self.table.epoch.number]
        if not older:
            return False
        self.values.append(self.engine.rng.choice(older))
        self.checks.table_restored()
        self._announce()
        return True

    # --- reads and watches ---

    def refresh(self, s: CoordinatorSession) -> None:
        """A read, as of some moment before it is answered; sometimes staler than it should be."""
        if not s.up:
            self.engine.at(UNKNOWN_AFTER_MS, self.refresh, s)
            return
        version = max(0, self.version - (1 if self.nature.chance(self.nature.stale_read) else 0))
        self.engine.at(s.lag + self.nature.delay(self.nature.cas), self._tell, s, version)

    def _tell(self, s: CoordinatorSession, version: int) -> None:
        s.process.deliver(ev.TableSeen(version, self.values[version]))

    def _announce(self) -> None:
        for s in self.sessions:
            self._watch(s)

    def _watch(self, s: CoordinatorSession) -> None:
        if s.up and not s.watch_due:
            s.watch_due = True
            self.engine.at(s.blind + self.nature.delay(self.nature.watch), self._watched, s)

    def _watched(self, s: CoordinatorSession) -> None:
        s.watch_due = False
        if s.up:
            self._tell(s, self.version)

    # --- sessions ---

    def lose(self, s: CoordinatorSession) -> None:
        """The session is gone; requests on their way are dropped, their callers hear "unknown"."""
        s.up = False
        s.number += 1

    def renew(self, s: CoordinatorSession) -> None:
        """A new session: the watch is set anew and tells the value of now."""
        s.up = True
        self._watch(s)
