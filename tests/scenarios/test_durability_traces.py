"""Transactions that ask for less than their policy, or for more (R6, decision 14), told on the simulated cluster.

Whoever asks for less may lose it with the active; `well()` finds that everything else is as it was promised.
"""

from __future__ import annotations

import pytest

from halog.core import results as res
from halog.core.durability import Durability
from halog.core.ids import ABSENT
from halog.core.log.provisional import early_version
from halog.events import DISCARDED
from tests.scenarios.cluster import EPOCH_MS, Cluster, Held, Talk
from tests.sim.client import KEYS, Transaction

pytestmark = pytest.mark.feature("R6")

EARLY = Durability(local="NO_SYNC")


def started(names: str = "ABC", *, sync: int = 1) -> Cluster:
    c = Cluster(names, sync=sync).started()
    c.commit()
    return c


def happened(talk: Talk) -> bool:
    return [type(r) for r in talk.said] == [res.Success]


def early(c: Cluster, *keys: bytes, at: str = "A") -> tuple[Held, list[Transaction]]:
    """Commits that are answered while the log takes nothing from `at`."""
    held, found = c.hold_appends(at), []
    for key in keys:
        found.append(c.transaction(key, at, EARLY))
        assert happened(c.submit(found[-1], at, ms=5))
    assert not any(map(c.committed, found))
    return held, found


def flushed(c: Cluster, replicas: int = 1) -> Transaction:
    return c.transaction(durability=Durability(remote="SYNC", replicas=replicas))


# --- less ---


def test_it_is_answered_and_shown_by_the_active_alone_and_the_log_has_it_afterwards() -> None:
    c = started()
    held, (tx,) = early(c, KEYS[1])
    assert c.node("A").version(KEYS[1]) == early_version(1, 3)
    assert c.node("B").version(KEYS[1]) == ABSENT, "W7: replicas show what the log confirmed"
    assert happened(c.submit(tx, "A", ms=5)), "the same id again"
    assert c.ask(tx, "A") == res.Success(3)
    held.land()
    assert c.committed(tx) == 1
    assert c.node("A").version(KEYS[1]) == 3
    c.well()


def test_it_goes_with_the_active_and_nobody_waits_for_it() -> None:
    """Any copy that reads the log may lead: what was answered early is gone, and what was answered otherwise is not."""
    c = started()
    kept = c.commit(KEYS[2])
    _, (tx,) = early(c, KEYS[1])
    c.world.crash("A")
    c.world.crash("B")
    c.run(EPOCH_MS)
    assert c.active == "C"
    assert [c.committed(t) for t in (kept, tx)] == [1, 0]
    c.well()
    assert c.committed(tx) == 0


def test_what_was_shown_and_did_not_land_vanishes_and_is_reported() -> None:
    c = started()
    held, lost = early(c, *KEYS[:2])
    c.doubt("A")
    c.until("B", c.node("A").partition.state.role)
    assert c.node("A").version(KEYS[1]) == early_version(1, 4), "a zombie does not know better"
    held.land()
    c.run(EPOCH_MS)
    assert [c.node(n).version(KEYS[1]) for n in "ABC"] == [ABSENT] * 3
    assert [c.committed(t) for t in lost] == [0, 0]
    c.run(EPOCH_MS)
    assert c.world.cover.counts[DISCARDED.name] >= 1
    assert set(c.world.checks.discarded) == {t.id for t in lost}
    c.well()


def test_who_read_what_was_lost_conflicts_though_another_commit_has_its_lsn() -> None:
    """lsn 4 of epoch 1 is lost, lsn 4 of epoch 2 changes the same object: two versions, not one."""
    c = started()
    held, lost = early(c, *KEYS[:2])
    reader = c.transaction(KEYS[1])
    c.doubt("A")
    c.until("B", c.node("A").partition.state.role)
    other = c.commit(KEYS[1], "B")
    assert (lost[1].told_early, other.id in c.world.checks.told) == ({4}, True)
    assert c.world.checks.told[other.id] == 4
    talk = c.submit(reader, "B", ms=20)
    assert [type(r) for r in talk.said] == [res.VersionConflict]
    held.land()
    c.well()


