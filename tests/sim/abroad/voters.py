"""The votes of sites as a process of the simulation asks for them: the very code of `halog.runtime.sites.voting` and
`site_takeover`, whose threads are tasks, or take no time at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halog.runtime.sites.mirror_assignment import MirrorDuties
from halog.runtime.sites.takeover import TakeoverRule, Takeovers
from halog.runtime.sites.voting import SiteContacts, SiteVoting

if TYPE_CHECKING:
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.node import Process

AT_ONCE = 0.75
"""Chance that a question is asked and answered in a moment in which nothing else happens."""
SOON_MS = (0.2, 6.0)
STOPPED_MS = 5.0


class _Threads:
    """Of one desk."""

    def __init__(self, world: SiteWorld, p: Process) -> None:
        self._world = world
        self._p = p
        self._rng = world.engine.rng

    def submit(self, work: Callable[[], None]) -> None:
        if self._rng.random() < AT_ONCE:
            self._world.engine.at(self._rng.uniform(*SOON_MS), self._at_once, work)
        else:
            self._world.pair.tasks.spawn("vote", work, self._p)

    def _at_once(self, work: Callable[[], None]) -> None:
        takeover = self._world.pair.takeover
        assert takeover is not None
        if self._p.alive and self._p.paused:
            self._world.engine.at(STOPPED_MS, self._at_once, work)
        elif self._p.alive:
            takeover.acting = self._p
            work()
            takeover.acting = None


class ProcessTakeovers(Takeovers):
    """Of one process. Notes that a history may part."""

    world: SiteWorld

    def _claim(self, copy: Any) -> bool:
        self.world.pair.cover.hit("votes claimed")
        enough = super()._claim(copy)
        self.world.pair.may_fork = self.world.pair.may_fork or enough
        return enough


def tend_takeovers(world: SiteWorld, p: Process, host: Any, assignments: MirrorDuties) -> SiteVoting:
    """As `halog.runtime.node.assembly` does it."""
    takeover = world.pair.takeover
    assert takeover is not None
    reach = world.reach(world.asker(p))
    desks: Any = SiteContacts(host, reach, (world.other,))
    for desk in desks.all.values():
        desk._pool = _Threads(world, p)
    policies = {"policy": TakeoverRule(takeover.runtime_ms, takeover.binding, takeover.may(world.site))}
    takeovers = ProcessTakeovers(host, assignments, desks, reach, takeover.votes, policies)
    takeovers.world = world
    host.keep_on("takeovers", takeovers.turn)
    return SiteVoting(host, desks, {"policy": takeover.runtime_ms})
