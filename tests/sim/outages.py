"""Outages of the log and of the coordinator, and reconnects to it (W1, W4).

The log takes nothing, gives nothing and answers nobody for seconds; or the coordinator goes for everybody at once, and
each is back at a time of its own. What is watched: nobody waits for the log beyond its deadline, nobody claims epoch
after epoch meanwhile, and once it is back somebody serves at once. In half of these histories nothing else goes wrong,
and then each of that holds exactly; in the others every other fault is met, too.

They are histories of their own, from 11 * 2^20 on, drawn from chances of their own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from halog.core import effects as fx, events as ev
from halog.core.roles import CLAIMANT
from halog.core.table.tell import Tell
from halog.events import REMOVED
from tests.sim import faults, parted, process_faults, silences
from tests.sim.node import TICK_MS
from tests.sim.violation import demand

if TYPE_CHECKING:
    from halog.core.ids import EpochId, Member
    from tests.sim.node import Process
    from tests.sim.world import World

SEEDS = range(11 << 20, 23 << 19)
TWICE = range(27 << 19, 14 << 20)
"""In these the log goes twice, and the coordinator in between: who was to claim by the log's answer is held up."""
BEGUN_MS: Final = 650.0
"""All nodes have started, and one of them serves."""
AWAY_MS: Final = (400.0, 4_000.0)
TWICE_MS: Final = (500.0, 1_500.0)
DRY_MS: Final = 40.0
"""For so long at most it still takes and gives no more: what a replica lacks then is no fault of its own."""
DEAF_MS: Final = (5.0, 100.0)
DEAF_FOR_MS: Final = 150.0
PAUSE_MS: Final = 150.0
"""Between a client's transactions, at most: some are under way whenever the log goes away."""
LATE_MS: Final = 60.0
"""Ticks, late reports and replies: so long after a deadline what is due has been done."""
BACK_MS: Final = 150.0
"""In a calm world somebody serves so long after the log is back and answers: a stand-back, an election, two appends."""
CLAIMS: Final = 6
"""Epochs that one process may claim while the log is away, among all other faults: it knows that it is once it has
waited for it in vain."""
CALM: Final = 0
"""Where nothing else goes wrong: who waits in vain gives up, and nobody claims before the log has answered."""
FULL: Final = 9
"""And numbers of epochs of all of them while the log can be read and takes nothing: each is waited for twice as long as
that node's last."""


def given(seed: int) -> bool:
    """Do servers go away in this history?"""
    return seed in SEEDS


def is_calm(seed: int) -> bool:
    """And nothing else?"""
    return (given(seed) and seed % 2 == 0) or parted.given(seed) or silences.given(seed) or seed in TWICE


