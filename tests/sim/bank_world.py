"""A bank of several partitions, each a world of its own on one clock, and what is promised of its accounts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import digest
from halog.core.table.states import State, StateChange
from tests.sim import belated, counts
from tests.sim.coverage import Coverage
from tests.sim.engine import Engine
from tests.sim.violation import Violation
from tests.sim.world import SETTINGS_OF, World

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.teller import Deal, Seen, Teller

ACCOUNTS = (b"aaaa", b"bbbb", b"cccc")
"""Of each partition."""
BALANCE = 100
LIVENESS_MS = 6_000.0
"""After healing. Twice as long where there are dozens of partitions: a few go through all of them, one by one."""
REF = bytes(24)
Heard = Callable[[res.Result, "Process"], None]


class Bank:
    """Several partitions in one world."""

    def __init__(
        self, seed: int, *, verbose: bool = False, calm: bool = False, worlds: int = 0, nodes: int = 0
    ) -> None:
        chance = random.Random(seed * 7919 + 3)
        self.seed = seed
        self.engine = Engine(seed, verbose=verbose)
        self.cover = Coverage()
        self.keep = chance.choice((3, 10_000, 10_000))
        if belated.given(seed):
            self.keep = belated.KEEP
        """Decisions remembered."""
        self.names = tuple(f"p{i}" for i in range(worlds or counts.partitions(seed, chance.choice((2, 2, 3)))))
        self.cover.hit(counts.told(len(self.names)))
        calm = calm or chance.random() < 0.3
        self.worlds: dict[str, World] = {}
        for name in self.names:
            world = self.worlds[name] = self._partition(name, chance, nodes, calm=calm)
            world.bank = self
        self.waiting: dict[tuple[str, int], Heard] = {}
        self.healed = False
        self.tellers: list[Teller] = []
        self.audits: list[Seen] = []
        """What each audit that went through has read of every account."""
        self.length = 0.0

    def _partition(self, name: str, chance: random.Random, nodes: int, *, calm: bool) -> World:
        seed = chance.randrange(1 << 20)
        count = nodes or chance.choice((2, 2, 3))
        settings = msgspec.structs.replace(SETTINGS_OF[seed % 4], doubt_ms=150, max_outcomes=self.keep)
        return World(
            seed,
            names=("A", "B", "C")[:count],
            sync_replicas=chance.choice((0, 1, 1)),
            clients=0,
            calm=calm,
            settings=settings,
            engine=self.engine,
            partition=name,
        )

    # --- asking ---

    def target(self, name: str, attempt: int = 0) -> Process | None:
        """Somebody who says to be active, zombies included."""
        leading = [p for p in self.worlds[name].processes() if p.partition.leading is not None and not p.unreached]
        able = [p for p in leading if p.partition.state.chain.state.led >= attempt]
        return self.engine.rng.choice(able) if able else None

    def token(self, name: str, heard: Heard) -> int:
        token = self.worlds[name].new_token()
        self.waiting[name, token] = heard
        return token

    def answer(self, world: World, p: Process, token: int, result: res.Result) -> None:
        """A reply on its way to whoever asked."""
        heard = self.waiting.get((world.coordinator.table.name, token))
        if heard is not None and not world.nature.chance(world.nature.drop):
            self.engine.at(world.nature.delay(world.nature.net), heard, result, p)

    def send(self, name: str, request: ev.DecideAsked | ev.BarrierAsked, target: Process) -> None:
        world = self.worlds[name]
        if not world.nature.chance(world.nature.drop):
            world.ask("", target, request)

    # --- states of partitions ---

    keeps_states = False
    """Does each process keep the state of its partition?"""

    def updating(self, p: Process) -> bool:
        """Do objects go from or to its partition, as this process knows?"""
        return False

    def looked(self, p: Process, state: State, steps: Sequence[StateChange]) -> None:
        """A process has looked at its partition's state."""

    # --- partitions among each other ---

    def told(self, p: Process, e: fx.Spread | fx.AskDecision) -> None:
        """What `halog.runtime` does for them: one attempt each."""
        if isinstance(e, fx.AskDecision):
            self.cover.hit("asked the first partition")
            self._ask(e.first, e.tx, lambda result, _: self._decided(p, e.tx, result), commit=False, decides=True)
            return
        for name in e.to:
            self._ask(name, e.tx, lambda r, _, name=name: self._copied(p, e, name, r), commit=e.commit, decides=False)  # type: ignore[misc]

    def _ask(self, name: str, tx: bytes, heard: Heard, *, commit: bool, decides: bool) -> None:
        target = self.target(name)
        if target is not None:
            self.send(name, ev.DecideAsked(self.token(name, heard), tx, commit, decides), target)

    def _decided(self, p: Process, tx: bytes, result: res.Result) -> None:
        if isinstance(result, res.Success | res.ExpiredId | res.OppositeDecision):
            self.cover.hit(f"first partition said {type(result).__name__}")
            commit = isinstance(result, res.OppositeDecision)
            p.deliver(ev.DecideAsked(0, tx, commit, False))

    def _copied(self, p: Process, e: fx.Spread, name: str, result: res.Result) -> None:
        if isinstance(result, res.Success | res.ExpiredId) and e.commit:
            p.deliver(ev.Confirmed(e.tx, name))
        assert not isinstance(result, res.OppositeDecision), f"T2: {name} has decided {e.tx.hex()} otherwise"

    # --- the story ---

    def deals(self) -> list[Deal]:
        """All that were presented to anybody."""
        return [d for t in self.tellers for d in t.done]

    def heal(self) -> None:
        self.healed = True
        for world in self.worlds.values():
            world.heal()
        for teller in self.tellers:
            teller.quota = 1
            teller.begin()

    def unwell(self) -> str:
        for name, world in self.worlds.items():
            if why := world.unwell():
                return f"{name}: {why}"
            active = world.active()
            assert active is not None
            assert active.partition.leading is not None
            if active.partition.state.ledger.undecided:
                return f"{name}: {len(active.partition.state.ledger.undecided)} in doubt"
            if active.partition.leading.votes.unconfirmed or active.partition.leading.writer.locks:
                return f"{name}: unconfirmed or locked"
        waiting = [t.name for t in self.tellers if t.deal is not None or t.quota > 0]
        return f"tellers still wait: {waiting}" if waiting else ""

    def settle(self) -> None:
        within = LIVENESS_MS * (2 if counts.is_many(len(self.names)) else 1)
        end = self.engine.now + within
        while self.engine.now < end:
            self.engine.run(self.engine.now + 20.0)
            if not self.unwell():
                return
            for world in self.worlds.values():
                if world.unlogged and world.active() is None and end - self.engine.now < within / 2:
                    world._accept_loss()
        raise Violation(f"liveness: {within:.0f} ms after healing {self.unwell()}")


def digest_of(*parts: object) -> bytes:
    """Of a whole transaction."""
    return digest(repr(parts).encode())
