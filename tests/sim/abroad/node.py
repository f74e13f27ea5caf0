"""What a process of one site does for the other ones: the very code of `halog.runtime`, on a host that is simulated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from halog.core import effects as fx, events as ev, results as res
from halog.core.partition import Partition
from halog.errors import HalogError
from halog.ports import TopicPartition, UnknownResult
from halog.runtime.merge.epoch_reopening import Due, hand_over
from halog.runtime.merge.restore_driver import RestoreDriver
from halog.runtime.node.assembly import tend_sync_sites
from halog.runtime.sites.mirror_assignment import MirrorAssignment, MirrorDuties
from halog.runtime.sites.site_paces import SitePaces
from halog.runtime.sites.split_watch import SplitWatch
from halog.runtime.sites.switchover_recovery import SwitchoverRecovery
from tests.sim.abroad.services import TP, SiteCoordinator, SiteLog
from tests.sim.abroad.tasks import SPEED
from tests.sim.abroad.voters import tend_takeovers
from tests.sim.store import Stored

if TYPE_CHECKING:
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.node import Process

DEFINITIONS = TopicPartition("definitions", 0)
PACES = SitePaces(given_s=40.0)
"""What was given is taken after longer than any operator tries."""
BUSY_MS = (1.0, 12.0)
"""Between two turns of a line that has something to do."""
STOPPED_MS = 5.0
CROSSING = {
    "mirror": "line",
    "arrived": "arrived",
    "awaited": "awaited",
    "takeovers": "takeover",
    "unfinished": "unfinished",
}
"""Turns that ask over the line, and how they are called."""
ATOMIC = 0.9
"""Chance that a line takes a turn at once, in which nothing else happens: what it then asks costs no time."""


class SiteCopy:
    """As much of `halog.runtime.replica.driver.Copy` as is used for other sites."""

    def __init__(self, host: SiteHost, p: Process) -> None:
        self._host = host
        self._p = p
        self.name = "p"
        self.tp = TP
        self.lock = nullcontext()
        self.error = None
        self.objects = self

    @property
    def core(self) -> Partition:
        return self._p.partition

    @property
    def serving(self) -> bool:
        return self._p.partition.state.serving

    def find(self, key: bytes) -> Stored | None:
        return self._p.copy.objects.get(key)

    def question(self, answer: Callable[[res.Result], None], asked: Callable[[int], ev.Event], *, served: bool) -> int:
        world = self._host.world
        token = world.new_token()
        world.heard[token] = answer
        self._p.deliver(asked(token))
        return 0

    def post(self, event: ev.Event) -> None:
        pair = self._host.world.pair
        if pair.waiting is not None and isinstance(event, ev.SiteAck):
            pair.waiting.silence.heard(self._p, event)
        if pair.takeover is not None and isinstance(event, ev.VoteAnswered):
            pair.takeover.answered(self._p, event)
        self._p.deliver(event)

    def hand_over(self, to: str, answer: Callable[[res.Result], None], why: str) -> None:
        self.question(answer, lambda token: ev.HandOverAsked(token, to, why), served=False)


class SiteHost:
    """As much of `halog.runtime.host.host.Host`."""

    def __init__(self, p: Process, world: SiteWorld) -> None:
        self.world = world
        self._p = p
        self.me = p.me
        self.site = world.site
        asker = world.asker(p)
        self.coordinator = SiteCoordinator(world, asker)
        self.log = SiteLog(world, asker)
        self.copies = {"p": SiteCopy(self, p)}
        self.telling = SimpleNamespace(told=lambda copy, e: world.pair.told(world.site, e))
        self.to_stir: list[Callable[[], None]] = []
        """Nobody: whoever waits to be stirred looks anyway."""
        self.paused_s = 0.0
        """How long a turn that is taken at once would have paused."""

    def pause(self, seconds: float) -> bool:
        if seconds and self.world.pair.tasks.current is not None:
            self.world.pair.tasks.sleep(seconds * 1000.0 / SPEED)
        self.paused_s = max(self.paused_s, seconds)
        return False

    def keep_on(self, name: str, turn: Callable[[], None], end: Callable[[], None] = lambda: None) -> None:
        _Turns(self, self._p, name, turn).begin()


class _Turns:
    """One after the other, as long as the process lives; those of a line that may cross others', as a task."""

    def __init__(self, host: SiteHost, p: Process, name: str, turn: Callable[[], None]) -> None:
        self._host = host
        self._p = p
        self._turn = turn
        self._name = name
        self._kind = name.partition("-")[0]
        self._crosses = self._kind in CROSSING
        self._looks = self._kind in ("takeovers", "unfinished")
        self._engine = host.world.engine

    def begin(self) -> None:
        self._engine.at(self._engine.rng.random() * BUSY_MS[1], self._take)

    def _take(self) -> None:
        if self._p.alive and self._p.paused:
            self._engine.at(STOPPED_MS, self._take)
        elif self._p.alive and self._crosses and self._may_cross():
            task = self._host.world.pair.tasks.spawn(CROSSING[self._kind], self._once, self._p)
            odds = 0.002 if self._looks else 0.02
            self._host.world.pair.endangered(self._host.world, self._p, task, odds, 12)
        elif self._p.alive:
            self._once()

    def _may_cross(self) -> bool:
        if self._looks:
            return True
        owner, core = self._p.partition.state.table.owner, self._p.partition
        return bool(owner) and (core.state.chain.state.owner != owner or self._engine.rng.random() > ATOMIC)

    def _once(self) -> None:
        self._host.paused_s = 0.0
        with suppress(HalogError, UnknownResult):
            self._turn()
        rest = self._host.paused_s * 1000.0 / SPEED if self._host.world.pair.tasks.current is None else 0.0
        self._engine.at(rest + self._engine.rng.uniform(*BUSY_MS), self._take)


