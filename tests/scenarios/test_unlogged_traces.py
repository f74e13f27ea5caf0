"""The traces of protocol.md where commits do not wait for the log (R6: local NO_SYNC), told on the simulated cluster.

In each of them something was acknowledged that the log never took from its writer; `well()` finds it there once.
"""

from __future__ import annotations

import pytest

from halog.core import events as ev, results as res
from halog.core.log import records
from halog.core.roles import Role
from halog.core.table.preference import NEVER
from halog.core.table.table import Group
from halog.events import UNLOGGED_AWAY, UNLOGGED_LOST, Kind
from tests.scenarios.cluster import EPOCH_MS, Cluster, Held, Talk
from tests.sim.client import KEYS, Transaction

pytestmark = pytest.mark.feature("R6", "P1")


def started(names: str = "ABC", *, sync: int = 1) -> Cluster:
    c = Cluster(names, sync=sync, unlogged=True).started()
    c.commit()
    return c


def happened(talk: Talk) -> bool:
    return [type(r) for r in talk.said] == [res.Success]


def unlogged(c: Cluster, at: str = "A", key: bytes = KEYS[1]) -> tuple[Held, Transaction]:
    """A commit that is acknowledged while the log takes nothing from `at`."""
    held, tx = c.hold_appends(at), c.transaction(key, at)
    assert happened(c.submit(tx, at, ms=5))
    assert c.committed(tx) == 0
    return held, tx


def nobody_leads(c: Cluster) -> bool:
    return c.active is None


def told(c: Cluster, kind: Kind) -> int:
    return c.world.cover.counts[kind.name]


def test_acknowledged_and_visible_before_the_log_has_it() -> None:
    c = started()
    held, tx = unlogged(c)
    assert c.node("A").version(KEYS[1]) == 3
    assert c.node("C").version(KEYS[1]) == -1, "an async replica shows what the log has"
    assert happened(c.submit(tx, "A", ms=5)), "the same id again"
    held.land()
    assert c.committed(tx) == 1
    c.well()


def test_4_who_told_its_position_acknowledges_no_push_of_that_epoch() -> None:
    """B told C its position: what A pushes from then on is acknowledged only once B has read it from the log."""
    c = started()
    c.node("B").deliver(ev.PositionAsked("C", 1))
    held = c.hold_appends("A")
    talk = c.submit(c.transaction(), "A", ms=30)
    assert talk.said == []
    held.land()
    c.run(50)
    assert happened(talk)
    c.well()


def test_5_an_elected_node_that_restarts_empty_is_no_holder() -> None:
    """B held it, was elected, and comes back empty: it stands back until A, who had it in flight, answers."""
    c = started("AB")
    _, tx = unlogged(c)
    c.node("A").pause()
    c.doubt("A")
    c.until("B", Role.STARTING)
    c.world.crash("B")
    c.world.start("B", wipe=True)
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    assert told(c, UNLOGGED_AWAY) == 1
    c.node("A").wake()
    c.trust("A")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    assert told(c, UNLOGGED_LOST) == 0
    c.well()


def test_5_an_elected_node_that_restarts_empty_holds_nothing_for_the_zombie() -> None:
    """B promised epoch 2 not to hold what A pushes, and has forgotten it with all else: the znode reminds it, before it
    stands and promises anew. The log could not: `EpochStarted(2)` died with B's last run."""
    c = started()
    a = c.node("A")
    c.world.coordinator.lose(a.coordinator)
    c.doubt("A")
    while c.world.coordinator.table.epoch.number == 1:
        c.run(0.1)
    c.world.crash("B")
    c.world.crash("C")
    c.trust("A")
    c.world.start("B", wipe=True)
    c.until("B", Role.FOLLOWING)
    c.run(5)
    b = c.node("B").partition
    assert (c.role("B"), b.state.held.sealed) == (Role.FOLLOWING, 0)
    assert (b.state.chain.state.epoch.number, b.state.table.epoch.number) == (1, 2)
    talk = c.submit(c.transaction(), "A")
    leading = a.partition.leading
    assert leading is not None
    commit = leading.writer.queue[-1].record
    c.node("B").deliver(ev.Pushed(a.me, commit.header.epoch, (records.encode(commit),)))
    assert not b.state.held.run
    c.run(30)
    assert talk.said == []
    c.well()


