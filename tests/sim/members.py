"""Who believes whom to be up. Every process has its own view, late and at times wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.ids import Member
from tests.sim import zones

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

SILENCE_MS = 60.0
"""A peer silent this long is taken for dead (keep-alive)."""


class Members:
    """Views of the processes that are up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.doubts: set[tuple[str, str]] = set()
        """(who, whom): `who` takes `whom` for dead, rightly or not."""
        self.zoning: zones.Zoning | None = None
        """Where nodes need a quorum of their zone."""
        self.offline: set[Member] = set()
        """Who has no quorum in a zone, and says so (Q1)."""
        self.owes: dict[Member, int] = {}
        """Up to where the log must be read by one that came back, before it takes part."""
        self.views: dict[Member, frozenset[Member]] = {}

    def changed(self, name: str) -> None:
        """Something about `name` changed: everybody notices, each at its own time, `name` itself at once."""
        for p in self.world.processes():
            self.world.engine.at(self.world.nature.delay(self.world.nature.notice), self.look, p)

    def doubt(self, who: str, whom: str) -> None:
        self.doubts.add((who, whom))
        self._look_again(who)

    def doubt_at_once(self, who: str, whom: str) -> None:
        self.doubts.add((who, whom))
        process = self.world.nodes[who].process
        if process is not None:
            self.look(process)

    def trust(self, who: str, whom: str) -> None:
        self.doubts.discard((who, whom))
        self._look_again(who)

    def everybody_doubts(self, whom: str) -> None:
        for n in self.world.nodes:
            if n != whom:
                self.doubt(n, whom)

    def everybody_trusts(self, whom: str) -> None:
        for n in self.world.nodes:
            self.trust(n, whom)

    def _look_again(self, who: str) -> None:
        process = self.world.nodes[who].process
        if process is not None:
            self.world.engine.at(self.world.nature.delay(self.world.nature.notice), self.look, process)

    def look(self, p: Process) -> None:
        """Whom it believes to be up, from now on."""
        if not p.alive:
            return
        offline = p.me in self.offline
        hears = frozenset(q.me for q in self.world.processes() if q is p or self._hears(p, q))
        if self.zoning is not None:
            self.zoning.judge(p, hears)
        up = hears - self.offline
        if self.views.get(p.me) != up:
            self.views[p.me] = up
            p.deliver(ev.AliveChanged(up, "view", self.world.parted.answering(p)))
        zones.judged(self.world, p, offline)

    def _hears(self, p: Process, q: Process) -> bool:
        deaf = self.zoning is not None and p.me in self.zoning.deaf
        return not deaf and (p.name, q.name) not in self.doubts

    def started(self, p: Process) -> None:
        """It has not looked yet: it believes that it alone is up, or in a zone with a quorum not even that."""
        if self.zoning is not None:
            self.zoning.started(p)
        self.world.engine.at(0.0, self._first, p)

    def _first(self, p: Process) -> None:
        if p.me not in self.views:
            alone = frozenset({p.me}) - self.offline
            if self.zoning is not None:
                self.views[p.me] = alone
            p.deliver(ev.AliveChanged(alone, "start"))
