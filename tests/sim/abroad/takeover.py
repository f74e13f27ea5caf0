"""Sites that go on by themselves (`takeover`, Q1, M5), in some histories of two sites.

The judge keeps votes by itself: what a site's coordinator was asked for, and said, counts for the lease from when it
was asked, in the world's time. Where the votes bind, whatever somebody is told first needs more than half of them, and
no other site may have as many; and a site that another one has followed never answers again before it follows that one.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from halog.core import effects as fx, events as ev
from halog.core.ids import EpochId, Member
from halog.core.log.records import EpochOpened, EpochStarted, SiteSwitched, decode
from halog.core.settings import SiteVotes
from halog.core.sites import site_quorum
from halog.runtime.sites import takeover as site_takeover, voting as site_votes
from tests.sim.abroad.tasks import SPEED
from tests.sim.abroad.twin import read
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.abroad.pair import Pair
    from tests.sim.abroad.site import SiteWorld
    from tests.sim.client import Transaction
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range((6 << 20) + 3, 7 << 20, 4)
"""Every fourth history of two sites, none of those where commits wait for the other one (`waiting`): some of these have
both. The others are as they were before sites went on by themselves."""

FIRST_MS = 150
"""As `halog.core.sites.site_quorum` has it, in this world's deadlines."""
LOOKS = 8
"""As `halog.runtime.sites.takeover` has it: not so often, a look costs."""
DRIFT = 0.01
"""How wrong the worst clock is."""
MARGIN_MS = 1.0
"""A clock of whole milliseconds."""