def test_7_a_dead_holder_stays_in_the_sync_set_until_the_log_has_what_it_holds() -> None:
    """B dies: the znode keeps it, since a node that never heard of the commit could win without it."""
    c = started("AB")
    held, tx = unlogged(c)
    b = c.node("B").me
    c.world.crash("B")
    c.run(100)
    assert c.world.coordinator.table.sync_set == {b}
    held.land()
    c.run(60)
    assert c.world.coordinator.table.sync_set == frozenset()
    c.world.start("B")
    c.run(100)
    assert c.committed(tx) == 1
    c.well()


def test_8_nobody_joins_while_it_lacks_what_is_in_flight() -> None:
    """B comes back while a commit is only in A's memory: it is a member once the log has brought it, not before; and
    what was submitted meanwhile waited for the log, since the znode named nobody."""
    c = started("AB")
    c.world.crash("B")
    c.run(100)
    assert c.world.coordinator.table.sync_set == frozenset()
    held = c.hold_appends("A")
    tx = c.transaction()
    talk = c.submit(tx, "A", ms=5)
    c.world.start("B")
    c.run(100)
    assert talk.said == []
    assert c.world.coordinator.table.sync_set == frozenset()
    held.land()
    c.run(100)
    assert happened(talk)
    assert c.world.coordinator.table.sync_set == {c.node("B").me}
    c.well()


def test_11_an_unacknowledged_record_of_a_deposed_node_does_not_beat_an_acknowledged_one() -> None:
    """A, deposed, has lsn 3 to 5 of epoch 1 in memory, which nobody acknowledged. Epoch 2 acknowledged another lsn 4,
    which only C holds, a node that never leads. D hears C's tail, then A's, which is longer, and appends C's."""
    c = started("ABCD")
    c.world.coordinator.regroup(Group(priorities={"C": NEVER}))
    c.run(20)
    c.hold_appends("A")
    c.world.cuts.add(("A", "B"))
    mine = [c.submit(c.transaction(k), "A") for k in KEYS[1:]]
    c.node("A").reader.stuck = True
    c.doubt("A")
    c.run(EPOCH_MS)
    assert c.active == "B"
    assert [r.header.lsn for r in c.node("A").partition.state.tail.run] == [3, 4, 5]
    assert c.world.coordinator.table.sync_set == {c.node("C").me}
    _, tx = unlogged(c, "B", KEYS[3])
    c.trust("A")
    c.run(20)
    c.node("A").pause()
    c.world.crash("B")
    c.until("D", Role.ELECTING)
    c.run(10)
    c.node("A").wake()
    c.run(EPOCH_MS)
    assert c.active == "D"
    assert c.committed(tx) == 1
    assert not any(happened(talk) for talk in mine)
    c.well()


def test_12_the_tail_outlives_a_new_active_that_dies_before_it_appended_it() -> None:
    """A dies, B claims and dies on `EpochStarted`: C, which holds nothing, waits until one of them answers; A and B
    restarted have forgotten, so C goes on, and says what was lost."""
    c = started()
    _, tx = unlogged(c)
    c.world.crash("A")
    c.until("B", Role.OPENING)
    c.hold_appends("B")
    c.world.crash("B")
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    assert told(c, UNLOGGED_AWAY) == 1
    c.world.start("A")
    c.run(EPOCH_MS)
    assert nobody_leads(c), "B may still have it, as far as anybody knows"
    c.world.start("B")
    c.run(EPOCH_MS)
    assert c.active is not None
    assert told(c, UNLOGGED_LOST) >= 1
    assert c.committed(tx) == 0
    c.well()


def test_12_the_tail_of_a_replica_outlives_an_epoch_that_never_opened() -> None:
    """Two replicas hold it. B claims, starts its epoch and dies: C kept what it held, and appends it again."""
    c = started("ABCD", sync=2)
    _, tx = unlogged(c)
    c.world.crash("A")
    c.until("B", Role.OPENING)
    c.hold_appends("B")
    c.world.crash("B")
    c.run(EPOCH_MS)
    assert c.active == "C"
    assert c.committed(tx) == 1
    again = next(a.record for a in c.history if a.record.header.tx == tx.id)
    assert again.header.lsn == 3
    c.well()


@pytest.mark.parametrize("fence", ["znode", "log"])
def test_15_what_a_fence_voids_a_replica_may_append_again(fence: str) -> None:
    """A is deposed with the commit on its way, and B appends it again: the caller that asks A is not told "no",
    wherever A learns it, the late append counts for nothing, and the commit is there once."""
    c = started()
    held = c.hold_appends("A")
    tx = c.transaction()
    c.world.cuts.add(("B", "A"))  # pushed, never acknowledged
    talk = c.submit(tx, "A", ms=5)
    if fence == "log":
        c.world.coordinator.lose(c.node("A").coordinator)
    c.doubt("A")
    c.run(40)
    assert c.active == "B"
    assert c.leads("A") is (fence == "log")
    held.land()
    c.run(20)
    assert not c.leads("A")
    assert c.world.cover.counts["verifying: deposed"] == (fence == "log")
    assert not any(isinstance(r, res.Abort) for r in [*talk.said, c.ask(tx, "A"), c.ask(tx, "B")])
    assert c.committed(tx) == 1
    c.well()


