"""Replicas that store what they are pushed before they acknowledge it, where commits do not wait for the log (R6: local
NO_SYNC, remote WRITE_NO_SYNC or SYNC; decision 38), told on the simulated cluster.

In each of them something was acknowledged that the log never took from its writer, and everybody dies.
"""

from __future__ import annotations

import msgspec
import pytest

from halog.core.log import records
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.preference import NEVER
from halog.core.table.table import Group
from halog.events import UNLOGGED_AWAY, UNLOGGED_LOST
from tests.scenarios.cluster import EPOCH_MS, Cluster
from tests.scenarios.test_unlogged_traces import nobody_leads, told, unlogged
from tests.sim import pushed_store
from tests.sim.client import KEYS, Transaction
from tests.sim.store import Disk

pytestmark = pytest.mark.feature("R6", "P1")


def acknowledged(remote: Sync = Sync.WRITE_NO_SYNC) -> tuple[Cluster, Transaction]:
    """A commit that B has stored, and the log does not have."""
    c = Cluster(unlogged=True, remote=remote).started()
    c.commit()
    _, tx = unlogged(c)
    return c, tx


def kill(c: Cluster, names: str) -> None:
    for name in names:
        c.world.crash(name)


def start(c: Cluster, names: str, *, wiped: str = "") -> None:
    for name in names:
        c.world.start(name, wipe=name in wiped)


def lose_power(c: Cluster, name: str) -> None:
    """Of what its disk was given, what was not flushed is gone."""
    node = c.world.nodes[name]
    safe = node.disk.safe
    assert safe is not None
    node.disk = safe.image()
    node.disk.safe = safe


@pytest.mark.parametrize("remote", [Sync.WRITE_NO_SYNC, Sync.SYNC])
def test_it_is_acknowledged_before_the_log_has_it_and_after_the_disk_has(remote: Sync) -> None:
    c, tx = acknowledged(remote)
    disk = c.world.nodes["B"].disk
    assert [records.decode(data).header.tx for data in disk.pushed.values()] == [tx.id]
    assert disk.stood == (1,)
    c.well()


def test_with_sync_it_is_not_acknowledged_before_it_is_flushed() -> None:
    c = Cluster(unlogged=True, remote=Sync.SYNC).started()
    c.commit()
    c.world.nature.ack = (30.0, 30.0)
    c.hold_appends("A")
    talk = c.submit(c.transaction(KEYS[1]), "A", ms=25)
    assert c.world.nodes["B"].disk.pushed
    assert talk.said == []
    c.run(10)
    assert len(talk.said) == 1


@pytest.mark.parametrize("remote", [Sync.WRITE_NO_SYNC, Sync.SYNC])
def test_all_processes_die_at_once_and_it_is_appended_again(remote: Sync) -> None:
    c, tx = acknowledged(remote)
    kill(c, "ABC")
    start(c, "ABC")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_all_machines_lose_power_and_it_is_appended_again() -> None:
    c, tx = acknowledged(Sync.SYNC)
    kill(c, "ABC")
    lose_power(c, "B")
    start(c, "ABC")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


@pytest.mark.parametrize("wiped", ["", "A"])
def test_nobody_goes_on_before_the_replica_is_back(wiped: str) -> None:
    """A served: what it acknowledged was in its memory. C held nothing."""
    c, tx = acknowledged()
    kill(c, "ABC")
    start(c, "AC", wiped=wiped)
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    assert told(c, UNLOGGED_LOST) == 0
    assert told(c, UNLOGGED_AWAY) > 0
    start(c, "B")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_a_replica_that_comes_back_with_an_empty_disk_has_nothing_and_that_is_told() -> None:
    c, tx = acknowledged()
    kill(c, "ABC")
    start(c, "ABC", wiped="B")
    c.run(2 * EPOCH_MS)
    assert c.committed(tx) == 0
    assert told(c, UNLOGGED_LOST) == 1


def set_aside(c: Cluster, name: str) -> Disk:
    """Its store is damaged; the one it had."""
    node = c.world.nodes[name]
    had = node.disk.image()
    pushed_store.set_aside(node)
    return had


@pytest.mark.parametrize("candidates", ["AB", "AC", "ABC"])
def test_a_store_that_was_set_aside_may_have_it_so_nobody_goes_on(candidates: str) -> None:
    """Decision 49: B's node answers, and cannot tell its tail; alone with A it may be the candidate itself."""
    c, tx = acknowledged()
    kill(c, "ABC")
    had = set_aside(c, "B")
    start(c, candidates)
    start(c, "B")
    c.run(3 * EPOCH_MS)
    assert nobody_leads(c)
    assert told(c, UNLOGGED_LOST) == 0
    assert told(c, UNLOGGED_AWAY) > 0
    kill(c, "B")
    c.world.nodes["B"].disk = had
    start(c, "BC")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_an_operator_gives_up_what_was_set_aside() -> None:
    c, tx = acknowledged()
    kill(c, "ABC")
    set_aside(c, "B")
    start(c, "ABC")
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    c.world._accept_loss()
    c.run(2 * EPOCH_MS)
    assert not nobody_leads(c)
    assert c.committed(tx) == 0


def test_who_was_not_the_holder_is_not_waited_for() -> None:
    """A's store was set aside: what it acknowledged B has stored."""
    c, tx = acknowledged()
    kill(c, "ABC")
    set_aside(c, "A")
    start(c, "ABC")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_a_claimant_that_is_a_holder_by_its_store_dies_before_it_appended() -> None:
    """B claims with what it brought along, and dies; what it brought along stays on its disk, and so does its word."""
    c, tx = acknowledged()
    kill(c, "ABC")
    start(c, "B")
    c.until("B", Role.STARTING)
    c.hold_appends("B")
    kill(c, "B")
    start(c, "ABC")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_a_claimant_that_has_it_of_another_is_no_holder_by_its_store() -> None:
    """C hears it of B, claims, and dies with B: C is back first, and does not go on without B."""
    c, tx = acknowledged()
    group = Group(priorities={"B": NEVER})
    c.world.coordinator.put(msgspec.structs.replace(c.world.coordinator.table, group=group))
    c.run(20)
    kill(c, "A")
    c.until("C", Role.STARTING)
    c.hold_appends("C")
    kill(c, "BC")
    start(c, "AC")
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    start(c, "B")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_nothing_is_given_up_while_a_holder_claims() -> None:
    """All were started anew. A hears of B, which is about to lead, that it has it, and not what."""
    c = Cluster(unlogged=True, remote=Sync.WRITE_NO_SYNC).started()
    tx = c.commit()
    c.run(50)
    kill(c, "ABC")
    c.world.nature.cas = (200.0, 200.0)
    start(c, "B")
    c.until("B", Role.CLAIMING)
    start(c, "AC")
    c.run(EPOCH_MS)
    assert told(c, UNLOGGED_LOST) == 0
    c.world.nature.cas = (0.5, 3.0)
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    c.well()
