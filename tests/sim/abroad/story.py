"""What happens to two sites, by seed: cuts, takeovers, merges, switches, and the faults of each site's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.sim import faults, process_faults
from tests.sim.abroad.accounts import finish
from tests.sim.abroad.operators import Operators
from tests.sim.abroad.pair import SITES, Pair
from tests.sim.abroad.site import SiteWorld
from tests.sim.client import Client
from tests.sim.violation import Violation, demand

LIVENESS_MS = 20_000.0
ALONE_MS = 6_000.0
"""Within this a site that may go on alone does: a takeover that was begun before, and two more."""
BEGIN_MS = 260.0
"""By then there is something that both sites have."""

SENDING = range((6 << 20) + 2, 7 << 20, 4)
"""Every fourth history, one of those in which operators do everything: a site that is to be overruled still sends. The
others are as they were before."""
FLEETING = range(6 << 20, 7 << 20, 8)
"""Every eighth history: before a merge much is deleted, and the merge is undone; before that somebody creates what it
left empty, and deletes that."""

FAULTS = [f for f in faults.FAULTS if f is not faults.restore_coordinator]
"""But for a coordinator that is put back to an older state: it may say that another site serves, and then both may."""


class Story:
    """Of one seed."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.pair = pair = Pair(seed, verbose=verbose)
        self.operators = Operators(pair)
        self.rng = pair.rng
        self.at = pair.engine.at
        self.late = random.Random(f"{seed}/late")
        if seed in FLEETING:
            pair.triggers = True
        now = BEGIN_MS
        for world in pair.worlds.values():
            self._begin(world, 0.0 if world.site == "west" else 40.0)
        episodes: list[Callable[[float], float]] = [self._fork, self._fork, self._fork, self._switch, self._quarrel]
        if pair.waiting is not None:
            episodes = [self._fork, self._fork, self._switch, self._quarrel, self._away, self._away]
        if pair.takeover is not None:
            overruled = [] if pair.takeover.left_alone else [self._fork, self._quarrel]
            episodes = [self._alone, self._alone, self._alone, self._switch, *overruled]
        elif self.rng.random() < 0.2:  # nobody ever says that it may part: then it must not
            episodes = [self._switch]
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            now = self.rng.choice(episodes)(now) + self.rng.uniform(0.0, 150.0)
        if pair.waiting is not None and self.rng.random() < (0.4 if pair.takeover is None else 0.2):
            now = self._loss(now)
        self._sprinkle(now)
        pair.length = now
        self.at(now, self._end if pair.takeover is None else self._end_apart)

    def _begin(self, world: SiteWorld, after: float) -> None:
        for name in world.nodes:
            self.at(after + 40.0 * self.rng.random(), world.start, name)
        world.employ(self.rng.choice((1, 2, 3)), quota=self.rng.choice((2, 4, 10)))
        for c in world.clients:
            self.at(60.0 + 60.0 * self.rng.random(), c.begin)

    def _sprinkle(self, end: float) -> None:
        for world in self.pair.worlds.values():
            kinds = self.rng.sample(FAULTS, self.rng.randint(1, 4))
            for _ in range(self.rng.choice((0, 0, 1, 2, 4))):
                self.at(self._between(80.0, end), self.rng.choice(kinds), world)
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.at(self._between(80.0, end), self.pair.wire.trouble, self.rng, *SITES)

    def _between(self, low: float, high: float) -> float:
        return low + max(0.0, high - low) * self.rng.random()

    def _work(self, when: float) -> None:
        """Clients of both sites have more to do."""
        for world in self.pair.worlds.values():
            for c in world.clients:
                self.at(when + 20.0 * self.rng.random(), _more, c, self.rng.choice((1, 1, 2, 5, 12)))

    # --- episodes ---

    def _fork(self, now: float) -> float:
        """The line is cut, the other site takes over, both go on; the line is whole; somebody merges, or not."""
        self._work(now)
        pair, rng = self.pair, self.rng
        both = {SITES, SITES[::-1]}
        one = rng.random() < 0.25
        ways = {rng.choice((SITES, SITES[::-1]))} if one else both
        self.at(now, pair.wire.cut_off, ways, "line cut one way" if one else "line cut")
        if rng.random() < 0.2:
            self.at(now + 10.0 * rng.random(), self._site_dies)
        if pair.waiting is not None and rng.random() < 0.3:
            self.at(now + rng.uniform(0.0, 400.0), self.operators.let_go, rng.choice(SITES))
        now += rng.uniform(5.0, 120.0)
        self.at(now, partial(self.operators.promote_the_mirror, may_fork=True))
        now += rng.uniform(60.0, 300.0)
        self._work(now)
        now += rng.uniform(30.0, 250.0)
        self.at(now, pair.wire.heal)
        return self._merge(now + rng.uniform(0.0, 300.0))

    def _merge(self, now: float) -> float:
        rng, operators = self.rng, self.operators
        site = rng.choice(SITES)
        if rng.random() < 0.15:
            self.at(now, operators.demote, rng.choice(SITES))
            now += rng.uniform(0.0, 100.0)
        fleeting = self.pair.seed in FLEETING
        if fleeting:
            self.at(now - 60.0 * self.late.random(), self._empty, site)
        if rng.random() < 0.8:
            self.at(now, operators.restore, site)
            if self.pair.seed in SENDING:
                self.at(now + self.late.uniform(-20.0, 10.0), self._still_sends, site)
            if rng.random() < 0.3:
                self.at(now + rng.uniform(0.0, 60.0), operators.restore, rng.choice(SITES))
            now += rng.uniform(50.0, 500.0)
            if rng.random() < 0.5:
                self._work(now - 20.0)
            if fleeting:
                self.at(now, self._come_and_go)
                now += self.late.uniform(30.0, 150.0)
            if rng.random() < 0.3 or fleeting:
                self.at(now, operators.undo)
                now += rng.uniform(20.0, 300.0)
        return now

    def _still_sends(self, site: str) -> None:
        """Whoever serves there waits in vain for its log, and the site is to be overruled: what was sent lands while it
        gives its log away, or behind that."""
        world, rng = self.pair.worlds[site], self.late
        p = world.active()
        if p is None or p.session is None:
            return
        self.pair.cover.hit("an overruled site still sends")
        p.session.freeze()
        self.at(rng.uniform(50.0, 900.0), p.session.thaw)
        for c in world.clients:
            self.at(20.0 * rng.random(), _more, c, rng.choice((1, 2, 5)))

    def _empty(self, site: str) -> None:
        """Clients there delete what those of the other site may change."""
        for world in self.pair.worlds.values():
            for c in world.site_clients:
                c.empties += 2 * (world.site == site)
                _more(c, 2)

    def _come_and_go(self) -> None:
        """Clients of whoever serves create what is not there, and delete it."""
        for world in self.pair.worlds.values():
            if world.serves:
                for c in world.site_clients:
                    c.fleeting = True
                    _more(c, 4)

    def _switch(self, now: float) -> float:
        """The other site is to serve, as planned."""
        self._work(now)
        if self.rng.random() < 0.5:
            self.at(now + self.rng.uniform(10.0, 45.0), self._hinder)
        self.at(now + 30.0, self.operators.promote_the_mirror)
        if self.rng.random() < 0.3:
            self.at(now + self.rng.uniform(20.0, 90.0), self.pair.wire.trouble, self.rng, *SITES)
        return now + self.rng.uniform(80.0, 300.0)

    def _quarrel(self, now: float) -> float:
        """Several operators, none of whom knows of the others."""
        self._work(now)
        o = self.operators
        forking = partial(o.promote, may_fork=True)
        commands: list[Callable[..., None]] = [o.promote, forking, o.demote, o.restore, o.undo_at]
        if self.pair.waiting is not None:
            commands.append(o.let_go)
        for _ in range(self.rng.randint(2, 5)):
            self.at(now + 250.0 * self.rng.random(), self.rng.choice(commands), self.rng.choice(SITES))
        return now + 300.0

    def _away(self, now: float) -> float:
        """The line is cut for so long that commits are refused, or go on without the other site."""
        rng = self.rng
        self._work(now)
        ways = {rng.choice((SITES, SITES[::-1]))} if rng.random() < 0.4 else {SITES, SITES[::-1]}
        self.at(now, self.pair.wire.cut_off, ways, "line cut one way" if len(ways) == 1 else "line cut")
        length = rng.uniform(50.0, 700.0)
        if rng.random() < 0.4:
            self.at(now + length * rng.random(), self.operators.let_go, rng.choice(SITES))
        self._work(now + length * rng.random())
        self.at(now + length, self.pair.wire.heal)
        self._work(now + length + 30.0 * rng.random())
        return now + length + rng.uniform(20.0, 250.0)

    def _alone(self, now: float) -> float:
        """The line is cut, or whoever serves is stopped or dies, for a while: sites find out who goes on."""
        rng, takeover = self.rng, self.pair.takeover
        assert takeover is not None
        self._work(now)
        length = takeover.after_ms * rng.choice((0.3, 0.7, 1.2, 2.0, 3.0)) * rng.uniform(0.8, 1.2)
        what = rng.random()
        if what < 0.75:
            ways = {rng.choice((SITES, SITES[::-1]))} if rng.random() < 0.3 else {SITES, SITES[::-1]}
            self.at(now, self.pair.wire.cut_off, ways, "line cut one way" if len(ways) == 1 else "line cut")
            self.at(now + length, self.pair.wire.heal)
        if what > 0.6:
            kind = self._site_dies if rng.random() < 0.4 else partial(self._stall, length)
            self.at(now + 30.0 * rng.random(), kind)
        self._work(now + length * rng.random())
        self._work(now + length * rng.random())
        return now + length + rng.uniform(20.0, 1.5 * takeover.after_ms)

    def _stall(self, length: float) -> None:
        """Every node of whoever serves is stopped, and goes on."""
        for world in self.pair.worlds.values():
            if world.serves:
                self.pair.cover.hit("a site was stopped")
                for p in world.processes():
                    p.pause()
                    self.at(length * self.rng.uniform(0.5, 1.0), faults.resume, world, p)

    def _loss(self, now: float) -> float:
        """A whole site is lost in the middle of traffic, mostly the one that serves; the other one takes over."""
        rng = self.rng
        self._work(now)
        now += rng.uniform(5.0, 100.0)
        self.at(now, self._is_lost, rng.random() < 0.75)
        promotes = rng.choice((0, 1, 1, 2))
        if self.pair.takeover is not None and self.pair.takeover.left_alone:
            promotes = 2
        for may_fork in ((True,), (False, True), ())[promotes]:
            now += rng.uniform(5.0, 200.0)
            self.at(now, partial(self.operators.promote_the_mirror, may_fork=may_fork))
        return now + rng.uniform(50.0, 400.0)

    def _is_lost(self, serving: bool) -> None:
        worlds = list(self.pair.worlds.values())
        self.pair.lose(next((w for w in worlds if w.serves is serving), worlds[0]))

    def _hinder(self) -> None:
        """Whoever serves is hardly there."""
        kinds = (faults.lose_session, faults.lose_session, faults.hold, faults.pause, faults.crash)
        for world in self.pair.worlds.values():
            if world.serves:
                self.rng.choice(kinds)(world)

    def _site_dies(self) -> None:
        """All nodes of whoever serves."""
        for world in self.pair.worlds.values():
            if world.serves:
                self.pair.cover.hit("a site died")
                for p in list(world.processes()):
                    world.crash(p.name)
                    self.at(
                        self.rng.uniform(100.0, 500.0), process_faults.restart, world, p.name, self.rng.random() < 0.1
                    )

    # --- the end ---

    def _end_apart(self) -> None:
        """First all is well but for the line, and the stronger site goes on; or each does."""
        takeover, pair = self.pair.takeover, self.pair
        assert takeover is not None
        if takeover.overruled or (self.rng.random() < 0.5 and not pair.wire.lost):
            self._end()
            return
        pair.wire.cut_off({SITES, SITES[::-1]}, "line cut at the end")
        pair.heal_sites()
        sites = [takeover.stronger] if takeover.binding else list(SITES)
        worlds = [w for w in pair.left if w.site in sites]
        for world in worlds:
            for c in world.clients:
                c.quota = 1
                c.begin()
        self._await_alone(worlds, pair.engine.now + ALONE_MS)

    def _await_alone(self, worlds: list[SiteWorld], until: float) -> None:
        takeover = self.pair.takeover
        assert takeover is not None
        stuck = [why for w in worlds if (why := takeover.stuck(w))]
        if stuck:
            demand(self.pair.engine.now < until, f"Q1: after {ALONE_MS:.0f} ms alone {stuck}")
            self.at(20.0, self._await_alone, worlds, until)
            return
        self.pair.cover.hit("alone at the end, and goes on")
        self._end()

    def _end(self) -> None:
        self.pair.heal()
        for world in self.pair.left:
            for c in world.clients:
                c.quota = 1
                c.begin()
        self.operators.unite()

    def play(self) -> None:
        """To its end, and what must hold then."""
        pair = self.pair
        with pair.running():
            pair.engine.run(pair.length)
            end = pair.engine.now + LIVENESS_MS
            while why := pair.unwell():
                if pair.engine.now >= end:
                    raise Violation(f"liveness: {LIVENESS_MS:.0f} ms after healing {why}")
                pair.engine.run(pair.engine.now + 20.0)
        finish(pair)


def _more(client: Client, quota: int) -> None:
    client.quota += quota
    client.begin()