def test_16_nobody_denies_it_between_the_start_of_an_epoch_and_its_opening() -> None:
    """B has read its own `EpochStarted`; the append that brings the commit again is held: unknown, then it happened."""
    c = started()
    _, tx = unlogged(c)
    tx.attempt = 1
    c.world.crash("A")
    c.until("B", Role.OPENING)
    held = c.hold_appends("B")
    c.run(20)
    assert [isinstance(c.ask(tx, n), res.Unknown) for n in "BC"] == [True, True]
    held.land()
    c.run(20)
    assert c.active == "B"
    assert [c.ask(tx, n) for n in "BC"] == [res.Success(3), res.Success(3)]
    c.well()


def test_18_a_hand_over_spares_nobody_the_holders_of_a_later_epoch() -> None:
    """C has read `HandedOver(1)` and nothing behind it. B, to whom A handed over, and A hold what epoch 2 acknowledged,
    and neither answers: C waits for them."""
    c = started()
    c.hand_over("A", "B")
    c.until("A", Role.HANDING)
    while not c.node("C").partition.state.chain.state.closed_for:
        c.run(0.1)
    c.node("C").reader.stuck = True
    c.run(EPOCH_MS)
    assert c.active == "B"
    _, tx = unlogged(c, "B")
    c.world.crash("B")
    c.node("A").pause()
    c.doubt("A")
    c.run(EPOCH_MS)
    assert c.node("C").partition.state.chain.state.closed_for == "B"
    assert nobody_leads(c)
    assert c.world.coordinator.table.epoch.number == 2
    assert told(c, UNLOGGED_AWAY) == 1
    c.node("A").wake()
    c.trust("A")
    c.node("C").reader.unstick()
    c.run(EPOCH_MS)
    assert c.active is not None
    assert c.committed(tx) == 1
    c.well()


def test_a_zombie_that_still_leads_is_no_holder() -> None:
    """A is deposed and does not know; B dies before it has appended A's commit again. C may lead and A never may: A's
    answer counts once A has given up, and put what it had in flight into its tail."""
    c = started()
    _, tx = unlogged(c)
    c.world.coordinator.regroup(Group(priorities={"A": NEVER}))
    c.run(20)
    c.world.coordinator.lose(c.node("A").coordinator)
    c.doubt("A")
    c.until("B", Role.STARTING)
    c.world.crash("B")
    c.node("A").reader.stuck = True
    c.trust("A")
    c.run(150)
    assert c.leads("A")
    assert nobody_leads(c)
    assert told(c, UNLOGGED_AWAY) == 1
    c.world.coordinator.renew(c.node("A").coordinator)
    c.run(EPOCH_MS)
    assert c.active == "C"
    assert c.committed(tx) == 1
    c.well()


def test_a_log_that_is_away_for_long_ends_the_epoch_and_loses_nothing() -> None:
    """Nothing A sends arrives: it gives up, names itself a holder, and whoever leads next appends all of it again."""
    c = started()
    held, tx = unlogged(c)
    more = [c.transaction(k) for k in KEYS[2:]]
    assert all(happened(c.submit(t, "A", ms=2)) for t in more)
    c.run(EPOCH_MS + 200)
    assert c.active is not None
    assert [c.committed(t) for t in (tx, *more)] == [1, 1, 1]
    held.land()
    assert [c.committed(t) for t in (tx, *more)] == [1, 1, 1]
    c.well()


def test_what_stopped_copies_brought_along_is_told_before_they_are_opened() -> None:
    """A and B, which hold the commit, stop and are started anew. C, which does not, asks them while they open their
    copies: they tell it what lay on their disks, and C appends it again. Nobody could later."""
    c = Cluster("ABC", stops=True).started()
    c.commit()
    _, tx = unlogged(c)
    for name in "AB":
        c.world.crash(name)
    c.run(EPOCH_MS)
    assert nobody_leads(c)
    for name in "AB":
        c.world.start(name)
        c.node(name).opens_at = c.world.engine.now + EPOCH_MS
    c.until("C", Role.ACTIVE)
    assert {c.role(name) for name in "AB"} == {Role.LOADING}
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    c.well()
