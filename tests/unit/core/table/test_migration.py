"""A partition moves to other nodes: what may be wished, and the order of its steps (P12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.core.settings import Settings
from halog.core.table.group import majority
from halog.core.table.migration import assigned, left, moving, next_table, why_not, why_not_assigned
from halog.core.table.table import ASYNC, SYNC, Group, PartitionTable, Replica, Target, arrange
from halog.core.table.tell import Tell
from halog.events import MIGRATED, MIGRATION, REMOVED
from tests.unit.core.commit.durability_kit import flushed_by
from tests.unit.core.kit import A, B, C, Core, epoch, table

pytestmark = pytest.mark.feature("P12")

D = Member("D", 4)
TO_CB = Target(("C", "B"), 1)


def on_ab(**changes: Any) -> PartitionTable:
    """Active on A, B is its sync replica."""
    base: dict[str, Any] = {
        "configured": ("A", "B"),
        "epoch": epoch(1),
        "active": A,
        "replicas": (Replica("B", 2, SYNC),),
    }
    return table(**{**base, **changes})


# --- the wish ---


@pytest.mark.parametrize(
    ("now", "target", "said"),
    [
        (on_ab(), Target((), 0), "at least one node"),
        (on_ab(), Target(("C", "C"), 0), "C is named twice"),
        (on_ab(), Target(("C", "B"), 2), "1 sync replicas at most, not 2"),
        (on_ab(), Target(("C",), -1), "not -1"),
        (on_ab(group=Group(priorities={"C": 0})), Target(("C",), 0), "priority never"),
        (on_ab(quorum=2, group=Group(priorities={"C": 0})), TO_CB, "only B of C, B would count for"),
        (on_ab(group=Group(required=1)), TO_CB, "1 nodes are required"),
        (on_ab(group=Group(designated="A")), TO_CB, "A is designated"),
        (on_ab(target=Target(("D", "B"), 1)), TO_CB, "moving to D, B already; `halog partition migrate --replace`"),
    ],
)
def test_a_wish_that_cannot_end_well_is_refused_by_name(now: PartitionTable, target: Target, said: str) -> None:
    reason = why_not(now, target)
    assert reason is not None
    assert said in reason


def test_a_wish_may_be_repeated_and_replaced_on_demand() -> None:
    under_way = on_ab(target=TO_CB)
    assert why_not(under_way, TO_CB) is None
    assert moving(under_way, TO_CB) is under_way
    assert why_not(under_way, Target(("A",), 0), replace=True) is None
    assert moving(under_way, Target(("A",), 0)).target == Target(("A",), 0)


def test_a_wish_changes_nothing_but_itself() -> None:
    """Hosts follow the table, and the active node does the rest: the set alone stops nobody."""
    wished = moving(on_ab(), TO_CB)
    assert wished == msgspec.structs.replace(on_ab(), target=TO_CB, config_version=1)
    assert wished.hosts == ("A", "B", "C")
    assert moving(on_ab(), Target(("A", "B"), 1)) == on_ab(), "it is there already"
    assert moving(on_ab(), Target(("A", "B"), 0)).target is not None, "less sync replicas are a change"


def test_where_no_node_is_up_the_partition_is_placed_at_once() -> None:
    """P1: its objects come back from the log once a node is assigned."""
    placed = assigned(on_ab(target=Target(("D",), 0)), TO_CB)
    assert (placed.configured, placed.sync_replicas, placed.replicas) == (("C", "B"), 1, ())
    assert placed.active == A, "who may still read under a lease is waited for (R5)"
    assert placed.target == TO_CB, "should it come back first, it gives the role away"
    for unlogged in (False, True):
        assert why_not_assigned(on_ab(replicas=()), unlogged=unlogged) is None
        assert "quorum" in str(why_not_assigned(on_ab(quorum=2, replicas=()), unlogged=unlogged))


def test_where_commits_wait_for_the_log_it_has_all_its_nodes_have() -> None:
    """However many of them died at once; only one that lacks something has to wait for them."""
    assert why_not_assigned(on_ab(), unlogged=False) is None
    assert "accept-loss" in str(why_not_assigned(on_ab(), unlogged=True))


# --- the steps ---


def test_a_node_that_is_not_close_behind_is_waited_for() -> None:
    moved = on_ab(target=TO_CB)
    after = next_table(moved, {"B"})
    assert after is not None
    assert after.configured == ("B", "A"), "the wanted order; C is no member yet"
    assert next_table(after, {"B"}) is None
    assert left(after) == ("C makes its copy", "A hands over to C", "A leaves")


def test_nobody_leaves_before_the_wanted_nodes_are_in_the_node_list() -> None:
    joined = next_table(on_ab(target=TO_CB), {"B", "C"})
    assert joined is not None
    assert joined.configured == ("C", "B", "A")
    on_c = msgspec.structs.replace(joined, active=C, replicas=(Replica("A", 1, SYNC),))
    assert next_table(on_c, {"A", "B"}) is None, "B is not in the node list"
    asleep = msgspec.structs.replace(joined, active=C, replicas=(Replica("B", 2, ASYNC), Replica("A", 1, SYNC)))
    assert next_table(asleep, {"A", "B"}) is None, "B is no sync replica yet"
    level = msgspec.structs.replace(joined, active=C, replicas=(Replica("B", 2, SYNC), Replica("A", 1, ASYNC)))
    over = next_table(level, {"A", "B"})
    assert over is not None
    assert (over.configured, over.target, over.node_list) == (("C", "B"), None, ("C", "B"))


def test_the_active_node_hands_over_before_it_leaves() -> None:
    whole = on_ab(configured=("C", "B", "A"), replicas=(Replica("C", 3, SYNC), Replica("B", 2, ASYNC)), target=TO_CB)
    assert next_table(whole, {"B", "C"}) is None
    assert left(whole) == ("A hands over to C", "A leaves")


def test_an_override_stops_it() -> None:
    assert next_table(on_ab(target=TO_CB, group=Group(required=1)), {"B", "C"}) is None
    assert left(on_ab(target=TO_CB, group=Group(required=1))) == ("it stands still while 1 nodes are required",)


NODES = "ABCDE"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_migration_ends_and_each_step_changes_one_member(data: st.DataObject) -> None:
    """Whoever is active, with whatever quorum: any two quorums in a row meet, the wanted nodes never get fewer, and in
    the end the table is as wished."""
    lists = st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True)
    old, new = tuple(data.draw(lists)), tuple(data.draw(lists))
    sync = data.draw(st.integers(0, len(old) - 1))
    quorum = data.draw(st.booleans())
    at = old[0]
    members = {n: Member(n, i) for i, n in enumerate(NODES)}
    t = table(
        configured=old,
        sync=sync,
        quorum=majority(len(old)) if quorum else 0,
        epoch=epoch(1),
        active=members[at],
        replicas=arrange(old, at, members.values(), sync),
    )
    target = Target(new, data.draw(st.integers(0, len(new) - 1)))
    t = moving(t, target)
    steps = 0
    while t.target is not None:
        assert (steps := steps + 1) < 30
        ready = set(NODES) - ({t.active.node} if t.active else set())
        before, t = t, next_table(t, ready) or t
        assert len(set(t.configured) ^ set(before.configured)) <= 1
        if before.quorum:
            assert before.quorum + t.quorum > len(set(t.configured) | set(before.configured)), "two quorums that miss"
        assert t.active is not None
        assert t.active.node in t.configured
        assert set(new) & set(before.configured) <= set(t.configured)
        if t == before:  # the active node's other work: the node list, then the role
            at = new[0] if new[0] in t.node_list else t.active.node
            t = msgspec.structs.replace(t, active=members[at])
        at = t.active.node if t.active else ""
        t = msgspec.structs.replace(t, replicas=arrange(t.configured, at, members.values(), t.sync_replicas))
    assert (t.configured, t.sync_replicas) == (new, target.sync_replicas)
    assert set(t.node_list) == set(new)
    assert t.quorum == (majority(len(new)) if quorum else 0)


# --- who does them ---


def moved(core: Core, **changes: Any) -> list[fx.Effect]:
    """An operator changes the table."""
    core.p.state.now = core.now
    return core.step(ev.TableSeen(core.p.state.version + 1, msgspec.structs.replace(core.p.state.table, **changes)))


def goes(core: Core) -> None:
    """B has flushed its store, as asked, and the one that leaves goes."""
    flushed_by(core, B, 1)
    core.step(ev.Ticked(), after_ms=20)
    core.cas_ok()


def test_the_active_node_moves_the_partition_step_by_step() -> None:
    """C is waited for until it is level, becomes a sync replica, gets the role; A proposes nothing else meanwhile."""
    core = Core(configured=("A", "B"), settings=Settings(min_stay_ms=0)).with_sync_replica()
    moved(core, target=TO_CB)
    (told,) = core.of(Tell)
    assert (told.kind, told.more, told.logged) == (MIGRATION, {"to": "C, B", "sync": 1}, True)
    assert core.one(fx.SetTable).table.configured == ("B", "A")
    core.cas_ok()
    assert core.of(fx.SetTable) == [], "C has not said anything"
    core.acked_by(C, 1)
    assert core.one(fx.SetTable).table.configured == ("C", "B", "A")
    core.cas_ok()
    assert C in core.p.leading.writer.wait_set, "it is waited for before the table says so (S3)"  # type: ignore[union-attr]
    joined = core.one(fx.SetTable).table
    assert [(r.node, r.kind) for r in joined.replicas] == [("C", SYNC), ("B", ASYNC)]
    core.cas_ok()
    core.acked_by(B, 1)
    for _ in range(40):
        core.acked_by(C, 1)
        core.step(ev.Ticked(), after_ms=100)
        if core.of(fx.Append):
            break
    assert core.p.state.role.value == "handing", "the role goes to C, and not to B before"


def test_a_preferred_node_is_not_given_the_role_back_where_roles_stay() -> None:
    """`min_stay_ms` 0 lets roles where they are; without a migration nothing is handed over."""
    core = Core(configured=("B", "A"), settings=Settings(min_stay_ms=0)).with_sync_replica()
    for _ in range(40):
        core.acked_by(B, 1)
        core.step(ev.Ticked(), after_ms=100)
        assert core.of(fx.Append) == []


def test_the_new_active_node_lets_the_old_one_go() -> None:
    core = Core(configured=("A", "B", "C"), target=Target(("A", "B"), 1)).with_sync_replica()
    core.step(ev.Ticked(), after_ms=core.p.state.settings.ack_every_ms)
    assert core.one(fx.AskFlush).to == ("B",)
    assert core.of(fx.SetTable) == [], "what C's disk was asked to keep B's has first (R6)"
    flushed_by(core, B, 1)
    core.step(ev.Ticked(), after_ms=20)
    last = core.one(fx.SetTable).table
    assert (last.configured, last.target) == (("A", "B"), None)
    core.cas_ok()
    assert [t.kind for t in core.of(Tell)] == [MIGRATED]


def test_one_that_leaves_is_told_of() -> None:
    core = Core(configured=("A", "B", "C")).with_sync_replica()
    core.acked_by(C, 1)
    core.cas_ok()
    moved(core, target=Target(("A", "B"), 1))
    goes(core)
    removed = [t for t in core.of(Tell) if t.kind is REMOVED]
    assert [(t.node, t.cause) for t in removed] == [("C", "the partition has moved")]


def test_what_a_copy_said_that_is_gone_counts_for_nobody() -> None:
    """C leaves and comes back: its new copy is empty, though it is the same run of the node."""
    core = Core(configured=("A", "B", "C")).with_sync_replica()
    core.acked_by(C, 1)
    core.cas_ok()
    moved(core, target=Target(("A", "B"), 1))
    goes(core)
    core.acked_by(C, 1)
    moved(core, target=Target(("A", "B", "C"), 1))
    assert core.of(fx.SetTable) == [], "it has said nothing since"
    core.acked_by(C, 1)
    assert core.one(fx.SetTable).table.configured == ("A", "B", "C")


def test_a_quorum_confirms_what_was_given_out_before_the_group_changes() -> None:
    """Else two changes in a row could leave a commit with nodes that are no members any more."""
    core = Core(quorum=2, settings=Settings(min_stay_ms=0)).with_sync_replica()
    core.alive(B, C, D)
    core.submit(1)
    moved(core, target=Target(("D", "B"), 1))
    assert core.one(fx.SetTable).table.configured == ("B", "A", "C"), "the order needs nobody's word"
    core.cas_ok()
    core.acked_by(D, 2)
    assert core.of(fx.SetTable) == [], "neither B nor C has confirmed the commit in flight"
    core.acked_by(B, 2)
    core.step(ev.Ticked(), after_ms=20)
    grown = core.one(fx.SetTable).table
    assert (grown.configured, grown.quorum) == (("D", "B", "A", "C"), 3)


@pytest.mark.feature("P12", "R7")
def test_wanted_nodes_are_sync_replicas_before_those_that_are_to_leave() -> None:
    """C does not count for the quorum, and B does; but B leaves, and the migration ends once C and D are in sync."""
    core = Core(quorum=2, group=Group(priorities={"C": 0}), settings=Settings(min_stay_ms=0))
    core.with_sync_replica()
    core.alive(B, C, D)
    moved(core, target=Target(("A", "C", "D"), 2))
    core.cas_ok()
    for _ in range(20):
        for m in (B, C, D):
            flushed_by(core, m, core.p.leading.writer.last_lsn)  # type: ignore[union-attr]
            while core.of(fx.SetTable):
                core.cas_ok()
        core.step(ev.Ticked(), after_ms=20)
        while core.of(fx.SetTable):
            core.cas_ok()
    assert (core.p.state.table.configured, core.p.state.table.target) == (("A", "C", "D"), None)


def test_a_set_whose_result_is_unknown_is_sent_again() -> None:
    core = Core(configured=("A", "B"), settings=Settings(min_stay_ms=0)).with_sync_replica()
    moved(core, target=TO_CB)
    first = core.one(fx.SetTable)
    core.step(ev.CasDone(first.round, ev.Cas.UNKNOWN))
    assert core.of(fx.Refresh)
    core.step(ev.TableSeen(core.p.state.version, core.p.state.table))
    assert core.one(fx.SetTable).version == first.version


def test_the_dead_leave_before_the_living() -> None:
    """Else a group of the last living and the dead would have no quorum left to let the dead go."""
    group = table(
        configured=("B", "A", "D"),
        quorum=2,
        epoch=epoch(1),
        active=B,
        replicas=(Replica("A", 1, SYNC),),
        target=Target(("B",), 0),
    )
    after = next_table(group, {"A"})
    assert after is not None
    assert after.configured == ("B", "A")
    dead_first = msgspec.structs.replace(group, configured=("B", "D", "A"))
    after = next_table(dead_first, {"A"})
    assert after is not None
    assert after.configured == ("B", "A")
