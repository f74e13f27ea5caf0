"""Records of a later version of halog in a cluster of two versions (U1), told on the simulated cluster: who does not
know a record stops before it, and nobody else stops."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from halog.core.roles import Role
from halog.core.table.preference import NEVER
from halog.core.table.table import Group
from halog.events import COPY_STOPS, LATER_RECORD, UNLOGGED_LOST
from tests.scenarios.cluster import EPOCH_MS, Cluster, Talk
from tests.scenarios.test_unlogged_traces import happened, nobody_leads, told
from tests.sim.client import KEYS, Transaction
from tests.sim.later import Versions, versions

pytestmark = pytest.mark.feature("U1")


class Rolling(Cluster):
    """A cluster in the middle of an upgrade."""

    of: Versions

    def later(self, key: bytes = KEYS[1], at: str = "A") -> Transaction:
        """A transaction that `at` is to write in the later way."""
        tx = self.transaction(key, at)
        self.of.written.add(tx.id)
        return tx

    def written(self) -> tuple[Transaction, Talk]:
        """The active has written one, and everybody has had time to meet it."""
        tx = self.later()
        talk = self.submit(tx, "A", ms=EPOCH_MS)
        return tx, talk

    def lsn(self, name: str) -> int:
        return self.node(name).partition.state.chain.state.lsn

    def upgrade(self, name: str) -> None:
        """It is stopped, and started with the later version."""
        self.world.crash(name)
        self.of.earlier = self.world.checks.may_stop = self.of.earlier - {name}
        self.world.start(name)

    def upgraded(self) -> None:
        """All are started anew with the later version; then all is well."""
        self.of.earlier = self.world.checks.may_stop = frozenset()
        for name in self.world.nodes:
            if self.world.nodes[name].process is not None:
                self.world.crash(name)
            self.world.start(name)
        self.run(EPOCH_MS)
        self.well()


@contextmanager
def rolling(earlier: str, *, unlogged: bool = False) -> Iterator[Rolling]:
    """A is active and B its sync replica; `earlier` are not upgraded yet. There is one commit that all know."""
    of = Versions(earlier)
    with versions(of):
        c = Rolling(unlogged=unlogged)
        c.of = of
        c.world.checks.may_stop = of.earlier
        c.started()
        c.commit()
        c.run()
        yield c


def test_a_replica_stops_before_it_and_the_active_goes_on_without_that_replica() -> None:
    """The sync replica is dropped like one that lags; the commit waits for it until then, and no longer."""
    with rolling("BC") as c:
        before = c.lsn("B")
        tx = c.later()
        talk = c.submit(tx, "A", ms=30)
        assert talk.said == [], "B has not got it"
        c.run(EPOCH_MS)
        assert happened(talk)
        assert (c.role("B"), c.role("C"), c.lsn("B"), c.lsn("C")) == (Role.FAILED, Role.FAILED, before, before)
        assert c.world.coordinator.table.replicas == ()
        c.run(10 * EPOCH_MS)
        assert (told(c, LATER_RECORD), told(c, COPY_STOPS)) == (2, 0), "each says so once"
        c.commit(KEYS[2])
        c.upgraded()
        assert c.committed(tx) == 1


def test_a_copy_that_stopped_is_no_candidate() -> None:
    """B is preferred to C, and cannot read on: C is elected, which can."""
    with rolling("B") as c:
        tx, talk = c.written()
        assert happened(talk)
        c.world.crash("A")
        c.run(EPOCH_MS)
        assert c.active == "C"
        assert c.role("B") is Role.FAILED
        c.commit(KEYS[2], at="C")
        c.upgraded()
        assert c.committed(tx) == 1


def test_where_nobody_is_left_who_can_read_it_nobody_serves() -> None:
    with rolling("BC") as c:
        tx, _ = c.written()
        c.world.crash("A")
        c.run(5 * EPOCH_MS)
        assert nobody_leads(c)
        c.world.start("A")
        c.run(EPOCH_MS)
        assert c.active == "A"
        assert c.committed(tx) == 1
        c.upgraded()


def test_a_node_that_meets_it_while_it_opens_an_epoch_gives_the_partition_up() -> None:
    """B has not read it when A is gone, and claims. It reads on, up to what it does not know."""
    with rolling("B") as c:
        c.node("B").reader.stuck = True
        c.world.crash("C")
        tx = c.later()
        c.submit(tx, "A", ms=10)
        c.world.crash("A")
        c.until("B", Role.STARTING)
        c.world.start("C")
        c.node("B").reader.unstick()
        c.until("B", Role.FAILED)
        c.run(EPOCH_MS)
        assert c.world.coordinator.table.active != c.node("B").me
        assert c.active == "C"
        c.upgraded()
        assert c.committed(tx) == 1


def test_what_is_pushed_and_not_known_is_not_acknowledged() -> None:
    """The log has not got it yet, so nobody knows whether it counts: B neither holds it nor stops."""
    with rolling("BC") as c:
        held = c.hold_appends("A")
        tx = c.later()
        talk = c.submit(tx, "A", ms=30)
        assert (c.role("B"), len(c.node("B").partition.state.held.run)) == (Role.FOLLOWING, 0)
        held.land()
        c.run(20)
        assert talk.said == []
        assert c.role("B") is Role.FAILED
        c.run(EPOCH_MS)
        assert happened(talk)
        c.upgraded()


def test_where_commits_do_not_wait_for_the_log_they_wait_for_whoever_does_not_know_the_record() -> None:
    with rolling("BC", unlogged=True) as c:
        held = c.hold_appends("A")
        tx = c.later()
        talk = c.submit(tx, "A", ms=30)
        assert talk.said == []
        assert c.role("B") is Role.FOLLOWING
        c.world.crash("A")
        c.run(EPOCH_MS)
        assert c.active == "B", "it never counted, and nobody was told that it did"
        held.land()
        c.run(EPOCH_MS)
        assert c.committed(tx) == 0
        c.upgraded()


def test_who_cannot_read_what_a_holder_has_beyond_the_log_does_not_go_on_without_it() -> None:
    """B is never to be active, and holds what A acknowledged; C, of the earlier version, would have to append it."""
    with rolling("C", unlogged=True) as c:
        table = c.world.coordinator.table
        c.world.coordinator.put(msgspec.structs.replace(table, group=Group(priorities={"B": NEVER})))
        c.run(20)
        c.hold_appends("A")
        tx = c.later()
        assert happened(c.submit(tx, "A", ms=5))
        c.world.crash("A")
        c.run(EPOCH_MS)
        assert nobody_leads(c)
        assert (c.role("C"), told(c, LATER_RECORD), told(c, UNLOGGED_LOST)) == (Role.FAILED, 1, 0)
        c.world.start("A")
        c.run(EPOCH_MS)
        assert c.active == "A"
        assert c.committed(tx) == 1
        assert told(c, UNLOGGED_LOST) == 0


# --- by chance ---


def write(c: Rolling, rng: random.Random) -> None:
    """The active commits, and writes it in the later way now and then, if it can."""
    if (at := c.active) is None:
        return
    tx = c.transaction(rng.choice(KEYS), at)
    if at not in c.of.earlier and rng.random() < 0.3:
        c.of.written.add(tx.id)
    c.submit(tx, at)


def fall(c: Rolling, rng: random.Random) -> None:
    """A node dies, unless one is down; then that one comes back."""
    down = [name for name, node in c.world.nodes.items() if node.process is None]
    if down:
        c.world.start(down[0])
    else:
        c.world.crash(rng.choice(list(c.world.nodes)))


def upgrade(c: Rolling, rng: random.Random) -> None:
    """A node is stopped, and started with the later version; all others are up."""
    if c.of.earlier and all(node.process is not None for node in c.world.nodes.values()):
        c.upgrade(rng.choice(sorted(c.of.earlier)))


def stick(c: Rolling, rng: random.Random) -> None:
    """A node reads nothing for a while, or reads again."""
    name = rng.choice(list(c.world.nodes))
    if (process := c.world.nodes[name].process) is not None:
        if process.reader.stuck:
            process.reader.unstick()
        else:
            process.reader.stuck = True


def doubt(c: Rolling, rng: random.Random) -> None:
    """The others take a node for dead, and elect; a moment later they see it again."""
    name = rng.choice(list(c.world.nodes))
    if c.world.nodes[name].process is not None:
        c.doubt(name)
        c.run(rng.uniform(20.0, 150.0))
        c.trust(name)


STEPS: tuple[Callable[[Rolling, random.Random], None], ...] = (write, write, write, write, fall, upgrade, stick, doubt)


def upgraded_by_chance(seed: int) -> None:
    rng = random.Random(seed)
    with rolling(rng.choice(("B", "C", "BC", "AB", "ABC")), unlogged=seed % 3 == 2) as c:
        for _ in range(30):
            rng.choice(STEPS)(c, rng)
            c.run(rng.choice((1.0, 5.0, 20.0, 100.0, 300.0)))
        for node in c.world.nodes.values():
            if node.process is not None:
                node.process.reader.unstick()
            else:
                c.world.start(node.name)
        c.run(EPOCH_MS)
        for name in sorted(c.of.earlier):
            c.upgrade(name)
            c.run(EPOCH_MS)
        c.well()


@pytest.mark.parametrize("part", range(4))
def test_upgrades_by_chance_lose_nothing_and_end_well(part: int) -> None:
    """Nodes of both versions die, come back, lag, are doubted, and are upgraded one by one while the active commits."""
    for seed in range(part * 10, part * 10 + 10):
        upgraded_by_chance(seed)
