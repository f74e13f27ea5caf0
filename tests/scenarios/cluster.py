"""A simulated cluster that does as it is told: the world of tests/sim, calm, driven by a script instead of chance."""

from __future__ import annotations

from halog.core import events as ev, results as res
from halog.core.durability import Durability
from halog.core.ids import ABSENT
from halog.core.roles import Role
from halog.core.settings import Sync
from tests.sim import leases, moves, stopping
from tests.sim.client import KEYS, Client, Request, Transaction
from tests.sim.node import Process
from tests.sim.twin import Accepted, history
from tests.sim.world import UNLOGGED_SEEDS, World, is_asking, is_grouped, is_unlogged

EPOCH_MS = 400.0
"""Longer than any deadline of the simulated settings."""


def _moving_seed() -> int:
    """Of a world in which nodes follow the table, and the partition is on two of three to begin with; no more."""
    for seed in moves.SEEDS:
        plain = not (is_grouped(seed) or is_unlogged(seed) or is_asking(seed) or leases.given(seed))
        if plain and seed % 4 == 1 and moves.first_home(seed, "ABC") == ("A", "B"):
            return seed
    raise AssertionError


MOVING = _moving_seed()

UNLOGGED = {Sync.NO_SYNC: UNLOGGED_SEEDS[0], Sync.WRITE_NO_SYNC: 19, Sync.SYNC: 103}
"""By what replicas are asked for, where commits do not wait for the log."""

STOPPING = stopping.SEEDS[2]
"""Of a plain one, in which B has told nobody its position since the first epoch was claimed."""


class Talk(Request):
    """A scripted request: keeps what was said, in order."""

    def __init__(self, client: Client, tx: Transaction, *, asked: bool) -> None:
        super().__init__(client, tx, asked=asked)
        self.said: list[res.Result] = []


class Narrator(Client):
    """A client without a will of its own."""

    def answered(self, request: Request, token: int, result: res.Result) -> None:
        assert isinstance(request, Talk)
        request.said.append(result)


class Cluster:
    """Verbs to tell a story with. `A` is active and `B` its sync replica once `started`; `moving`: C has no copy then,
    and nodes make and drop theirs as the table says; `remote`: of one that is `unlogged`; `stops`: likewise, and
    copies stop, where processes would merely die."""

    def __init__(
        self,
        names: str = "ABC",
        *,
        sync: int = 1,
        unlogged: bool = False,
        remote: Sync = Sync.NO_SYNC,
        leased: bool = False,
        moving: bool = False,
        stops: bool = False,
    ) -> None:
        plain = leases.SEEDS[0] if leased else MOVING if moving else 1
        seed = STOPPING if stops else UNLOGGED[remote] if unlogged else plain
        self.world = World(seed, names=tuple(names), sync_replicas=sync, calm=True, clients=0)
        self.world.nature.abandoned_lost = 0.0
        self.teller = Narrator(self.world, "teller", quota=0)
        self.world.clients.append(self.teller)
        if moving:
            self.world.engine.at(moves.LOOK_MS, moves.look, self.world)

    def started(self) -> Cluster:
        for name in self.world.nodes:
            self.world.start(name)
        self.run(200)
        assert self.active == "A"
        return self

    # --- what one sees ---

    def run(self, ms: float = 50.0) -> None:
        self.world.run(ms)

    def node(self, name: str) -> Process:
        process = self.world.nodes[name].process
        assert process is not None, f"{name} is down"
        return process

    def role(self, name: str) -> Role:
        return self.node(name).partition.state.role

    def leads(self, name: str) -> bool:
        return self.node(name).partition.leading is not None

    @property
    def active(self) -> str | None:
        process = self.world.active()
        return None if process is None else process.name

    @property
    def history(self) -> list[Accepted]:
        return history(self.world.log.entries)

    def committed(self, tx: Transaction) -> int:
        """How often it is in the accepted history."""
        return sum(a.record.header.tx == tx.id for a in self.history)

    # --- what one does ---

    def transaction(self, key: bytes = KEYS[0], at: str = "A", durability: Durability | None = None) -> Transaction:
        """An update (or create) of `key` on what `at` shows now."""
        version = self.node(at).version(key)
        tx = self.teller.make([(key, version)] if version != ABSENT else [], [self.teller.change(key, version)])
        tx.durability = durability
        self.teller.done.append(tx)
        return tx

    def submit(self, tx: Transaction, to: str, *, ms: float = 0.0) -> Talk:
        talk = Talk(self.teller, tx, asked=False)
        target = self.node(to)
        request = ev.Submitted(self.world.request(talk), tx.id, tx.reads, tx.changes, {}, durability=tx.durability)
        target.submit(request, target.partition.state.chain.state.led)
        tx.attempt = max(tx.attempt, target.partition.state.chain.state.led)
        self.run(ms)
        return talk

    def commit(self, key: bytes = KEYS[0], at: str = "A") -> Transaction:
        """A transaction that goes through."""
        tx = self.transaction(key, at)
        talk = self.submit(tx, at, ms=50)
        assert [type(r) for r in talk.said] == [res.Success], talk.said
        return tx

    def ask(self, tx: Transaction, of: str) -> res.Result:
        """What became of `tx`, says `of` at once."""
        talk = Talk(self.teller, tx, asked=True)
        self.node(of).deliver(ev.Asked(self.world.request(talk), tx.id, tx.attempt))
        self.run(5)
        return talk.said[-1]

    def hold_appends(self, of: str) -> Held:
        """What `of` sends to the log stays on its way."""
        session = self.node(of).session
        assert session is not None
        session.freeze()
        return Held(self, of)

    def until(self, name: str, *roles: Role) -> None:
        """Run to the moment in which `name` has one of the roles."""
        for _ in range(10_000):
            if self.role(name) in roles:
                return
            self.run(0.1)
        raise AssertionError(f"{name} is {self.role(name).value}")

    def doubt(self, whom: str) -> None:
        """Everybody takes `whom` for dead."""
        self.world.members.everybody_doubts(whom)

    def trust(self, whom: str) -> None:
        self.world.members.everybody_trusts(whom)

    def hand_over(self, frm: str, to: str) -> None:
        self.node(frm).deliver(ev.HandOverAsked(self.world.hand_over_token(), to))

    def well(self) -> None:
        """Heal, and see that all is well and every promise was kept."""
        self.world.heal()
        self.world.settle(3_000.0)
        self.world.checks.finish()


class Held:
    """Appends on their way."""

    def __init__(self, cluster: Cluster, of: str) -> None:
        self.session = cluster.node(of).session
        self.cluster = cluster

    def land(self) -> None:
        """They arrive now."""
        assert self.session is not None
        self.session.thaw()
        self.cluster.run(20)
