"""The traces that broke the first protocol (the numbers are those of protocol.md), told on the simulated cluster.

Each must end well: `well()` heals the world, waits until all copies are equal, and checks every promise.
"""

from __future__ import annotations

import pytest

from halog.core import events as ev, results as res
from halog.core.log import records
from halog.core.roles import Role
from tests.scenarios.cluster import EPOCH_MS, Cluster, Talk
from tests.sim.client import KEYS


@pytest.mark.feature("P1", "R5")
def test_1_an_append_lands_after_its_writer_timed_out() -> None:
    """The writer never says "did not happen", never goes on in the same epoch; the late append counts for nothing."""
    c = Cluster().started()
    c.commit()
    epoch = c.world.coordinator.table.epoch
    held = c.hold_appends("A")
    tx = c.transaction()
    talk = c.submit(tx, "A", ms=EPOCH_MS)
    assert [type(r) for r in talk.said] == [res.Unknown]
    assert c.world.coordinator.table.epoch > epoch
    held.land()
    assert c.committed(tx) == 0
    assert c.ask(tx, "A") == res.Abort()
    c.well()


@pytest.mark.feature("P1", "P10")
def test_2_reading_to_the_end_proves_nothing_about_a_held_append() -> None:
    """The active is killed with an append on its way; a replica that has read all says "unknown", and is right."""
    c = Cluster().started()
    held = c.hold_appends("A")
    tx = c.transaction()
    c.submit(tx, "A", ms=5)
    c.world.crash("A")
    assert isinstance(c.ask(tx, "B"), res.Unknown)
    held.land()
    assert c.ask(tx, "B") == res.Success(2)
    c.run(EPOCH_MS)
    assert c.ask(tx, c.active or "") == res.Success(2)
    c.well()


@pytest.mark.feature("P1", "P10", "X2")
def test_3_a_zombie_does_not_deny_what_the_next_epoch_committed() -> None:
    """The paused active wakes up and is asked about a transaction committed meanwhile under epoch 2."""
    c = Cluster().started()
    c.node("A").pause()
    c.doubt("A")
    c.run(EPOCH_MS)
    assert c.active == "B"
    tx = c.commit(at="B")
    zombie = c.node("A")
    zombie.reader.stuck = True
    zombie.wake()
    assert isinstance(c.ask(tx, "A"), res.Unknown)
    zombie.reader.unstick()
    c.run()
    assert isinstance(c.ask(tx, "A"), res.Success)
    c.well()


@pytest.mark.feature("P1", "P10")
def test_4_who_told_its_position_acknowledges_no_push_of_that_epoch() -> None:
    """C asks B for its position; what A pushes to B afterwards counts once B has read it from the log, not before."""
    c = Cluster().started()
    c.commit()
    c.node("B").deliver(ev.PositionAsked("C", 1))
    c.node("B").reader.stuck = True
    tx = c.transaction()
    talk = c.submit(tx, "A", ms=30)
    assert not c.node("B").partition.state.held.run
    assert talk.said == []
    c.node("B").reader.unstick()
    c.run(50)
    assert [type(r) for r in talk.said] == [res.Success]
    c.well()


@pytest.mark.feature("P10")
def test_5_an_elected_node_that_restarts_empty_confirms_nothing_it_does_not_hold() -> None:
    """B is elected, dies and comes back empty while the zombie A still writes: A gets no answer through."""
    c = Cluster("AB").started()
    c.node("A").pause()
    c.doubt("A")
    c.run(EPOCH_MS)
    assert c.active == "B"
    c.world.crash("B")
    c.world.start("B", wipe=True)
    c.node("A").wake()
    talk = c.submit(c.transaction(at="A"), "A", ms=5)
    c.run(EPOCH_MS)
    assert not any(isinstance(r, res.Success) for r in talk.said)
    c.well()


@pytest.mark.feature("R1", "R4")
def test_6_shrink_and_election_cannot_both_go_through() -> None:
    """Sync set and epoch are one znode: the old active's shrink is refused once the next one has claimed."""
    c = Cluster().started()
    c.commit()
    a = c.node("A")
    c.world.coordinator.lose(a.coordinator)
    c.doubt("A")
    c.run(150)
    assert c.active == "B"
    assert c.leads("A")
    table = c.world.coordinator.table
    c.world.coordinator.renew(a.coordinator)
    a.deliver(ev.AliveChanged(frozenset({a.me}), "cut off"))
    a.deliver(ev.AliveChanged(frozenset({a.me, c.node("B").me}), "again in touch"))
    c.run()
    assert c.world.coordinator.table.epoch == table.epoch
    assert not c.leads("A")
    c.well()


