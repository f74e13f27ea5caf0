"""The traces of protocol.md that are about leases, and what else may read when it must not (R5).

`well()` checks as ever; besides, whenever anybody is told anything, whoever holds a lease must show it.
"""

from __future__ import annotations

from typing import Any

import pytest

from halog.core import events as ev, results as res
from halog.core.roles import Role
from tests.scenarios.cluster import Cluster
from tests.sim import leases

pytestmark = pytest.mark.feature("R5")
LEASE_MS = float(leases.SETTINGS["lease_ms"])


def leased(**how: Any) -> Cluster:
    """A leads, and has its lease."""
    c = Cluster(leased=True, **how).started()
    c.commit()
    c.run(LEASE_MS)
    assert leases.valid(c.node("A"))
    return c


def cut_off(c: Cluster) -> None:
    """A is taken for dead, and neither told of it nor answered by the coordinator."""
    c.node("A").coordinator.lag = c.node("A").coordinator.blind = 5_000.0
    c.doubt("A")


@pytest.mark.feature("R5", "P10")
def test_3_a_zombie_that_reads_under_its_lease_has_missed_nothing() -> None:
    """B has the epoch at once, and waits: while A may read, nobody is told of anything A does not show. A transaction
    that B found in the log is not said to have happened either, by nobody."""
    c = leased()
    tx = c.transaction()
    c.node("A").deaf = 5_000.0
    talk = c.submit(tx, "A", ms=5)
    cut_off(c)
    c.until("B", Role.OPENING)
    assert c.committed(tx) == 1
    assert talk.said == []
    while leases.valid(c.node("A")):
        assert c.role("B") is Role.OPENING
        assert isinstance(c.ask(tx, "B"), res.Unknown)
        assert isinstance(c.ask(tx, "C"), res.Unknown)
    assert [type(r) for r in c.submit(c.transaction(), "B", ms=1).said] == [res.InactiveCopy]
    c.until("B", Role.ACTIVE)
    assert not leases.valid(c.node("A"))
    assert isinstance(c.ask(tx, "B"), res.Success)
    c.node("A").deaf = 0.0
    leases.reach(c.world, c.node("A"))
    c.well()


@pytest.mark.feature("R5", "Q5")
def test_19_who_hands_over_reads_no_more_before_its_last_record_can_land() -> None:
    """The successor commits at once, though the old active has not heard that its `HandedOver` landed: it had given up
    its lease before it was sent."""
    c = leased(sync=0)
    c.node("A").coordinator.blind = 5_000.0
    c.hand_over("A", "B")
    c.until("A", Role.HANDING)
    c.node("A").deaf = 5_000.0
    assert not leases.valid(c.node("A"))
    c.until("B", Role.ACTIVE)
    assert c.role("A") is Role.HANDING
    before = c.world.engine.now
    c.commit(at="B")
    assert c.world.engine.now - before < LEASE_MS / 2
    leases.reach(c.world, c.node("A"))
    c.well()


@pytest.mark.feature("R5", "P10")
def test_the_word_of_its_host_spares_the_wait() -> None:
    c = leased()
    dead = c.node("A").me
    c.world.nodes["A"].crash()
    c.world.members.changed("A")
    c.until("B", Role.OPENING)
    c.run(LEASE_MS / 4)
    assert c.role("B") is Role.OPENING
    c.node("B").deliver(ev.Died(dead))
    assert c.role("B") is Role.ACTIVE
    c.well()


def test_a_claimant_that_dies_while_it_waits_passes_its_wait_on() -> None:
    """A reads on under its lease; B waited for that and died, for certain. C waits all the same."""
    c = leased(sync=2)
    cut_off(c)
    c.until("B", Role.OPENING)
    dead = c.node("B").me
    c.world.nodes["B"].crash()
    c.world.members.changed("B")
    c.until("C", Role.OPENING)
    c.node("C").deliver(ev.Died(dead))
    c.run(5)
    assert leases.valid(c.node("A"))
    assert c.role("C") is Role.OPENING
    c.until("C", Role.ACTIVE)
    assert not leases.valid(c.node("A"))
    leases.reach(c.world, c.node("A"))
    c.well()


def test_a_coordinator_put_back_gives_nobody_a_lease_before_the_log_has_agreed() -> None:
    """A was stopped in epoch 1, and epoch 2 is B's. The znode of epoch 1 comes back, A wakes and is named: it gets no
    lease, since its record does not land in its own epoch any more."""
    c = leased()
    c.node("A").pause()
    c.doubt("A")
    c.until("B", Role.ACTIVE)
    c.commit(at="B")
    assert c.world.coordinator.restore()
    c.world.coordinator.lose(c.node("B").coordinator)  # B goes on: the log takes what it writes
    c.node("A").wake()
    c.node("A").deliver(ev.SessionLost())
    for _ in range(20):
        c.run(LEASE_MS / 10)
        assert not leases.valid(c.node("A")) or c.active == "A"
    c.well()
