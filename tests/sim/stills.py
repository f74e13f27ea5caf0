"""Readers of whole moments (R5): they read one copy object by object while it changes, as with `read="local"`.

Each begins at some copy, at whatever point of its life, and looks at one object now and at another one later, as
`halog.runtime.client.partition_views` does: at the object, then at what was written down since. What it has seen in the
end must be what the copy showed when it began, and, where that can be told by an lsn, the history's state there.
Objects change one by one here, with readers in between, as threads meet them that take no lock. They draw from a chance
of their own, in histories of their own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from halog.core.ids import ABSENT
from halog.core.log import records
from halog.core.log.transactions import Applied
from halog.core.replica.moments import MomentReader, Moments, OverError
from halog.core.roles import INCOMPLETE, Role
from tests.sim.client import KEYS
from tests.sim.shown import Read
from tests.sim.store import committed
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(12 << 20, 25 << 19)
EVERY_MS = (0.3, 12.0)
LOOKS = 0.4
"""The chance that an open transaction looks at an object, whenever it might."""
BEGINS = 0.2
"""That one begins between two changes of a copy."""

Value = tuple[int, bytes | None]
ABSENT_VALUE: Value = (ABSENT, None)
State = dict[bytes, Value]


def given(seed: int) -> bool:
    """Is it read so in this history?"""
    return seed in SEEDS


class Still:
    """One transaction."""

    def __init__(self, past: MomentReader[Value], shows: State, lsn: int | None) -> None:
        self.past = past
        self.shows = shows
        self.lsn = lsn
        self.left = list(KEYS)
        self.found: State = {}


class Copies:
    """What readers know of one copy."""

    def __init__(self, limit: int) -> None:
        self.moments: Moments[Value] = Moments(limit)
        self.open: list[Still] = []
        self.before: State | None = None
        """What it showed before the change that is under way."""
        self.halfway: State = {}
        """What of the record that is being taken is visible already."""


class Stills:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.seed * 71 + 3)
        self.played = given(world.seed)
        self.limit = self.rng.choice((1 << 20, 1 << 20, 900))
        """What is written down is bounded; in some histories that is little."""
        self._of: dict[Process, Copies] = {}

    def prepare(self) -> None:
        if self.played:
            self.world.engine.at(self.rng.uniform(30.0, 60.0), self._turn)

    # --- what a copy does ---

    def begin(self, p: Process) -> None:
        """Objects are about to change."""
        if self.played:
            at = self._copies(p)
            at.before = self._now(p)
            at.moments.begin()

    def change(self, p: Process, record: Applied, *, early: bool = False) -> None:
        """By this record: each object for itself, and readers come in between."""
        if not self.played:
            return
        at = self._copies(p)
        commit = committed(record, p.copy.objects)
        changes = () if commit is None else commit.changes
        ends = isinstance(record, records.EpochOpened)
        self._note(p, [*(c.key for c in changes), *(p.shown if ends else ())])
        if not early:
            for c in changes:
                if c.key not in p.shown:
                    at.halfway[c.key] = (ABSENT if c.value is None else record.header.lsn, c.value)
                self._meanwhile(p)

    def changed(self, p: Process) -> None:
        """That record is taken."""
        if self.played:
            self._copies(p).halfway.clear()
            self._meanwhile(p)

    def end(self, p: Process) -> None:
        """All of it."""
        if self.played:
            at = self._copies(p)
            at.moments.end()
            at.before = None

    def _note(self, p: Process, keys: list[bytes]) -> None:
        moments = self._copies(p).moments
        for key in keys if moments.noting is not None else ():
            if key not in moments.noting:  # type: ignore[operator]
                _, value = now = p.version(key), p.value(key)
                moments.note(key, now, len(value or b""))

    # --- readers ---

    def _copies(self, p: Process) -> Copies:
        if p not in self._of:
            self._of[p] = Copies(self.limit)
        return self._of[p]

    def _now(self, p: Process) -> State:
        return {key: (p.version(key), p.value(key)) for key in KEYS}

    def _turn(self) -> None:
        able = [p for p in self.world.processes() if self._reads(p)]
        if able:
            p = self.rng.choice(able)
            self._begin(p)
            self._look(p)
        for p in able:
            self._look(p)
        if not self.world.healed:
            self.world.engine.at(self.rng.uniform(*EVERY_MS), self._turn)

    def _reads(self, p: Process) -> bool:
        return p.alive and not p.paused and p.partition.state.role not in {*INCOMPLETE, Role.FAILED}

    def _meanwhile(self, p: Process) -> None:
        """Between two changes of a copy."""
        if self._reads(p):
            if self.rng.random() < BEGINS:
                self._begin(p)
            self._look(p)

    def _begin(self, p: Process) -> None:
        at = self._copies(p)
        moment = at.moments.now
        if moment is None:  # it would wait for the lock
            self.world.cover.hit("still: waits")
            return
        if at.before is not None:
            self.world.cover.hit("still: begins while objects change")
        told = self.world.unlogged and at.before is None and not self.world.checks.lost
        at.open.append(
            Still(MomentReader(moment, self.limit), at.before or self._now(p), p.partition.visible if told else None)
        )

    def _look(self, p: Process) -> None:
        at = self._copies(p)
        for still in list(at.open):
            if self.rng.random() < LOOKS:
                key = still.left.pop(self.rng.randrange(len(still.left)))
                now = at.halfway.get(key) or (p.version(key), p.value(key))
                try:
                    still.found[key] = seen = still.past.of(key, now) or ABSENT_VALUE
                except OverError:
                    self.world.cover.hit("still: told that it is over")
                    at.open.remove(still)
                    continue
                if seen != now:
                    self.world.cover.hit("still: shown what was")
                if not still.left:
                    at.open.remove(still)
                    self._done(p, still)

    def _done(self, p: Process, still: Still) -> None:
        self.world.cover.hit("still: whole")
        told = f"R5: {p.name} showed {still.found} to one transaction, and {still.shows} when that began"
        demand(still.found == still.shows, told)
        if still.lsn is not None and not self.world.checks.lost:
            self.world.shown.reads.append(Read(p.me.node, still.lsn, still.found))
