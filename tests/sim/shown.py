"""What copies show before their log has it, and who reads there (R5, R6, W7): on replicas, too, where commits do not
wait for the log.

Sessions go from copy to copy, with the highest version they have seen, or were told of, in hand: a copy that shows less
is passed over. Whatever they read must be the state of the history at the lsn which that copy says it shows; what was
given up (HALOG-1019) is not held against anybody. Readers, and frames that bring nothing but an index, draw from
chances of their own: no other history is changed by them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from halog.core import effects as fx, events as ev
from halog.core.ids import ABSENT, EpochId
from halog.core.log import records
from halog.core.log.provisional import early_version
from halog.core.log.transactions import Applied
from halog.core.roles import INCOMPLETE, Role
from tests.sim.client import KEYS
from tests.sim.twin import Accepted
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SESSIONS = 2
EVERY_MS = (0.5, 25.0)
NET_MS = (0.1, 4.0)
DROPPED = 0.1


class Overlay(dict[bytes, tuple[int, int, bytes | None]]):
    """Key → (version, lsn, value) of what one copy shows and has not yet applied, as `halog.runtime.store.object_table`
    does."""

    upto = 0
    """The last lsn of it."""

    def show(self, record: records.Record, *, unlogged: bool) -> None:
        assert isinstance(record, records.Commit)
        self.upto = lsn = record.header.lsn
        version = lsn if unlogged else early_version(record.header.epoch.number, lsn)
        for c in record.changes:
            self[c.key] = (ABSENT if c.op == records.DELETE else version, lsn, c.value)

    def taken(self, record: Applied) -> None:
        """Applied now."""
        for key in [k for k, (_, lsn, _) in self.items() if lsn <= record.header.lsn]:
            del self[key]
        if isinstance(record, records.EpochOpened):
            self.drop()

    def drop(self) -> None:
        """An epoch opened without the rest: it is not to come."""
        self.clear()
        self.upto = 0


class Read(NamedTuple):
    """What one copy showed at once."""

    name: str
    lsn: int
    """What it says it shows."""
    found: dict[bytes, tuple[int, bytes | None]]


class Shown:
    """What is shown in one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.seed * 53 + 11)
        self.declared: dict[EpochId, int] = {}
        """By epoch, the last lsn that its active made visible."""
        self.early: dict[int, bytes] = {}
        """lsn → transaction of what a replica showed before its log had it."""
        self.reads: list[Read] = []

    # --- copies ---

    def show(self, p: Process, e: fx.Show) -> None:
        self.world.stills.begin(p)
        for record in e.records:
            self.world.cover.hit("shown before logged")
            self.world.stills.change(p, record, early=True)
            if record.header.epoch == p.partition.campaign.epoch:
                self._declares(record.header)
            else:
                self._replica_shows(p, record.header)
            p.shown.show(record, unlogged=self.world.unlogged)
            self.world.stills.changed(p)
        self.world.stills.end(p)

    def _declares(self, h: records.Header) -> None:
        self.declared[h.epoch] = max(h.lsn, self.declared.get(h.epoch, 0))

    def _replica_shows(self, p: Process, h: records.Header) -> None:
        self.world.cover.hit("shown by a replica before its log had it")
        declared, upto = self.declared.get(h.epoch, 0), max(self.world.checks.last[p.me].lsn, p.shown.upto)
        demand(h.lsn == upto + 1, f"R5: {p.me.node} shows lsn {h.lsn} right behind {upto}")
        demand(h.lsn <= declared, f"W7: {p.me.node} shows lsn {h.lsn}, its active of epoch {h.epoch.number} {declared}")
        before = self.early.setdefault(h.lsn, h.tx)
        demand(before == h.tx or self.world.checks.lost, f"R1: two transactions were shown as lsn {h.lsn}")

    def applied(self, p: Process, record: Applied) -> None:
        leading = p.partition.leading
        if leading is not None and leading.epoch == record.header.epoch:
            self._declares(record.header)
        p.shown.taken(record)

    def stepped(self, p: Process) -> None:
        """A copy that follows knows how far it shows what it has."""
        core = p.partition
        if self.world.unlogged and core.leading is None and core.campaign.epoch != core.state.chain.state.epoch:
            shows = max(core.state.chain.state.lsn, p.shown.upto)
            demand(core.visible == shows, f"R5: {p.me.node} says that it shows lsn {core.visible}, it shows {shows}")

    # --- an index alone ---

    def tell(self, p: Process, e: fx.Push) -> None:
        for name in e.to:
            if self.rng.random() >= DROPPED:
                self.world.engine.at(self.rng.uniform(*NET_MS), self._told, p, name, e)

    def _told(self, p: Process, name: str, e: fx.Push) -> None:
        process = self.world.nodes[name].process
        if p.alive and process is not None and (p.name, name) not in self.world.cuts:
            self.world.cover.hit("told what is shown without a record")
            process.deliver(ev.Pushed(p.me, e.epoch, (), e.shown))

    # --- readers ---

    def prepare(self) -> None:
        """Sessions begin, where commits do not wait for the log."""
        if self.world.unlogged:
            for number in range(SESSIONS):
                self.world.engine.at(self.rng.uniform(30.0, 60.0), Session(self, tells=number == 0).turn)

    def finish(self, accepted: Sequence[Accepted]) -> None:
        """All that was shown is the history's."""
        for lsn, tx in self.early.items():
            found = accepted[lsn - 1].record.header.tx if lsn <= len(accepted) else b""
            demand(found == tx, f"R1: a replica showed {tx.hex()} as lsn {lsn}, the log has {found.hex() or 'nothing'}")
        now: dict[bytes, tuple[int, bytes | None]] = dict.fromkeys(KEYS, (ABSENT, None))
        reads = sorted(self.reads, key=lambda read: read.lsn)
        for a in accepted:
            lsn = a.record.header.lsn
            while reads and reads[0].lsn < lsn:
                _agree(reads.pop(0), now)
            for c in a.record.changes if isinstance(a.record, records.Commit) else ():
                now[c.key] = (ABSENT if c.op == records.DELETE else lsn, c.value)
        for read in reads:
            demand(read.lsn <= len(accepted), f"R5: {read.name} showed lsn {read.lsn}, the log ends at {len(accepted)}")
            _agree(read, now)