class _Workers:
    """The pool that merges run in."""

    def __init__(self, world: SiteWorld, p: Process) -> None:
        self._world = world
        self._p = p

    def submit(self, work: Callable[..., None], *args: Any) -> None:
        task = self._world.pair.tasks.spawn("merge", lambda: work(*args), self._p)
        self._world.pair.endangered(self._world, self._p, task, 0.3, 60)


class ProcessUnfinished(SwitchoverRecovery):
    """Of one process."""

    world: SiteWorld

    def take(self, due: dict[str, Any]) -> None:
        with self.world.pair.promoting(self.world.site):
            self.world.pair.cover.hit("unfinished switch ended")
            super().take(due)


class SiteNode:
    """Of one process."""

    def __init__(self, p: Process, world: SiteWorld) -> None:
        host: Any = SiteHost(p, world)
        reach = world.reach(world.asker(p))
        self._due: Due = {}
        self._restoring = RestoreDriver(host, reach, lambda: world.pair.compensate, DEFINITIONS, self._due)
        workers: Any = _Workers(world, p)
        self._restoring._workers = workers
        self._copy = host.copies["p"]
        self._world = world
        self._p = p
        assignments = MirrorDuties(host.coordinator, host.me.node)
        mirroring = MirrorAssignment(host, assignments, reach, DEFINITIONS, (world.other,))
        unfinished = ProcessUnfinished(host, assignments, reach, {"policy"}, PACES)
        unfinished.world = world
        for name, turn in (
            ("mirroring", mirroring.turn),
            ("restoring", self._restoring.turn),
            ("splits", SplitWatch(host, reach, (world.other,), {"policy"}).turn),
            ("unfinished", unfinished.turn),
        ):
            host.keep_on(name, turn)
        if world.pair.waiting is not None:
            adapters: Any = SimpleNamespace(reach=reach, log=host.log)
            tend_sync_sites(world.pair.waiting.config(world.site), adapters, host, assignments)
        if world.pair.takeover is not None:
            self._voting = tend_takeovers(world, p, host, assignments)

    def ask(self, e: fx.AskVote) -> None:
        """For the votes of a site."""
        takeover = self._world.pair.takeover
        assert takeover is not None
        takeover.asked(self._p, e)
        self._voting.ask(self._copy, e)

    def due(self, e: fx.MergeDue) -> None:
        """An epoch was started that a merge is to open."""
        hand_over(self._due, self._copy, e)
