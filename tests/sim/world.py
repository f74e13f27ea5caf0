"""The world of one seed: nodes, log, coordinator, network, clients, faults, and the story they make."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.settings import Settings, Sync
from halog.core.table.group import majority, needed, priority, rank
from halog.core.table.holders import holders
from halog.core.table.preference import NEVER
from halog.core.table.states import StateTracker
from halog.core.table.table import SYNC, Group, PartitionTable
from tests.sim import (
    faults,
    late,
    leases,
    lives,
    moves,
    outages,
    process_faults,
    pushed_store,
    stills,
    stopping,
    trimmed,
    upgrading,
    zones,
)
from tests.sim.checks import Checks
from tests.sim.client import Client, Request, Transaction
from tests.sim.coordinator import FakeCoordinator
from tests.sim.coverage import Coverage
from tests.sim.engine import Engine
from tests.sim.log import FakeLog
from tests.sim.members import Members
from tests.sim.nature import Nature
from tests.sim.node import Node, Process
from tests.sim.outages import Outages
from tests.sim.parted import Parted
from tests.sim.reader import Reader
from tests.sim.shown import Shown
from tests.sim.silences import Silences
from tests.sim.stills import Stills
from tests.sim.store import Disk
from tests.sim.story import short
from tests.sim.upgrading import Upgrade
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.bank_world import Bank

LOG_ID = bytes(range(16))
SITE = "here"

SETTINGS = Settings(
    commit_deadline_ms=300,
    discarded_ms=300,
    start_deadline_ms=250,
    election_ms=30,
    stand_back_ms=80,
    start_grace_ms=250,
    drain_ms=120,
    handed_ms=80,
    retry_ms=30,
    ack_every_ms=40,
    silent_ms=150,
    min_stay_ms=0,
    ready_lag=3,
)
"""The production deadlines, some ten times shorter, so that a short history meets them all."""


GROUPED = 3
"""Every eleventh history, from this one on, has a quorum, and operators who change priorities and the number required;
roles go back to the preferred node. (No other history is changed by it: what once failed there is replayed.)"""


def is_grouped(seed: int) -> bool:
    return seed % 11 == GROUPED


UNLOGGED_SEEDS = range(5, 1 << 21, 7)
"""In these histories commits do not wait for the log (R6: local NO_SYNC)."""


def is_unlogged(seed: int) -> bool:
    own = lives.given(seed) or late.given(seed) or outages.given(seed) or upgrading.given(seed)
    return (
        seed in UNLOGGED_SEEDS
        or pushed_store.is_rough(seed)
        or (own and seed % 7 == 5)
        or (stills.given(seed) and seed % 3 == 0)
    )


def is_away(seed: int) -> bool:
    """Is the log away in it, while those who hold what it lacks go one after the other?"""
    may = seed % 5 >= 2 and not outages.is_calm(seed)  # what once failed in the others is replayed
    return may and is_unlogged(seed)


ASKING = (0, 2)
"""Of every thirteen histories, in these clients ask for less than the policy, or for more (R6)."""


def is_asking(seed: int) -> bool:
    return seed % 13 in ASKING


def is_less(seed: int) -> bool:
    """Do most of them ask for less in it, while the log is away?"""
    return is_asking(seed) and not is_unlogged(seed) and seed % 5 >= 2 and not outages.is_calm(seed)


SETTINGS_OF = (SETTINGS, SETTINGS, SETTINGS, msgspec.structs.replace(SETTINGS, remote_sync=Sync.WRITE_NO_SYNC))
"""Every fourth history has replicas that store before they acknowledge (R6)."""


def first_table(name: str, nodes: tuple[str, ...], sync: int, home: str, *, grouped: bool) -> PartitionTable:
    """The partition's table as it was defined."""
    quorum = majority(len(nodes)) if grouped else 0
    return PartitionTable(name, LOG_ID.hex(), "t", 0, "policy", nodes, sync, quorum, home=home, owner=home)