def _agree(read: Read, state: dict[bytes, tuple[int, bytes | None]]) -> None:
    wrong = [key for key in KEYS if read.found[key] != state[key]]
    demand(not wrong, f"R5: {read.name} showed {read.found} at lsn {read.lsn}, the log has {state}")


class Session:
    """One reader, who reads from any copy that may be read. `tells`: it also hears what others were answered."""

    def __init__(self, shown: Shown, *, tells: bool) -> None:
        self.shown = shown
        self.tells = tells
        self.seen: dict[bytes, int] = {}
        self.after = 0

    def turn(self) -> None:
        world, rng = self.shown.world, self.shown.rng
        able = [
            p for p in world.processes() if not p.paused and p.partition.state.role not in {*INCOMPLETE, Role.FAILED}
        ]
        if able and not world.checks.lost:
            self._read(rng.choice(able))
        if not world.healed:
            world.engine.at(rng.uniform(*EVERY_MS), self.turn)

    def _read(self, p: Process) -> None:
        core, cover = p.partition, self.shown.world.cover
        if self.tells and self.shown.rng.random() < 0.3:
            self.after = max(self.after, self.shown.world.checks.acknowledged)
        if core.visible < self.after:
            cover.hit("a session waits for a copy")
            return
        if core.leading is None and core.visible > core.state.chain.state.lsn:
            cover.hit("read at a replica before its log had it")
            if self.after > core.state.chain.state.lsn:
                cover.hit("a session need not wait for the log")
        found = {key: (p.version(key), p.value(key)) for key in KEYS}
        for key, (version, _) in found.items():
            before = self.seen.get(key, ABSENT)
            demand(version == ABSENT or version >= before, f"R5: {key!r} went from lsn {before} to {version}")
            self.seen[key] = max(version, before)
            self.after = max(self.after, version)
        self.shown.reads.append(Read(p.me.node, core.visible, found))