class Outages:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims: dict[Member, set[EpochId]] = {}
        """What each process has claimed since."""
        self._told: dict[Member, EpochId | None] = {}
        """To whom answers of the log were on their way when it went, and the one epoch that they claim by these."""
        self._pauses = random.Random(f"{world.seed}/outages/pauses")
        self._deaf = random.Random(f"{world.seed}/outages/deaf")

    @property
    def are_on(self) -> bool:
        """Does the log take nothing?"""
        return self.world.log.away or self.world.log.full

    def prepare(self, length: float) -> float:
        """Draw them; how much longer such a history takes."""
        world = self.world
        rng = random.Random(f"{world.seed}/outages")
        if world.seed in TWICE:
            return self._prepare_twice(rng, length)
        if not given(world.seed):
            return 0.0
        world.cover.hit(f"log answers: {world.log.answers.draw(world.seed)}")
        at = BEGUN_MS + rng.uniform(0.0, length)
        for _ in range(rng.randint(1, 2)):
            lasts = rng.uniform(*AWAY_MS)
            self.one(at, lasts, readable=rng.random() < 0.25, dry=rng.uniform(0.0, DRY_MS))
            if rng.random() < 0.4:
                world.engine.at(at + rng.random() * lasts, self._coordinator_goes, rng, rng.uniform(10.0, 400.0))
            if rng.random() < 0.3 and not is_calm(world.seed):
                world.engine.at(at + rng.random() * lasts, faults.crash, world)
            at += lasts + rng.uniform(2 * BACK_MS, 1_000.0)
        if rng.random() < 0.5:
            world.engine.at(rng.uniform(100.0, at), self._coordinator_goes, rng, rng.uniform(10.0, 600.0))
        world.engine.at(150.0, self._watch)
        return max(0.0, at - length)

    def _prepare_twice(self, rng: random.Random, length: float) -> float:
        first, lasts = BEGUN_MS + rng.uniform(0.0, length), rng.uniform(*TWICE_MS)
        back = first + lasts
        again, coordinator = back + rng.uniform(40.0, 300.0), back + rng.uniform(-30.0, 40.0)
        self.one(first, lasts, readable=False)
        self.one(again, lasts := rng.uniform(*TWICE_MS), readable=False)
        away = again - coordinator + rng.uniform(0.0, 400.0)
        self.world.engine.at(coordinator, self._coordinator_goes, rng, away)
        self.world.engine.at(150.0, self._watch)
        return max(0.0, again + lasts + 2 * BACK_MS - length)

    def one(self, at: float, lasts: float, *, readable: bool, dry: float = DRY_MS) -> None:
        """The log goes then, for so long; `dry`: so long before it gives no more."""
        engine = self.world.engine
        engine.at(at - dry, self._dries)
        engine.at(at, self._goes, readable)
        engine.at(at + lasts, self._returns)

    def pause(self) -> float:
        """How long a client rests between two transactions; 0 where no server goes away: then it hardly does."""
        slow = given(self.world.seed) or silences.given(self.world.seed) or self.world.seed in TWICE
        return self._pauses.uniform(1.0, PAUSE_MS) if slow else 0.0

    # --- the log ---

    def _dries(self) -> None:
        if not self.world.healed:
            self.world.log.dry = True

    def _goes(self, readable: bool) -> None:
        world = self.world
        if not world.healed and not self.are_on:
            world.cover.hit("log takes nothing" if readable else "log outage")
            world.engine.say(f"--- the log {'takes nothing' if readable else 'is away'} ---")
            self.claims = {}
            self._told = dict.fromkeys((m for m, count in world.log.told.items() if count), None)
            if self._told:
                world.cover.hit("log went behind its answer")
            world.log.leaves(readable=readable)

    def _returns(self) -> None:
        world = self.world
        if self.are_on or world.log.dry:
            world.engine.say("--- the log is back ---")
            if given(world.seed):
                self._deafens()
            world.log.returns()
            if is_calm(world.seed) and world.active() is None and not world.healed:
                world.cover.hit("log back, nobody was active")
                # Two answers, one behind the other: who served may give its epoch up only now, if the coordinator was
                # away as well, and stand back for others, who ask then.
                self._serves(world.engine.now + BACK_MS + 2 * world.log.answers.longest + world.silences.slack)

    def _deafens(self) -> None:
        """Some hear what the log took later than they read it: by then they may lead another epoch."""
        for p in self.world.processes():
            if self._deaf.random() < 0.5:
                p.deaf = self._deaf.uniform(*DEAF_MS)
                self.world.engine.at(DEAF_FOR_MS, self._hears, p)

    def _hears(self, p: Process) -> None:
        p.deaf = 0.0

    def heal(self) -> None:
        """At the end everything is back."""
        self.world.log.answers.heal()
        self._returns()

    def _serves(self, until: float) -> None:
        """Somebody does, before then; unless the coordinator is away as well, or who has stopped is one too many for a
        quorum."""
        world = self.world
        if self.are_on or world.healed or not all(p.coordinator.up for p in world.processes()):
            return
        if sum(not p.paused for p in world.processes()) < world.coordinator.table.quorum:
            return
        if world.active() is None:
            demand(world.engine.now < until, "W1: nobody serves, though the log is back and has answered")
            world.engine.at(1.0, self._serves, until)

    def asked(self, p: Process, e: fx.AskLog) -> None:
        """A copy doubts the log."""
        self.world.cover.hit("log asked")
        if is_calm(self.world.seed) and self.world.log.away:
            since = (e.since_ms - p.skew) / p.rate
            demand(since <= self.world.engine.now, f"W4: {p.name} doubts the log from a moment to come on")

    def claims_epoch(self, p: Process, e: fx.SetTable) -> None:
        """A process asks for this table."""
        world = self.world
        if not self.are_on or e.table.active != p.me or e.table.epoch == p.partition.state.table.epoch:
            return
        if world.log.away and p.me in self._told and self._told[p.me] in (None, e.table.epoch):
            self._told[p.me] = e.table.epoch
            world.cover.hit("claimed by an answer of before")
            return
        handed_over = p.partition.state.chain.state.closed_for == p.name
        if not handed_over:
            self.claims.setdefault(p.me, set()).add(e.table.epoch)
        mine, claims = len(self.claims.get(p.me, ())), [epoch for made in self.claims.values() for epoch in made]
        all_ = len({epoch.number for epoch in claims} if world.log.full else claims)  # two may race for one
        if world.log.full:
            demand(all_ <= FULL or not is_calm(world.seed), f"W1: {all_} epochs are claimed while the log takes none")
        elif is_calm(world.seed):
            demand(all_ <= CALM, f"W1: {p.name} claims an epoch while the log is away, and nobody died")
        else:
            demand(mine <= CLAIMS, f"W1: {p.name} claims {mine} epochs while the log is away")

    def told(self, e: Tell) -> None:
        """R4: a replica is not silent where the log gives it nothing. (One that does not hear who is active, since the
        coordinator is away, tells it nothing.)"""
        silent = e.kind is REMOVED and "acknowledged nothing" in e.cause and not self.world.silences.may_leave(e.node)
        judged = is_calm(self.world.seed) and self.world.seed not in TWICE
        demand(not silent or not judged, f"R4: {e.node} leaves the node list for the log's silence")

    def heard(self, p: Process, event: ev.Event) -> None:
        """The log acknowledges: what was sent for an epoch that was given up is nobody's any more (W1, W3)."""
        claimed = p.partition.state.role in CLAIMANT or p.partition.leading is not None
        if claimed and isinstance(event, ev.Appended) and event.tag < p.partition.campaign.opening.first_tag:
            self.world.cover.hit("acknowledged behind its epoch")

    def epoch_ended(self, p: Process, why: str) -> None:
        """Where nothing goes wrong but that servers are away, each acknowledgement is the one that was expected."""
        counted = why.startswith("append ") and "acknowledged at" in why
        demand(not counted or not is_calm(self.world.seed), f"W3: {p.name} ends its epoch: {why}")

    def _watch(self) -> None:
        """W4: what the log did not acknowledge in time is given up, and not before."""
        world = self.world
        if world.healed:
            return
        limit = world.settings.commit_deadline_ms + TICK_MS + LATE_MS
        for p in world.processes():
            leading = p.partition.leading
            if leading is not None and leading.writer.queue and not p.paused and p.rate == 1.0:
                age = p.clock() - leading.writer.queue[0].since_ms
                demand(age <= limit, f"W4: {p.name} waits for the log for {age} ms")
        world.engine.at(TICK_MS, self._watch)

    # --- the coordinator ---

    def _coordinator_goes(self, rng: random.Random, lasts: float) -> None:
        """For everybody; each has a new session at a time of its own."""
        world = self.world
        if world.healed:
            return
        world.cover.hit("coordinator outage")
        world.engine.say("--- the coordinator is away ---")
        for p in list(world.processes()):
            if p.coordinator.up:
                world.coordinator.lose(p.coordinator)
                world.engine.at(lasts + rng.uniform(0.0, 60.0), process_faults.renew_session, world, p)