def test_who_read_it_early_commits_on_it_once_the_log_has_it() -> None:
    c = started()
    held, _ = early(c, KEYS[1])
    on_top, later = (c.transaction(KEYS[1]) for _ in range(2))
    talk = c.submit(on_top, "A", ms=5)
    assert talk.said == [], "it waits for the log, and for what it is built on"
    held.land()
    assert happened(talk)
    assert [type(r) for r in c.submit(later, "A", ms=5).said] == [res.VersionConflict]
    c.well()


def test_one_whose_answer_was_lost_happens_once() -> None:
    """A answered, the answer did not arrive, and A is gone: presented again to B, under the same id."""
    c = started()
    _, (tx,) = early(c, KEYS[1])
    c.world.crash("A")
    c.run(EPOCH_MS)
    assert c.active == "B"
    assert happened(c.submit(tx, "B", ms=50))
    c.world.start("A")
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    c.well()


def test_with_no_replica_to_hold_it_the_log_is_waited_for() -> None:
    c = started("AB")
    c.world.crash("B")
    c.run(100)
    held, tx = c.hold_appends("A"), c.transaction(KEYS[1], durability=EARLY)
    talk = c.submit(tx, "A", ms=50)
    assert talk.said == []
    held.land()
    assert happened(talk)
    c.well()


# --- more ---


def test_it_waits_for_as_many_disks_as_it_asked_for_though_a_replica_goes() -> None:
    """C dies before it was told to flush. The node list goes on without it, the transaction does not; C comes back with
    the record in its store, which it never flushed: asked, it does."""
    c = started("ABC", sync=2)
    c.world.cuts.add(("A", "C"))
    tx = flushed(c, 2)
    talk = c.submit(tx, "A", ms=60)
    assert talk.said == []
    assert c.committed(tx) == 1
    c.node("C").copy.flush()
    c.world.crash("C")
    c.run(200)
    assert {m.node for m in c.world.coordinator.table.sync_set} == {"B"}
    assert talk.said == []
    c.world.cuts.clear()
    c.world.start("C")
    c.run(200)
    assert happened(talk)
    c.well()


def test_too_few_replicas_are_there_and_nothing_is_appended() -> None:
    c = started("ABC", sync=2)
    c.world.crash("C")
    c.run(100)
    before = len(c.world.log.entries)
    tx = flushed(c, 2)
    talk = c.submit(tx, "A", ms=20)
    assert talk.said == [res.Shortage(1, 2, "sync replicas")]
    assert len(c.world.log.entries) == before
    tx.denied = "Shortage"
    c.well()


def test_a_question_that_was_lost_is_asked_again() -> None:
    c = started()
    c.world.cuts.add(("A", "B"))
    talk = c.submit(flushed(c), "A", ms=30)
    assert talk.said == [], "B has read it, and does not know that it is to flush"
    c.world.cuts.clear()
    c.run(60)
    assert happened(talk)
    c.well()


def test_an_answer_that_was_lost_is_given_again() -> None:
    c = started()
    c.world.cuts.add(("B", "A"))
    talk = c.submit(flushed(c), "A", ms=30)
    assert talk.said == []
    assert c.world.checks.flushed[c.node("B").me] == 3
    c.world.cuts.clear()
    c.run(60)
    assert happened(talk)
    c.well()


def test_presented_again_to_the_next_active_it_waits_for_that_ones_replica() -> None:
    """The log has it, B leads: B's own disk is not a replica's."""
    c = started()
    c.world.cuts.add(("A", "B"))
    tx = flushed(c)
    c.submit(tx, "A", ms=30)
    c.world.crash("A")
    c.world.cuts.clear()
    c.run(100)
    c.world.cuts.add(("B", "C"))
    talk = c.submit(tx, "B", ms=40)
    assert c.active == "B"
    assert talk.said == []
    c.world.cuts.clear()
    c.run(100)
    assert happened(talk)
    assert c.committed(tx) == 1
    assert "C" in {m.node for m in c.world.checks.flushed}
    c.well()