@pytest.mark.feature("R1", "R4")
def test_7_the_active_waits_for_a_dead_replica_until_the_znode_has_let_it_go() -> None:
    """B is dead and A's coordinator does not answer: the commit waits; it returns when the znode is shrunk."""
    c = Cluster("AB").started()
    c.commit()
    c.world.coordinator.lose(c.node("A").coordinator)
    c.world.crash("B")
    talk = c.submit(c.transaction(), "A", ms=200)
    assert talk.said == []
    c.world.coordinator.renew(c.node("A").coordinator)
    c.run(100)
    assert [type(r) for r in talk.said] == [res.Success]
    assert c.world.coordinator.table.sync_set == frozenset()
    c.well()


@pytest.mark.feature("R1")
def test_8_a_replica_joins_only_after_it_caught_up_and_never_across_an_election() -> None:
    """B comes back far behind: it is no sync member before it has confirmed all."""
    c = Cluster("AB").started()
    c.world.crash("B")
    c.run(100)
    for _ in range(4):
        c.commit()
    c.world.start("B")
    c.node("B").reader.stuck = True
    c.run(100)
    assert c.world.coordinator.table.sync_set == frozenset()
    c.node("B").reader.unstick()
    c.run(100)
    assert c.world.coordinator.table.sync_set == {c.node("B").me}
    c.well()


@pytest.mark.feature("P1")
def test_10_an_append_is_lost_for_good_and_the_one_behind_it_lands() -> None:
    """A log without the gapless guarantee: every reader voids the epoch, and nothing behind the hole was answered."""
    c = Cluster().started()
    held = c.hold_appends("A")
    lost, behind = c.transaction(KEYS[0]), c.transaction(KEYS[1])
    first = c.submit(lost, "A", ms=2)
    second = c.submit(behind, "A", ms=5)
    assert held.session is not None
    del held.session.held[0]
    held.land()
    c.run(EPOCH_MS)
    assert [type(r) for r in first.said + second.said] == [res.Unknown, res.Unknown]
    assert c.committed(lost) == c.committed(behind) == 0
    c.well()


@pytest.mark.feature("P10", "X2")
def test_13_the_start_of_epoch_1_lands_behind_that_of_epoch_2() -> None:
    """A's `EpochStarted` is held; B starts a higher epoch; A reads that it lost and does not serve."""
    c = Cluster("AB")
    for name in "AB":
        c.world.start(name)
    while c.role("A") is not Role.STARTING:
        c.run(0.1)
    held = c.hold_appends("A")
    c.run(5)
    c.doubt("A")
    c.run(150)
    assert c.active == "B"
    held.land()
    assert not c.leads("A")
    starts = [records.decode(e.data).header.epoch.number for e in c.world.log.entries]
    assert starts.index(2) < starts.index(1)
    c.commit(at="B")
    c.well()


@pytest.mark.feature("P10", "P1", "X2")
def test_14_a_higher_epoch_hides_in_front_of_a_dead_record_in_the_gap() -> None:
    """The entry right before A's late commit is of a dead epoch, further up hides B's start: A reads the whole gap."""
    c = Cluster().started()
    c.commit()
    held = c.hold_appends("A")
    tx = c.transaction()
    talk = c.submit(tx, "A", ms=5)
    c.doubt("A")
    a = c.node("A")
    c.world.coordinator.lose(a.coordinator)
    c.run(150)
    assert c.active == "B"
    dead = c.world.log.entries[0]
    c.world.log.land(dead)
    assert c.leads("A")
    held.land()
    assert not c.leads("A")
    assert [type(r) for r in talk.said] == [res.Unknown]
    assert c.committed(tx) == 0
    assert c.world.cover.counts["verifying: deposed"] == 1
    c.well()


@pytest.mark.feature("Q5", "P1")
def test_17_nothing_is_acknowledged_behind_a_hand_over_whose_answer_was_lost() -> None:
    """`HandedOver` is on its way for longer than a drain may take: A answers nobody, and gives up the epoch."""
    c = Cluster().started()
    c.commit()
    c.hand_over("A", "B")
    while c.role("A") in (Role.ACTIVE, Role.DRAINING):
        c.run(0.1)
    assert c.role("A") is Role.HANDING
    held = c.hold_appends("A")
    talk = c.submit(c.transaction(), "A", ms=200)
    assert [type(r) for r in talk.said] == [res.InactiveCopy]
    assert c.role("A") is Role.HANDING
    held.land()
    c.run(60)
    assert c.active == "B"
    c.well()