class World:
    """Everything, and the verbs that tests and faults use."""

    def __init__(
        self,
        seed: int,
        *,
        names: Sequence[str] = ("A", "B", "C"),
        sync_replicas: int = 1,
        calm: bool = False,
        clients: int = 2,
        quota: int = 0,
        keep: int = 50_000,
        verbose: bool = False,
        settings: Settings | None = None,
        engine: Engine | None = None,
        partition: str = "p",
        site: str = SITE,
        home: str = "",
        judge: type[Checks] = Checks,
    ) -> None:
        """`home`: the other site where the partition's history begins; "": this one."""
        self.seed = seed
        self.unlogged = is_unlogged(seed)
        self.asking = is_asking(seed)
        self.less = is_less(seed)
        self.leased = leases.given(seed) and not self.unlogged
        grouped = is_grouped(seed)
        self.settings = self._settings(settings or SETTINGS_OF[seed % len(SETTINGS_OF)], grouped=grouped)
        self.engine = engine or Engine(seed, verbose=verbose)
        self.bank: Bank | None = None
        """Of which this is one partition."""
        self.cover = Coverage()
        self.nature = Nature(self.engine.rng, calm=calm)
        self.checks = judge(self)
        self.log = FakeLog(self.engine, self.nature, self.cover)
        self.site = site
        nodes = moves.first_home(seed, names)
        table = first_table(partition, nodes, sync_replicas, home, grouped=grouped)
        self.coordinator = FakeCoordinator(self.engine, self.nature, self.cover, self.checks, table)
        self.members, self.parted = Members(self), Parted(self)
        self.cuts: set[tuple[str, str]] = set()
        self.gone: set[str] = set()
        """Nodes that died for good."""
        self.requests: dict[int, Request] = {}
        self.pushed: list[ev.Pushed] = []
        """Every push ever sent."""
        self.snapshot: trimmed.Snapshot | None = None
        """The newest; the log may begin there."""
        self.fault_phase_ms = 0.0
        self.healed = False
        self.lives: dict[Member, StateTracker] = {}
        """What each run of a node took for the partition's state."""
        self.operator = random.Random(seed)
        """What operators do is drawn from it: it disturbs nothing else."""
        self._tokens = 0
        self._transactions = 0
        self._hand_overs: set[int] = set()
        self._arrives: dict[tuple[str, str], float] = {}
        self.nodes = {n: Node(self, n, Disk(table.beginning(site), keep)) for n in names}
        self.reader, self.shown, self.outages, self.stills = Reader(self), Shown(self), Outages(self), Stills(self)
        self.silences = Silences(self)
        self.upgrade = Upgrade(self)
        self.clients = [Client(self, f"client{i}", quota=quota) for i in range(clients)]

    def _settings(self, settings: Settings, *, grouped: bool) -> Settings:
        """As this history has them."""
        given: dict[str, Any] = {"min_stay_ms": 150} if grouped else {}
        if self.unlogged:
            given |= {"local_sync": Sync.NO_SYNC, "remote_sync": pushed_store.remote_sync(self.seed, settings)}
        if self.leased:
            given |= leases.SETTINGS
        return msgspec.structs.replace(settings, **given)

    def rate(self, me: Member) -> float:
        """How fast the clock of this process runs."""
        return leases.rate(self.seed, me)

    # --- who is there ---

    def processes(self) -> Iterator[Process]:
        return (n.process for n in list(self.nodes.values()) if n.process is not None)

    def transactions(self) -> Iterator[Transaction]:
        for c in self.clients:
            yield from c.done
            if c.current is not None:
                yield c.current

    def active(self) -> Process | None:
        """Whoever leads the znode's epoch and serves."""
        for p in self.processes():
            leading = p.partition.leading
            if p.partition.state.role is Role.ACTIVE and leading and leading.epoch == self.coordinator.table.epoch:
                return p
        return None

    # --- verbs ---

    def start(self, name: str, *, wipe: bool = False) -> None:
        node = self.nodes[name]
        if node.process is not None or name in self.gone:
            return
        if wipe and not stopping.given(self.seed) and not pushed_store.is_rough(self.seed):
            if pushed_store.sets_aside(self.seed):
                pushed_store.set_aside(node)
            else:
                node.disk.wipe()
        if not self.upgrade.may_start(name):
            return
        trimmed.started(self, node.disk)
        self.engine.say(f"{name} starts{' with an empty disk' if wipe else ''}")
        node.start()

    def crash(self, name: str) -> None:
        self.engine.say(f"{name} is killed")
        process = self.nodes[name].process
        if process is not None and stopping.given(self.seed):
            stopping.stop(self, process)
        self.nodes[name].crash()
        if process is not None:
            pushed_store.lose_power(self, self.nodes[name], process)
        self.members.changed(name)
        if self.leased and process is not None:
            leases.witness(self, process)

    def _accept_loss(self) -> None:
        """The operator: what is with nodes that died for good, or in stores that were set aside, does not come back."""
        table = self.coordinator.table
        wanted, there = holders(table), {p.me for p in self.processes()}
        disks = [(m.incarnation, self.nodes[m.node].disk) for m in wanted if m.node in self.nodes]
        aside = any(disk.since is not None and run not in disk.since for run, disk in disks)
        if wanted and (aside or any(m.node in self.gone for m in wanted)) and not wanted & there:
            self.checks.given_up(by_operator=True)
            self.coordinator.give_up_unlogged()

    def run(self, ms: float) -> None:
        self.engine.run(self.engine.now + ms)

    # --- network ---

    def send(self, src: str, dst: str, event: ev.Event) -> None:
        """A frame between nodes: late, lost, or twice."""
        if (src, dst) in self.cuts or self.nature.chance(self.nature.drop):
            return
        process = self.nodes[dst].process if dst in self.nodes else None
        if process is None:
            return
        self.engine.at(self.nature.delay(self.nature.net), process.deliver, event)
        if self.nature.chance(self.nature.duplicate):
            again = self.nature.delay(self.nature.net) * self.engine.rng.choice((3, 300))
            self.engine.at(again, process.deliver, event)

    def to_server(self, src: str, target: Process, request: ev.Submitted, epoch: int) -> None:
        """A client's request: in order with the earlier ones it sent to that process (one connection)."""
        route = (src, target.name)
        at = max(self._arrives.get(route, 0.0), self.engine.now + self.nature.delay(self.nature.net))
        self._arrives[route] = at
        if not self.nature.chance(self.nature.drop):
            self.engine.at(at - self.engine.now, target.submit, request, epoch)

    def ask(self, src: str, target: Process, request: ev.Asked | ev.DecideAsked | ev.BarrierAsked) -> None:
        self.engine.at(self.nature.delay(self.nature.net), target.deliver, request)

    def answer(self, p: Process, token: int, result: res.Result) -> None:
        """A reply on its way to whoever asked."""
        if token in self._hand_overs:
            self.cover.hit(f"hand-over {type(result).__name__}")
            return
        request = self.requests.get(token)
        if self.bank is not None:
            self.bank.answer(self, p, token, result)
        if request is not None and not self.nature.chance(self.nature.drop):
            delay = self.nature.delay(self.nature.net)
            self.engine.at(delay, request.client.answered, request, token, result)

    def asked_for(self, p: Process, e: fx.Spread | fx.AskDecision | fx.MergeDue | fx.AskVote) -> None:
        """A copy needs something of other partitions; of other sites in histories that have some."""
        assert self.bank is not None
        assert not isinstance(e, fx.MergeDue | fx.AskVote)
        self.bank.told(p, e)

    def new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def request(self, request: Request) -> int:
        token = self.new_token()
        self.requests[token] = request
        return token

    def hand_over_token(self) -> int:
        token = self.new_token()
        self._hand_overs.add(token)
        return token

    def next_transaction(self) -> int:
        self._transactions += 1
        return self._transactions

    # --- the story ---

    def heal(self) -> None:
        """Everything works from now on; what is still on its way arrives."""
        self.engine.say("--- healed ---")
        self.healed = True
        self.nature.calm()
        self.reader.stop()
        self.outages.heal()
        self.cuts.clear()
        for session in self.log.sessions:
            if session.frozen:
                session.thaw()
        self.upgrade.heal()
        for n in self.nodes:
            if self.nodes[n].process is None:
                process_faults.restart(self, n, False)
        self.members.doubts.clear()
        zones.all_back(self)
        if moves.is_moving(self.seed):
            lives.last_word(self)
            moves.last_wish(self)
        elif is_grouped(self.seed):  # the operators too: everybody as usual, and no waiting for the dead
            left, quorum = len(self.nodes) - len(self.gone), self.coordinator.table.quorum
            self.coordinator.regroup(Group(required=left if left < quorum else 0))
        if self.unlogged:
            self._accept_loss()
        for p in self.processes():
            if self.leased:
                leases.reach(self, p)
            faults.resume(self, p)
            p.reader.unstick()
            process_faults.renew_session(self, p)

    def unwell(self) -> str:
        """Why the healed world is not yet as it should be, or ''."""
        active = self.active()
        if active is None:
            return "no node is active"
        busy = [c.current.name for c in self.clients if c.current is not None]
        if busy or not all(c.idle for c in self.clients):
            return f"clients still wait: {busy}"
        if owed := self.reader.unanswered():
            return f"readers still wait for {owed}"
        if active.partition.leading is not None and active.partition.leading.writer.queue:
            return "the log has not all of it"
        table = self.coordinator.table
        if elsewhere := moves.elsewhere(self):
            return elsewhere
        sync = max(table.sync_replicas, needed(table, active.name) - 1)
        if sum(r.kind == SYNC for r in table.replicas) != min(sync, len(table.replicas)):
            return f"the sync set is {table.sync_set}"
        for p in moves.copies(self):
            if (
                p.partition.state.chain.state.lsn != active.partition.state.chain.state.lsn
                or p.copy.hash != active.copy.hash
            ):
                return (
                    f"{p.name} is at {p.partition.state.chain.state.lsn}, not {active.partition.state.chain.state.lsn}"
                )
            if p.shown:
                return f"{p.name} shows what the log does not have: {p.shown}"
        roles = self._not_returned(table) or self._sealed(table)
        return lives.unwell(self) or zones.unwell(self) or roles or self.upgrade.unwell()

    def _sealed(self, table: PartitionTable) -> str:
        """Sync replicas that hold nothing of what is pushed in the epoch that is led now (E1)."""
        there = [p for p in self.processes() if p.me in table.sync_set] if self.unlogged else []
        sealed = [p.name for p in there if p.partition.state.held.sealed >= table.epoch.number]
        return f"{sealed} hold nothing that is pushed in epoch {table.epoch.number}" if sealed else ""

    def _not_returned(self, table: PartitionTable) -> str:
        able = [n for n in table.node_list if priority(table, n) != NEVER]
        if not self.settings.min_stay_ms or not able or table.active is None:
            return ""
        first = min(able, key=lambda n: rank(table, n))
        return "" if table.active.node == first else f"{table.active.node} is active, {first} is preferred"

    def settle(self, within_ms: float) -> None:
        """Liveness: all is well within `within_ms` of virtual time, or Violation says what is not."""
        end = self.engine.now + within_ms
        while self.engine.now < end:
            self.run(20.0)
            if not self.unwell():
                return
            if self.unlogged and self.active() is None and end - self.engine.now < within_ms / 2:
                self._accept_loss()  # a holder died after the healing, another one for good before it
        raise Violation(f"liveness: {within_ms:.0f} ms after healing {self.unwell()}")

    def narrate(self, p: Process, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """For `-v`."""
        if isinstance(event, ev.Ticked) and not effects:
            return
        self.engine.say(f"{p.name}/{p.me.incarnation} {p.partition.state.role.value:9} {short(event)}")
        for e in effects:
            self.engine.say(f"{'':>14}→ {short(e)}")
