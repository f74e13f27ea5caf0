"""What replicas show before their log has it, where commits do not wait for the log (R1, R5, W7), told on the simulated
cluster. `A` is active, `B` its sync replica, and the log takes nothing from `A`.
"""

from __future__ import annotations

import pytest

from halog.core import events as ev
from halog.core.ids import ABSENT
from halog.core.roles import Role
from tests.scenarios.cluster import EPOCH_MS, Cluster
from tests.scenarios.test_unlogged_traces import happened, started, unlogged
from tests.sim.client import KEYS

pytestmark = pytest.mark.feature("R6", "R1")

MOMENT_MS = 30.0
"""A tick, and the frame's way."""


def shows(c: Cluster, name: str, key: bytes = KEYS[1]) -> int:
    """The version of `key` there."""
    return c.node(name).version(key)


def visible(c: Cluster, name: str) -> tuple[int, int]:
    """The last lsn that it shows; and that its log has."""
    core = c.node(name).partition
    return core.visible, core.state.chain.state.lsn


def test_a_replica_shows_an_acknowledged_commit_while_the_log_is_away() -> None:
    """Nothing follows it: a tick says it, without a record. C, which nobody waits for, has it from the log."""
    c = started()
    held, tx = unlogged(c)
    c.run(MOMENT_MS)
    assert [shows(c, n) for n in "ABC"] == [3, 3, ABSENT]
    assert [visible(c, n) for n in "ABC"] == [(3, 2), (3, 2), (2, 2)]
    assert c.world.cover.counts["told what is shown without a record"] == 1
    c.run(MOMENT_MS * 3)
    assert c.world.cover.counts["told what is shown without a record"] == 1, "once"
    held.land()
    c.run(MOMENT_MS)
    assert [shows(c, n) for n in "ABC"] == [3, 3, 3]
    assert not c.node("B").shown
    assert c.committed(tx) == 1
    c.well()


def test_the_next_push_says_it_for_nothing() -> None:
    c = started()
    held, _ = unlogged(c)
    assert happened(c.submit(c.transaction(KEYS[2]), "A", ms=3))
    assert shows(c, "B") == 3
    assert shows(c, "B", KEYS[2]) == ABSENT, "W7: it said what was visible then"
    assert c.world.cover.counts["told what is shown without a record"] == 0
    held.land()
    c.well()


def test_a_replica_shows_nothing_that_another_one_does_not_hold() -> None:
    """B holds it, D's acknowledgement does not come: nobody was told that it happened, and nobody sees it."""
    c = started("ABCD", sync=2)
    (other,) = {m.node for m in c.world.coordinator.table.sync_set} - {"B"}
    held = c.hold_appends("A")
    c.world.cuts.add((other, "A"))
    talk = c.submit(c.transaction(KEYS[1]), "A", ms=MOMENT_MS)
    assert c.node("B").partition.state.held.run
    assert talk.said == []
    assert [shows(c, n) for n in "ABCD"] == [ABSENT] * 4
    c.world.cuts.clear()
    held.land()
    c.run(MOMENT_MS)
    c.well()


def test_nothing_is_shown_behind_a_hole() -> None:
    """The push of one is lost, and B reads its log late. The log has it and the next one, so A shows both, and says so
    with a third: B, which lacks the first, shows none of them."""
    c = started()
    b = c.node("B")
    b.reader.stuck = True
    c.world.cuts.add(("A", "B"))
    c.submit(c.transaction(KEYS[1]), "A", ms=3)
    c.world.cuts.clear()
    c.submit(c.transaction(KEYS[2]), "A", ms=5)
    assert visible(c, "A") == (4, 4)
    c.submit(c.transaction(KEYS[3]), "A", ms=2)
    assert (b.partition.state.held.declared, len(b.partition.state.held.run)) == (4, 2)
    assert [shows(c, "B", key) for key in KEYS[1:]] == [ABSENT] * 3
    b.reader.unstick()
    c.run(MOMENT_MS)
    assert [shows(c, "B", key) for key in KEYS[1:]] == [3, 4, 5]
    c.well()


def test_who_told_its_position_shows_what_it_acknowledged_before() -> None:
    """E1 seals what B may hold; what A says that it shows is true whoever stands. What A pushes from then on is neither
    held nor shown, whatever index it has."""
    c = started()
    held, _ = unlogged(c)
    c.node("B").deliver(ev.PositionAsked("C", 1))
    talk = c.submit(c.transaction(KEYS[2]), "A", ms=MOMENT_MS)
    assert talk.said == []
    assert (shows(c, "B"), shows(c, "B", KEYS[2])) == (3, ABSENT)
    held.land()
    c.run(MOMENT_MS)
    assert happened(talk)
    c.well()


def test_it_stays_visible_until_the_replica_that_became_active_has_brought_it() -> None:
    c = started()
    _, tx = unlogged(c)
    c.run(MOMENT_MS)
    c.world.crash("A")
    seen = set()
    while c.active != "B":
        seen.add((shows(c, "B"), visible(c, "B")[0] >= 3))
        c.run(0.1)
    assert seen == {(3, True)}
    assert (shows(c, "B"), c.committed(tx)) == (3, 1)
    c.run(MOMENT_MS)
    assert shows(c, "C") == 3
    c.well()


def test_it_stays_visible_where_an_active_gave_up() -> None:
    """A shows it on, as a replica does, until the next epoch has opened with it."""
    c = started()
    _, tx = unlogged(c)
    c.node("A").deliver(ev.AppendFailed(-1, "its session is gone"))
    c.run(5)
    assert not c.leads("A")
    assert (shows(c, "A"), visible(c, "A")) == (3, (3, 2))
    c.run(EPOCH_MS)
    assert c.committed(tx) == 1
    c.well()


@pytest.mark.feature("R5")
def test_what_is_given_up_disappears_where_it_was_shown_once_the_next_epoch_has_opened() -> None:
    """A is killed, B stopped, and an operator gives up what they hold. B wakes, shows it still, and shows it no more as
    soon as its log has told it; nor is a session served there that wants what came in its place."""
    c = started()
    _, tx = unlogged(c)
    more = [c.transaction(key) for key in KEYS[2:]]
    assert all(happened(c.submit(t, "A", ms=MOMENT_MS)) for t in more)
    b = c.node("B")
    b.reader.stuck = True
    c.world.crash("A")
    b.pause()
    c.doubt("B")
    c.run(EPOCH_MS)
    assert c.active is None
    c.world.checks.given_up()
    c.world.coordinator.give_up_unlogged()
    c.run(EPOCH_MS)
    assert c.active == "C"
    c.trust("B")
    b.wake()
    assert ([shows(c, "B", key) for key in KEYS[1:]], visible(c, "B")) == ([3, 4, 5], (5, 2))
    b.reader.unstick()
    while not b.partition.state.chain.state.lsn > 2:
        c.run(0.1)
    assert ([shows(c, "B", key) for key in KEYS[1:]], visible(c, "B")) == ([ABSENT] * 3, (3, 3))
    assert [c.committed(t) for t in (tx, *more)] == [0, 0, 0]
    c.well()


def test_a_replica_that_starts_anew_shows_what_its_log_has() -> None:
    c = started()
    held, tx = unlogged(c)
    c.run(MOMENT_MS)
    c.world.crash("B")
    c.world.start("B")
    c.until("B", Role.FOLLOWING)
    assert (shows(c, "B"), visible(c, "B")) == (ABSENT, (2, 2))
    held.land()
    c.run(MOMENT_MS)
    assert shows(c, "B") == 3
    assert c.committed(tx) == 1
    c.well()