@pytest.mark.feature("Q5", "P1")
def test_18_a_hand_over_counts_only_for_the_znode_version_that_names_its_epoch() -> None:
    """A handed over to C; C slept, B opened epoch 2 and acknowledged; C wakes on `HandedOver(1)` and gets nothing."""
    c = Cluster(sync=2).started()
    c.commit()
    c.hand_over("A", "C")
    while c.role("A") in (Role.ACTIVE, Role.DRAINING):
        c.run(0.1)
    c.node("C").pause()
    c.run(20)
    c.doubt("C")
    c.run(EPOCH_MS)
    assert c.active in ("A", "B")
    acknowledged = c.commit(at=c.active or "")
    c.node("C").wake()
    c.run(5)
    assert c.active in ("A", "B")
    c.trust("C")
    c.run()
    assert c.committed(acknowledged) == 1
    c.well()


def test_a_planned_hand_over_takes_a_few_milliseconds_and_loses_nothing() -> None:
    """Commits before and behind it all count; the successor claims as soon as it reads `HandedOver`."""
    c = Cluster().started()
    before = c.commit()
    c.hand_over("A", "B")
    c.run(25)
    assert c.active == "B"
    after = c.commit(at="B")
    assert c.committed(before) == c.committed(after) == 1
    c.well()


@pytest.mark.feature("P1", "P10")
def test_15_and_16_what_a_replica_holds_is_never_appended_again() -> None:
    """A dies with an append on its way that B holds. B leads without it, commits it once when it is asked to, and the
    late append counts for nothing."""
    c = Cluster().started()
    c.commit()
    held = c.hold_appends("A")
    tx = c.transaction()
    talk = c.submit(tx, "A", ms=10)
    assert [r.lsn for r in c.node("B").partition.state.held.run] == [3]
    assert talk.said == []
    c.world.crash("A")
    c.run(EPOCH_MS)
    assert c.active == "B"
    assert c.committed(tx) == 0
    assert not c.node("B").partition.state.held.run
    assert c.ask(tx, "B") == res.Abort()
    held.land()
    assert c.committed(tx) == 0
    assert c.ask(tx, "B") == res.Abort()
    c.commit(at="B")
    c.well()


@pytest.mark.feature("P1", "R1")
def test_a_sync_replica_whose_log_is_stuck_acknowledges_what_it_holds_but_not_for_ever() -> None:
    c = Cluster().started()
    c.commit()
    c.node("B").reader.stuck = True
    lsn = c.node("B").partition.state.chain.state.lsn
    c.commit()
    assert c.node("B").partition.state.chain.state.lsn == lsn
    for _ in range(10):
        c.commit()
    assert c.world.cover.counts["silent replica left"] == 1
    c.well()


@pytest.mark.feature("P10", "R5")
def test_a_killed_active_is_replaced_and_a_commit_in_flight_is_settled_by_its_id() -> None:
    """A is killed between append and answer; the client asks B with the same id, and it happened exactly once."""
    c = Cluster().started()
    c.commit()
    tx = c.transaction()
    talk: Talk = c.submit(tx, "A", ms=1.2)
    c.world.crash("A")
    assert talk.said == []
    c.run(100)
    assert c.active == "B"
    assert [type(r) for r in c.submit(tx, "B", ms=50).said] == [res.Success]
    assert c.committed(tx) == 1
    c.well()


@pytest.mark.feature("Q2")
def test_two_candidates_that_read_on_while_they_ask_lose_no_round() -> None:
    """Each hears from the other one what that holds by now, and it holds as much itself."""
    c = Cluster().started()
    candidates = [c.node(name) for name in "BC"]
    for p in candidates:
        p.reader.stuck = True
    c.submit(c.transaction(), "A", ms=20)
    c.world.crash("A")
    for p in candidates:
        p.deliver(ev.AliveChanged(frozenset(o.me for o in candidates), "A died"))
        p.deliver(ev.Ticked())
    assert {c.role("B"), c.role("C")} == {Role.ELECTING}
    for p in candidates:
        p.reader.unstick()
        p.reader._fetch(p.reader.generation)
    c.run(c.world.settings.stand_back_ms / 2)
    assert c.active == "B"
    assert c.leads("B")
    c.well()
