"""What operators do about two sites: the commands as they are, killed at any step of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halog.errors import HalogError
from halog.metadata import restore_requests as restores
from halog.metadata.mirrors import standing
from halog.metadata.partition_tables import table_of
from halog.ports import UnknownResult
from halog.runtime.merge.restore_command import RestoreCommand, undo
from halog.runtime.sites.split_watch import parted
from halog.runtime.sites.switchover import Switchover
from halog.runtime.support.adapters import SiteAccess
from restore.undoings import undoing
from tests.sim.abroad.services import SiteCoordinator, SiteLog
from tests.sim.coordinator import LATE_MS
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.abroad.pair import Pair
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.abroad.tasks import Task

AGAIN_MS = 40.0
UNAIDED_MS = 6_000.0
"""Within this sites that vote are one again, once they see each other: some takeovers and elections."""
DETECTED_MS = 3_000.0
"""Within this both sites say that they have parted, once they see each other: some `watch_s` and an election."""


class Operators:
    """Of both sites."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.rng = pair.rng
        self._begun: list[Task] = []
        self._alone = False
        """Has a takeover gone through since a site was lost? Then that one was let go of."""

    # --- commands ---

    def promote(self, site: str, *, may_fork: bool = False) -> None:
        name = "promote --may-fork" if may_fork else "promote"
        self._run(name, lambda: self._promote(site, may_fork=may_fork))

    def promote_the_mirror(self, *, may_fork: bool = False) -> None:
        """Of the site that mirrors now, if one does."""
        for world in self.pair.left:
            if not world.serves:
                self.promote(world.site, may_fork=may_fork)
                return

    def let_go(self, site: str) -> None:
        """Of the other site."""
        self._overrule()
        self._run("let-go", lambda: self._switching(site, 1.0).let_go(["p"], self.pair.worlds[site].other))

    def _overrule(self) -> None:
        """An operator says what sites were to find out by themselves."""
        if self.pair.takeover is not None:
            self.pair.takeover.overruled = True

    def demote(self, site: str) -> None:
        self._run("demote", lambda: self._switching(site, 1.0).demote(["p"], self.pair.worlds[site].other))

    def restore(self, site: str) -> None:
        two_way = self.rng.random() < 0.15
        self._run("restore", lambda: self._restore(site, two_way=two_way))

    def undo(self) -> None:
        """The last merge of whoever serves."""
        for site, world in self.pair.worlds.items():
            if world.serves:
                self.undo_at(site)

    def undo_at(self, site: str) -> None:
        """The last one that was asked for there."""
        self._run("undo", lambda: self._undo(site))

    def _run(self, name: str, command: Callable[[], object]) -> Task:
        pair = self.pair

        def run() -> None:
            try:
                command()
            except (HalogError, UnknownResult) as e:
                pair.cover.hit(f"{name} failed: {type(e).__name__}")
                pair.engine.say(f"{name} failed: {e}")
            else:
                pair.cover.hit(f"{name} done")

        pair.engine.say(f"+++ operator: {name}")
        task = pair.tasks.spawn(name, run)
        self._begun.append(task)
        if self.rng.random() < 0.3:
            task.dies_in = self.rng.randint(1, 25)
        return task

    def _services(self, site: str) -> tuple[SiteWorld, Any, Any]:
        world = self.pair.worlds[site]
        return world, SiteCoordinator(world, world.asker()), world.reach(world.asker())

    def _switching(self, site: str, timeout_s: float) -> Switchover:
        _, coordinator, reach = self._services(site)
        return Switchover(coordinator, site, reach, timeout_s)

    def _promote(self, site: str, *, may_fork: bool) -> None:
        self.pair.may_fork = self.pair.may_fork or may_fork
        if may_fork:
            self._overrule()
        switching = self._switching(site, self.rng.choice((2.0, 10.0, 30.0)))
        lost = self.pair.wire.lost
        with self.pair.promoting(site):
            switches = switching.promote(["p"], may_fork=may_fork)
        if self.pair.waiting is not None:
            self.pair.waiting.promoted(site, switches)
        if lost and switches[0].may_fork:
            self._alone = True

    def _restore(self, site: str, *, two_way: bool) -> None:
        world, coordinator, reach = self._services(site)
        log: Any = SiteLog(world, world.asker())
        own = SiteAccess(site, log, coordinator)
        timeout_s = self.rng.choice((10.0, 40.0))
        with RestoreCommand(own, lambda policy: "state", reach, (world.other,), timeout_s) as reuniting:
            tables = [table_of(coordinator, "p")]
            sources = reuniting.sources(tables, {})
            nodes = list(self.pair.worlds[world.other].nodes)
            active = {"p": self.rng.choice(nodes)} if self.rng.random() < 0.3 else {}
            reuniting.restore(tables, sources, two_way=two_way, active=active, told=lambda name, now: None)

    def _undo(self, site: str) -> None:
        """Also what was undone before; or the undoing."""
        _, coordinator, _ = self._services(site)
        last = restores.restore_of(coordinator, "p")
        if last is not None and last.merge:
            again = bool(last.undo) and self.rng.random() < 0.3
            name = undoing(bytes.fromhex(last.merge)).hex() if again else last.merge
            undo(coordinator, {"p": name}, 30.0, lambda name, now: None)

    # --- the last word ---

    def unite(self) -> None:
        """Whatever has become of it: an operator who does not give up makes one of them."""
        self.pair.tasks.spawn("unite", self._unite)

    def _unite(self) -> None:
        pair = self.pair
        while any(not task.done for task in self._begun):
            pair.tasks.sleep(AGAIN_MS)
        pair.tasks.sleep(LATE_MS[1])  # what a command has written, and nobody answered, may come by then
        if pair.wire.lost:
            self._go_on(pair.left[0])
            return
        self._find_each_other()
        while not self._are_one():
            self._tried(self._next)
            pair.tasks.sleep(AGAIN_MS)
        if self.rng.random() < 0.2:
            site = next(w.site for w in pair.worlds.values() if w.serves)
            self._tried(lambda: self._undo(site))
        pair.united = True

    def _tried(self, command: Callable[[], object]) -> bool:
        try:
            command()
        except (HalogError, UnknownResult) as e:
            self.pair.engine.say(f"the last operator: {e}")
            return False
        return True

    def _go_on(self, world: SiteWorld) -> None:
        """The other one does not come back: this site serves, and its commits go on."""
        pair, waiting = self.pair, self.pair.waiting
        while not world.serves:
            self._tried(lambda: self._promote(world.site, may_fork=True))
            pair.tasks.sleep(AGAIN_MS)
        waits = waiting is not None and waiting.strict and bool(waiting.sites[world.site].names)
        takeover = pair.takeover
        waits = waits or (takeover is not None and takeover.binding and takeover.stronger != world.site)
        while waits and not self._alone:  # whoever has taken over alone need not say so
            self._overrule()
            self._alone = self._tried(lambda: self._switching(world.site, 1.0).let_go(["p"], world.other))
            pair.tasks.sleep(AGAIN_MS)
        pair.united = True
        while takeover is not None and not self._alone and pair.unwell():
            if takeover.is_outvoted(world):  # as it says itself
                pair.cover.hit("outvoted by a site that is lost")
                self._overrule()
                self._alone = self._tried(lambda: self._switching(world.site, 1.0).let_go(["p"], world.other))
            pair.tasks.sleep(AGAIN_MS)

    def _find_each_other(self) -> None:
        """Where sites vote, nobody need do anything, unless the histories have parted."""
        takeover, until = self.pair.takeover, self.pair.engine.now + UNAIDED_MS
        if takeover is None or not takeover.binding or takeover.overruled:
            return
        if not any("site_votes/p" in w.znodes.at for w in self.pair.worlds.values()):
            return  # nobody ever served
        while not self._are_one():
            if any('"parted":true' in self.pair.standing(site) for site in self.pair.worlds) or self._is_restored():
                self.pair.cover.hit("sites that vote have parted")
                return
            serving = [w.site for w in self.pair.worlds.values() if w.serves]
            demand(self.pair.engine.now < until, f"Q1: they see each other, and {serving} serve: they are not one")
            self.pair.tasks.sleep(AGAIN_MS)
        self.pair.cover.hit("sites that vote are one by themselves")

    def _is_restored(self) -> bool:
        """Did an operator ask for a merge that has not ended?"""
        found = [restores.restore_of(self._services(site)[1], "p") for site in self.pair.worlds]
        return any(now is not None and not now.ended for now in found)

    def _are_one(self) -> bool:
        serving = [w for w in self.pair.worlds.values() if w.serves]
        if len(serving) != 1:
            return False
        other = self.pair.other(serving[0].site)
        return all(p.partition.state.chain.state.owner == serving[0].site for p in other.processes())

    def _next(self) -> None:
        pair = self.pair
        serving = [w for w in pair.worlds.values() if w.serves]
        if len(serving) == 2:
            self._is_told()
            self._restore(self.rng.choice(list(pair.worlds)), two_way=False)
        elif not serving:
            self._promote(self.rng.choice(list(pair.worlds)), may_fork=pair.may_fork)
        else:
            site = serving[0].other
            _, coordinator, _ = self._services(site)
            now = standing(coordinator, "p")
            if now is not None and now.parted:
                self._restore(site, two_way=False)

    def _is_told(self) -> None:
        """M1: both say so, without anybody asking."""
        pair, until = self.pair, self.pair.engine.now + DETECTED_MS
        while sum(w.serves for w in pair.worlds.values()) == 2:
            untold = [site for site in pair.worlds if not self._says(site)]
            if not untold:
                pair.cover.hit("both sites say that they have parted")
                return
            demand(pair.engine.now < until, f"M1: both sites serve, and {untold} do not say so")
            pair.tasks.sleep(AGAIN_MS)

    def _says(self, site: str) -> bool:
        _, coordinator, _ = self._services(site)
        return "p" in parted(coordinator, [table_of(coordinator, "p")])
