"""Two sites, west and east, in one world: what is between them, and what was seen of both (M1, M2, M5).

West is the home: its history is mirrored at east. Each site is a world of its own (`SiteWorld`) with nodes, a log, a
coordinator, clients and faults; all share one clock. Their nodes run the code of `halog.runtime` for other sites as it
is, and so do operators (`tests.sim.abroad.tasks`): nothing of it is written anew here.
They are histories of their own, from 6 * 2^20 on.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from halog.core import effects as fx
from halog.core.active import epoch_merge as merging
from halog.core.ids import EpochId
from halog.core.table.tell import Tell
from halog.events import PARTED
from halog.metadata import log_holds as retention, restore_requests as restores, site_lag as lacking
from halog.runtime.merge import (
    comparison as comparing,
    epoch_reopening as reopening,
    restore_command as reuniting,
    restore_driver as restoring,
)
from halog.runtime.sites import (
    acknowledgements as arrivals,
    catch_up as drawing_level,
    home_tables as sites,
    mirror_assignment as mirroring,
    mirror_link as line,
    mirrored_partition as mirrored,
    owner_tracking as succession,
    relinquish as giving,
    split_watch as splits,
    switchover as switching,
    switchover_recovery as unfinished,
)
from restore import thread
from restore.compensation import Defer, Fields, KeepInitiating, KeepSource, Replace, Verdict
from restore.creating import KeyDecision
from restore.merge import AGREED, Difference, Kind
from restore.plan import chosen
from tests.sim import leases, process_faults, zones
from tests.sim.abroad import takeover
from tests.sim.abroad.client import COUNTER
from tests.sim.abroad.site import SiteWorld
from tests.sim.abroad.tasks import Clock, Queues, Task, Tasks, Threads
from tests.sim.abroad.waiting import choose
from tests.sim.abroad.wire import Wire
from tests.sim.client import KEYS
from tests.sim.coverage import Coverage
from tests.sim.engine import Engine
from tests.sim.node import Process
from tests.sim.world import SETTINGS_OF, is_asking, is_unlogged

SEEDS = range(6 << 20, 7 << 20)
SITES = ("west", "east")
MAKE_MS = 1_500
"""As `halog.core.active.epoch_merge` has it, in this world's deadlines."""
INITIATING, DEFERRED = KEYS[2], KEYS[1]
"""Where there are triggers: the one keeps the initiating site's state, the other says nothing."""


class Asked(NamedTuple):
    """A restore that somebody has asked for."""

    at: str
    of: str
    undo: str


