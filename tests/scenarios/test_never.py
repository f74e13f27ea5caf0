"""The manual's example of a node that is never to be active (Q2): a group of three, the second replica is Never, the
first is running behind. What only the active and the Never node have would go with the active, since the other one is
elected. Told where commits do not wait for the log: there memory is all there is.
"""

from __future__ import annotations

import msgspec
import pytest

from halog.core import results as res
from halog.core.roles import Role
from halog.core.table.preference import NEVER
from halog.core.table.table import Group
from halog.events import NO_QUORUM, UNLOGGED_LOST
from tests.scenarios.cluster import EPOCH_MS, Cluster
from tests.sim.client import KEYS

pytestmark = pytest.mark.feature("Q2", "R7")


def behind(*, count_never: bool) -> Cluster:
    """A is active with a quorum of two, C is Never, and B neither hears A nor reads the log."""
    c = Cluster(unlogged=True).started()
    group = Group(priorities={"C": NEVER})
    table = msgspec.structs.replace(c.world.coordinator.table, quorum=2, count_never=count_never, group=group)
    c.world.coordinator.put(table)
    c.run(20)
    c.commit()
    c.node("B").reader.stuck = True
    c.world.cuts.add(("A", "B"))
    return c


def b_recovers(c: Cluster) -> None:
    c.world.cuts.clear()
    c.node("B").reader.unstick()


def test_what_only_a_never_node_has_is_not_acknowledged() -> None:
    """By default: the commit waits for B, though C has it; new ones are refused by name once B is given up."""
    c = behind(count_never=False)
    talk = c.submit(c.transaction(), "A", ms=EPOCH_MS)
    assert c.node("C").partition.state.chain.state.lsn == c.node("A").partition.state.chain.state.lsn
    assert talk.said == []
    assert c.world.cover.counts[NO_QUORUM.name] == 1
    assert c.submit(c.transaction(KEYS[1]), "A", ms=5).said == [res.Shortage(1, 2)]
    c.world.crash("A")
    b_recovers(c)
    c.run(EPOCH_MS)
    assert c.active == "B"
    assert c.role("C") is Role.FOLLOWING
    c.well()


def test_count_never_acknowledges_it_and_the_node_that_is_elected_fetches_it() -> None:
    """The policy asks for it, so A and C are enough. A dies; B is elected though C is more recent, and appends what it
    lacked from C's memory: the manual's loss does not happen."""
    c = behind(count_never=True)
    assert [type(r) for r in c.submit(c.transaction(), "A", ms=EPOCH_MS).said] == [res.Success]
    assert c.world.coordinator.table.sync_set == {c.node("C").me}
    c.hold_appends("A")
    tx = c.transaction(KEYS[1])
    assert [type(r) for r in c.submit(tx, "A", ms=5).said] == [res.Success]
    assert c.committed(tx) == 0
    c.world.crash("A")
    b_recovers(c)
    c.run(EPOCH_MS)
    assert c.active == "B"
    assert c.committed(tx) == 1
    assert c.world.cover.counts[UNLOGGED_LOST.name] == 0
    c.well()


def test_a_never_node_votes_and_takes_over_from_nobody() -> None:
    """A and B are down: C leads nobody. B comes back, and with C's answer it is elected."""
    c = behind(count_never=True)
    assert [type(r) for r in c.submit(c.transaction(), "A", ms=EPOCH_MS).said] == [res.Success]
    c.world.crash("B")
    c.world.crash("A")
    c.run(EPOCH_MS)
    assert c.active is None
    c.world.cuts.clear()
    c.world.start("B")
    c.run(EPOCH_MS)
    assert c.active == "B", "two of three answered: itself and C"
    c.well()
