"""Two simulated sites that do as they are told: the world of tests/sim/abroad, calm, driven by a script and not by
chance.

Each has two nodes, and two clients that work when they are told to. What operators run is the commands' own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from halog.errors import HalogError
from halog.metadata import restore_requests as restores
from halog.metadata.partition_tables import table_of
from halog.metadata.restore_requests import RestoreRequest
from halog.ports import UnknownResult
from halog.runtime.merge.restore_command import RestoreCommand, undo
from halog.runtime.sites.switchover import Switchover
from halog.runtime.support.adapters import SiteAccess
from tests.sim.abroad import pair as pairs
from tests.sim.abroad.accounts import finish
from tests.sim.abroad.pair import SITES, Pair
from tests.sim.abroad.services import SiteCoordinator, SiteLog
from tests.sim.abroad.site import SiteWorld
from tests.sim.abroad.twin import read

LOOK_MS = 2.0
LONG_MS = 6_000.0
"""A command that waits for who was killed, an election and a restart, several times over."""
TIMEOUT_S = 40.0
"""Of a command: 2,000 ms here."""


def _seed() -> int:
    """Of sites with two nodes each that do nothing by themselves, where triggers decide of some keys."""
    for seed in pairs.SEEDS:
        pair = Pair(seed, calm=True)
        by_hand = pair.waiting is None and pair.takeover is None
        sized = all(len(w.nodes) == 2 and w.coordinator.table.sync_replicas for w in pair.worlds.values())
        if by_hand and sized and pair.triggers and pair.keeps_before:
            return seed
    raise AssertionError


SEED = _seed()


class Command:
    """An operator's, begun."""

    def __init__(self, pair: Pair, name: str, work: Callable[[], object]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self._work = work
        self.task = pair.tasks.spawn(name, self._run)

    def _run(self) -> None:
        try:
            self.result = self._work()
        except (HalogError, UnknownResult) as e:
            self.error = e

    @property
    def over(self) -> bool:
        """It has ended, or was killed."""
        return self.task.done or self.task.killed


class TwoSites:
    """Verbs to tell a story with. West is the home; the site that merges is east."""

    def __init__(self) -> None:
        self.pair = Pair(SEED, calm=True)
        self.pair.healed = True  # nobody dies by chance
        self.west, self.east = self.pair.worlds.values()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Within it, clocks are this world's. All have started, and have the same."""
        with self.pair.running():
            for world in self.pair.worlds.values():
                for name in world.nodes:
                    world.start(name)
                world.employ(2, quota=0)
            self.until(lambda: self.west.active() is not None)
            self.work(self.west)
            self.until(self.level)
            yield

    # --- what one sees ---

    def run(self, ms: float) -> None:
        self.pair.engine.run(self.pair.engine.now + ms)

    def until(self, condition: Callable[[], object], grain_ms: float = LOOK_MS) -> None:
        for _ in range(round(LONG_MS / grain_ms)):
            if condition():
                return
            self.run(grain_ms)
        raise AssertionError(f"not within {LONG_MS:g} ms: {self.pair.unwell()}")

    def level(self) -> bool:
        """Do all copies of both sites have the same history?"""
        states = [p.partition.state.chain.state for w in self.pair.worlds.values() for p in w.processes()]
        return len({(s.lsn, s.hash) for s in states}) == 1

    def merges(self) -> list[list[bytes]]:
        """Of each site, those that count in its log, by name."""
        logs = (read(site, [e.data for e in w.log.entries]) for site, w in self.pair.worlds.items())
        return [[m.record.merge for m in log.merges] for log in logs]

    # --- what is done ---

    def work(self, *worlds: SiteWorld) -> None:
        """Clients there have more to do, and do it."""
        clients = [c for world in worlds for c in world.clients]
        for c in clients:
            c.quota += 6
            c.begin()
        self.until(lambda: all(c.idle for c in clients))

    def fork(self) -> None:
        """Both have gone on, and see each other again."""
        self.pair.wire.cut_off({SITES, SITES[::-1]}, "line cut")
        self.pair.may_fork = True
        self.done(Command(self.pair, "promote", lambda: self._switching(self.east, 1.0).promote(["p"], may_fork=True)))
        self.until(lambda: self.east.active() is not None)
        self.work(self.west, self.east)
        self.pair.wire.heal()

    def await_end(self, command: Command) -> None:
        """Whatever comes of it."""
        self.until(lambda: command.over)

    def done(self, command: Command) -> Any:
        """Its result; it has gone through."""
        self.await_end(command)
        assert command.error is None, command.error
        return command.result

    def well(self) -> None:
        """All is one, goes on, and every promise was kept."""
        (serving,) = (w for w in self.pair.worlds.values() if w.serves)
        self.until(lambda: serving.active() is not None)
        self.work(serving)
        self.pair.united = True
        self.until(lambda: not self.pair.unwell())
        finish(self.pair)

    # --- commands ---

    def _switching(self, world: SiteWorld, timeout_s: float) -> Switchover:
        coordinator: Any = SiteCoordinator(world, world.asker())
        return Switchover(coordinator, world.site, world.reach(world.asker()), timeout_s)

    def restore(self) -> RestoreRequest:
        """`halog restore` at west."""
        world, asker = self.west, self.west.asker()
        coordinator: Any = SiteCoordinator(world, asker)
        log: Any = SiteLog(world, asker)
        own = SiteAccess(world.site, log, coordinator)
        reach = world.reach(asker)
        with RestoreCommand(own, lambda policy: "state", reach, (world.other,), TIMEOUT_S) as reuniting:
            tables = [table_of(coordinator, "p")]
            sources = reuniting.sources(tables, {}, self._back)
            return reuniting.restore(tables, sources, told=lambda name, now: None)["p"]

    _back: tuple[str, ...] = ()

    def restore_and_serve(self) -> RestoreRequest:
        """`halog restore --active NODE`, one of west's: it takes the partition back."""
        self._back = ("p",)
        ended = self.restore()
        self._switching(self.west, TIMEOUT_S).promote(["p"])
        return ended

    def undo(self) -> RestoreRequest:
        """`halog restore undo` at east."""
        coordinator: Any = SiteCoordinator(self.east, self.east.asker())
        last = restores.last_merge(restores.restore_of(coordinator, "p"))
        return undo(coordinator, {"p": last}, TIMEOUT_S, lambda name, now: None)["p"]