class Takeover:
    """Of one pair: its policy, and its judge."""

    def __init__(self, pair: Pair, chance: random.Random) -> None:
        self._pair = pair
        self._seed = pair.seed
        self.binding = chance.random() < 0.8
        """Do the votes decide? Else whoever misses the other one goes on."""
        west, east = chance.choice(((1, 2), (1, 2), (0, 1), (2, 1), (3, 2), (1, 0)))
        self.votes = {"west": west, "east": east}
        self.after_ms = chance.choice((400, 400, 800))
        self.left_alone = chance.random() < 0.75
        """Does no operator overrule them?"""
        self.overruled = False
        """Has one?"""
        self.acting: Process | None = None
        """Who does something that takes no time."""
        self._asked: dict[tuple[Member, int], tuple[str, float, EpochId]] = {}
        self._until: dict[tuple[Member, EpochId, str], float] = {}
        """Until when an epoch may count on a site's votes."""
        self._told: set[bytes] = set()
        self._last: EpochId | None = None
        """Under which somebody was told something last."""
        self._began: EpochId | None = None
        """The first that its site opened since it goes on from the other one."""
        self._epochs: dict[str, set[EpochId]] = {site: set() for site in self.votes}
        self._over: set[EpochId] = set()
        """Those that answered before the other site did."""

    @property
    def stronger(self) -> str:
        """The site that may go on alone."""
        return max(self.votes, key=lambda site: self.votes[site])

    # --- what the nodes are given ---

    def settings(self, site: str) -> SiteVotes:
        return SiteVotes(site, tuple(self.votes.items()), self.binding, self.after_ms // 2)

    @property
    def runtime_ms(self) -> int:
        """The time after which a site takes over, as `halog.runtime` is told."""
        return int(self.after_ms * SPEED)

    def may(self, site: str) -> bool:
        """Does it take over? Where the votes decide, one with some that has whatever was acknowledged."""
        waiting = self._pair.waiting
        has_all = waiting is None or site in waiting.names
        return not self.binding or (has_all and self.votes[site] > 0)

    def rate(self, seed: int, me: Member) -> float:
        """How fast the clock of a process runs."""
        return random.Random(f"{seed}/{me.node}/{me.incarnation}/votes").choice((1 - DRIFT, 1.0, 1 + DRIFT))

    def replaced(self, clock: Any) -> list[tuple[Any, str, Any]]:
        """What is put into modules of the product as long as the pair runs."""
        return [
            (site_votes, "time", clock),
            (site_takeover, "monotonic_ms", self._monotonic_ms),
            (site_takeover, "LOOKS", LOOKS),
            (site_quorum, "FIRST_MS", FIRST_MS),
        ]

    def _monotonic_ms(self) -> int:
        """Of whoever does something now."""
        task = self._pair.tasks.current
        p: Any = self.acting if task is None else task.owner
        return int(self._pair.engine.now * SPEED * p.rate) + p.skew

    # --- the judge ---

    def asked(self, p: Process, e: fx.AskVote) -> None:
        leading = p.partition.leading
        if leading is not None:  # what it was asked for has just ended
            self._asked[p.me, e.round] = e.site, self._pair.engine.now, leading.epoch

    def answered(self, p: Process, e: ev.VoteAnswered) -> None:
        """This is about to be told to the core."""
        found = self._asked.get((p.me, e.round))
        if found is not None and e.owner == p.world.site:
            site, at, epoch = found
            key = p.me, epoch, site
            self._until[key] = max(self._until.get(key, 0.0), at + self.after_ms / 2)

    def acknowledged(self, p: Process, tx: Transaction) -> None:
        """Somebody is told that it happened."""
        first, leading = tx.id not in self._told, p.partition.leading
        self._told.add(tx.id)
        if not self.binding or self.overruled or not first:
            return
        demand(leading is not None, f"Q1: {tx.name} was first acknowledged by {p.name}, which is not active")
        assert leading is not None
        has = self._has_votes(p, leading.epoch)
        demand(has, f"Q1: {tx.name} was acknowledged by {p.name}, which has not the votes")
        if self._is_late(p, leading.epoch, tx):
            self._pair.cover.hit("told by one that was switched meanwhile")
            return
        for other in self._pair.other(p.world.site).processes():
            both = self._counts(other)
            demand(not both, f"Q1: {tx.name} was acknowledged by {p.name}, and {other.name} has the votes, too")
        self._in_order(p, leading.epoch, [opened for opened, _ in p.partition.state.chain.state.lineage], tx)
        self._pair.cover.hit("told with the votes")

    def _counts(self, p: Process) -> bool:
        """May it answer by its votes what it appends?"""
        led = p.partition.leading
        return led is not None and self._has_votes(p, led.epoch) and not _is_fenced(p.world, led.epoch)

    def _is_late(self, p: Process, epoch: EpochId, tx: Transaction) -> bool:
        """Was its site switched as planned while it was stopped? What its log had by then the other site has, too."""
        other = self._pair.other(p.world.site)
        alone = self._last is None or self._last.site == p.world.site
        if alone and not any(self._counts(q) for q in other.processes()):
            return False
        there = read(other.site, [e.data for e in other.log.entries]).happened
        return _is_fenced(p.world, epoch) and tx.id in there

    def _has_votes(self, p: Process, epoch: EpochId) -> bool:
        now = self._pair.engine.now - MARGIN_MS
        mine = [n for site, n in self.votes.items() if self._until.get((p.me, epoch, site), -1.0) > now]
        return 2 * sum(mine) > sum(self.votes.values())

    def _in_order(self, p: Process, epoch: EpochId, lineage: list[EpochId], tx: Transaction) -> None:
        """No two sites answer in turns, but for one that has followed the other one since that began to."""
        demand(epoch not in self._over, f"Q1: {tx.name} was acknowledged by {p.name} after the other site answered")
        if self._last is None or self._last.site != epoch.site:
            if self._last is not None:
                has = self._began in lineage or _has_followed(p.world, self._epochs[epoch.site])
                demand(has, f"Q1: {tx.name} was acknowledged by {p.name} without what the other site answered")
                self._over |= self._epochs[self._last.site]
                self._pair.cover.hit("the other site answers")
            others = max((i for i, opened in enumerate(lineage) if opened.site != epoch.site), default=-1)
            self._began = lineage[others + 1]
        self._epochs[epoch.site].add(epoch)
        self._last = epoch

    # --- what must come about ---

    def stuck(self, world: SiteWorld) -> str:
        """Why a site with the votes does not go on, though the line stays cut; ""."""
        if not world.serves:
            return f"{world.site} has the votes and does not take over" if self._waits_for_the_other(world) else ""
        active = world.active()
        if active is None or active.partition.leading is None:
            return f"no node of {world.site} is active"
        waiting = self._pair.waiting
        if waiting is not None and waiting.strict:
            return ""  # its commits wait for the other one
        return "" if all(c.idle for c in world.clients) else f"clients of {world.site} wait"

    def is_outvoted(self, world: SiteWorld) -> bool:
        """Is its own vote with the other site, by a history that it does not have? What was answered there would be
        lost: an operator says whether it is to go on (F6)."""
        active, found = world.active(), world.znodes.at.get("site_votes/p")
        if not self.binding or active is None or active.partition.leading is None or found is None:
            return False
        vote, state = json.loads(found.data), active.partition.state.chain.state
        opened = [state.lineage, *(branch.lineage for joined in state.joined for branch in joined.branches)]
        renewed = vote["epoch"] or vote["last"]
        known = renewed is None or EpochId(*renewed) in {epoch for lineage in opened for epoch, _ in lineage}
        return vote["site"] != world.site and not known

    def _waits_for_the_other(self, world: SiteWorld) -> bool:
        """Is it to take over? Not what parted, nor a log that was not compared with the other one yet, nor what nobody
        ever had a vote for, nor a history of which it never had an epoch."""
        if (
            not self.may(world.site)
            or "site_votes/p" not in world.znodes.at
            or '"parted":true' in self._pair.standing(world.site)
        ):
            return False
        states = [p.partition.state.chain.state for p in world.processes()]
        return all(state.owner and state.lineage for state in states)


def _is_fenced(world: World, epoch: EpochId) -> bool:
    """Has its site's log a later epoch? It was switched as planned, and what it appends counts for nothing."""
    started = (decode(e.data) for e in world.log.entries)
    return any(isinstance(r, EpochStarted) and r.header.epoch.number > epoch.number for r in started)


def _has_followed(world: World, answered: set[EpochId]) -> bool:
    """Has its log been given away behind all of these epochs? What the other one did since may not have come over."""
    followed = False
    for record in (decode(e.data) for e in world.log.entries):
        if isinstance(record, EpochOpened) and record.header.epoch in answered:
            followed = False
        elif isinstance(record, SiteSwitched):
            followed = True
    return followed


def choose(pair: Pair, seed: int) -> Takeover | None:
    """For this seed; drawn from chances of its own."""
    return Takeover(pair, random.Random(seed * 7919 + 17)) if seed in SEEDS else None