class Pair:
    """Both sites."""

    def __init__(self, seed: int, *, verbose: bool = False, calm: bool | None = None) -> None:
        self.rng = chance = random.Random(seed * 7919 + 11)
        """What operators do, and the line, is drawn from it."""
        self.seed = seed
        self.engine = Engine(seed, verbose=verbose)
        self.cover = Coverage()
        self.tasks, self.wire = Tasks(self.engine), Wire(self.engine, self.cover)
        self.sessions: list[Any] = []
        """Every producer's session that mirrors or operators had, with who had it."""
        self.triggers = chance.random() < 0.5
        """Are there some, so that conflicts are decided by more than the rules?"""
        self.keeps_before = chance.random() < 0.8
        """Do records have what they replace?"""
        self.told_by: set[str] = set()
        """The sites whose nodes have told that the histories have parted."""
        self.asked: list[Asked] = []
        self.two_way: dict[EpochId, bool] = {}
        """By the epoch that a merge was to open."""
        self.may_fork = False
        """Did an operator say so?"""
        self.quarrelled = False
        """Did two of them make each site take over from the other at the same time? One may be a node that
        ends what an operator had begun."""
        self._promoting: list[str] = []
        """The sites that somebody makes serve just now."""
        self.united = self.healed = False
        self.length = 0.0
        self._values = 0
        self.waiting = choose(self, seed)
        """What is promised, where commits wait for the other site."""
        self.takeover = takeover.choose(self, seed)
        """Where sites go on by themselves."""
        calm = chance.random() < 0.3 if calm is None else calm
        self.worlds = {
            site: self._site(site, other, home, calm=calm)
            for site, other, home in (("west", "east", ""), ("east", "west", "west"))
        }

    def _site(self, site: str, other: str, home: str, *, calm: bool) -> SiteWorld:
        seed = next(s for s in iter(lambda: self.rng.randrange(1 << 20), None) if not _is_other(s))
        names = tuple(f"{site[0].upper()}{i}" for i in range(self.rng.choice((1, 2, 2, 3))))
        settings = SETTINGS_OF[seed % 4]
        if self.waiting is not None:
            settings = msgspec.structs.replace(settings, sites=self.waiting.sites[site])
        if self.takeover is not None:
            settings = msgspec.structs.replace(settings, votes=self.takeover.settings(site))
        return SiteWorld(
            self,
            seed,
            site,
            other,
            home,
            names=names,
            sync_replicas=self.rng.choice((0, 1, 1)),
            calm=calm,
            settings=settings,
        )

    def other(self, site: str) -> SiteWorld:
        return self.worlds[self.worlds[site].other]

    def value(self) -> bytes:
        """One that nobody has written before."""
        self._values += 1
        return b"v%d" % self._values

    def reference(self) -> bytes:
        self._values += 1
        return self._values.to_bytes(24, "big")

    # --- what is done at a merge ---

    def compensate(self, keys: tuple[Difference, ...]) -> list[KeyDecision]:
        """As triggers of the application decide; for all conflicts that have none, as the rule does."""
        choices = chosen(keys, self.verdict, _sum)
        return [KeyDecision(choice, "sim" if choice.verdict is not None else "") for choice in choices]

    def verdict(self, found: Difference) -> Verdict:
        known = found.base is None or found.base.value is not None
        if found.key == COUNTER and known and found.source is not None and found.initiating is not None:
            return Replace({})
        if self.triggers and found.key == INITIATING:
            return KeepInitiating()
        if self.triggers and found.key == DEFERRED and found.kind not in AGREED:
            return Defer("nobody knows")
        return KeepInitiating() if found.kind is Kind.INSTANCE_ADDED else KeepSource()

    # --- what was seen ---

    def told(self, site: str, e: Tell) -> None:
        """An operator reads this."""
        if e.kind is PARTED:
            self.told_by.add(site)
            self.cover.hit("parted told")
        else:
            self.cover.hit(e.kind.name)
        self.engine.say(f"{site} tells: {e.kind.name} {e.cause} {e.more}")

    @contextlib.contextmanager
    def promoting(self, site: str) -> Iterator[None]:
        """Somebody makes that site serve, as long as this lasts."""
        if any(other != site for other in self._promoting):
            self.quarrelled = True
        self._promoting.append(site)
        try:
            yield
        finally:
            self._promoting.remove(site)

    def restores_at(self, site: str, now: restores.RestoreRequest) -> None:
        self.engine.say(f"{site}: restore of {now.site or 'a merge'} is {now.phase} {now.why}")
        if now.phase == restores.ASKED:
            self.asked.append(Asked(site, now.site, now.undo))
        elif now.ended:
            self.cover.hit(f"{'undo' if now.undo else 'restore'} {now.phase}")

    def noting(self, real: Callable[..., list[bytes]]) -> Callable[..., list[bytes]]:
        """What makes a merge; it is noted by which rule."""

        def records(one: Any, e: fx.MergeDue, *more: Any) -> list[bytes]:
            self.two_way[e.epoch] = one._asked.two_way
            return real(one, e, *more)

        return records

    def endangered(self, world: SiteWorld, p: Process, task: Task, odds: float, steps: int) -> None:
        """The node may die at any step of this."""
        if self.healed or self.rng.random() > odds:
            return

        def die() -> None:
            world.crash(p.name)
            self.engine.at(self.rng.uniform(5.0, 300.0), process_faults.restart, world, p.name, self.rng.random() < 0.2)

        task.dies_in, task.dies = self.rng.randint(1, steps), die

    # --- the end ---

    @property
    def left(self) -> list[SiteWorld]:
        """The sites that are not lost for good."""
        return [w for w in self.worlds.values() if w.site != self.wire.lost]

    def lose(self, world: SiteWorld) -> None:
        """All of a site at once: its nodes, its log, its coordinator. It never comes back."""
        self.cover.hit("a site is lost for good")
        self.engine.say(f"=== site {world.site} is lost")
        self.wire.lost = world.site
        world.gone.update(world.nodes)
        for name in world.nodes:
            world.crash(name)

    def heal(self) -> None:
        self.wire.heal()
        self.heal_sites()

    def heal_sites(self) -> None:
        """All but the line."""
        self.healed = True
        for world in self.left:
            world.heal()

    def unwell(self) -> str:
        """Why they are not one yet, or ''."""
        if not self.united:
            return "nobody has made them one"
        serving = [w for w in self.left if w.serves]
        if len(serving) != 1:
            return f"{[w.site for w in serving]} serve"
        active = serving[0].active()
        if active is None or active.partition.leading is None:
            return f"no node of {serving[0].site} is active"
        if active.partition.leading.writer.queue or not all(c.idle for c in serving[0].clients):
            return "clients wait"
        state = active.partition.state.chain.state
        for world in self.left:
            for p in world.processes():
                now = p.partition.state.chain.state
                if (now.lsn, now.hash) != (state.lsn, state.hash):
                    return f"{p.name} is at lsn {now.lsn}, not {state.lsn}; {self.standing(world.site)}"
        return self.waiting.unwell(serving[0]) if self.waiting is not None and not self.wire.lost else ""

    def standing(self, site: str) -> str:
        found = self.worlds[site].znodes.at.get("mirrors/p")
        return "" if found is None else found.data.decode()[-300:]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The clocks of `halog.runtime` are this world's, and what is to be read in pieces comes in small ones."""
        clock, queues = Clock(self.tasks), Queues(self.tasks)
        timed = (
            switching,
            reuniting,
            line,
            mirrored,
            mirroring,
            giving,
            splits,
            retention,
            reopening,
            restoring,
            succession,
            sites,
            drawing_level,
            unfinished,
        )
        wanted: list[tuple[Any, str, Any]] = [(module, "time", clock) for module in timed]
        wanted += [
            (reopening, "queue", queues),
            (restoring, "queue", queues),
            (restoring._PartitionRestore, "_records", self.noting(restoring._PartitionRestore._records)),
            (comparing, "LATE", 3),
            (merging, "MAKE_MS", MAKE_MS),
            (giving, "PIECE", 7),
            (thread, "PIECE", 5),
            (reuniting, "who", lambda: "sim"),
        ]
        if self.waiting is not None:
            wanted += [
                (arrivals, "time", clock),
                (arrivals, "threading", Threads(self.tasks)),
                (lacking, "awaited", self.waiting.awaited),
            ]
        if self.takeover is not None:
            wanted += self.takeover.replaced(clock)
        before = [(module, name, getattr(module, name)) for module, name, _ in wanted]
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        for module, name, value in wanted:
            setattr(module, name, value)
        try:
            yield
        finally:
            self.tasks.close()
            for module, name, value in before:
                setattr(module, name, value)
            logging.disable(level)


def _is_other(seed: int) -> bool:
    """Would it be one of the kinds that two sites have not, or that say nothing about them?"""
    return is_unlogged(seed) or is_asking(seed) or leases.given(seed) or zones.given(seed)


def _sum(found: Difference, fields: Fields) -> bytes:
    """What both have counted."""
    assert found.source is not None
    assert found.initiating is not None
    base = 0 if found.base is None else number(found.base.value)
    return b"%d" % (number(found.source.value) + number(found.initiating.value) - base)


def number(value: bytes | None) -> int:
    return int(value or b"0")
