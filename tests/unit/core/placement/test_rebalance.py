"""The plan for a policy's partitions: what moves, what stays, and why (P2, P13)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from halog.core.ids import Member
from halog.core.placement.drain import MoveProposal
from halog.core.placement.rebalance import PolicyDemand, place_by_hand, rebalance
from halog.core.placement.spread import PlacementZone
from halog.core.table.table import DISABLED, SYNC, Group, PartitionDefinition, PartitionTable, Replica, Target
from tests.unit.core.kit import table

pytestmark = pytest.mark.feature("P2", "P13")

ABC = PlacementZone("ABC", "ABC")


def on(name: str, *nodes: str, sync: int = 1, **more: Any) -> PartitionTable:
    return table(name=name, configured=nodes, sync=sync, **more)


def test_nothing_moves_where_all_is_as_it_shall_be() -> None:
    assert rebalance([on("a", "A", "B"), on("b", "B", "C"), on("c", "C", "A")], PolicyDemand(2, 1, ABC), "ABC") == []


def test_an_empty_node_gets_its_share() -> None:
    moves = rebalance([on("a", "A", "B"), on("b", "B", "A"), on("c", "A", "B")], PolicyDemand(2, 1, ABC), "ABC")
    assert sorted(len(set(m.target.nodes) - set(m.before)) for m in moves if m.target) == [1, 1]
    assert all("has 3 copies, C 0" in m.why for m in moves)


@pytest.mark.feature("P4", "P2", "P13")
def test_another_number_of_copies_and_of_sync_replicas() -> None:
    (more,) = rebalance([on("a", "A", "B")], PolicyDemand(3, 2, ABC), "ABC")
    assert more == MoveProposal(
        "a", ("A", "B"), Target(("A", "B", "C"), 2), "3 copies instead of 2; 2 sync replicas instead of 1"
    )
    (fewer,) = rebalance([on("a", "A", "B")], PolicyDemand(1, 1, ABC), "ABC")
    assert fewer == MoveProposal(
        "a", ("A", "B"), Target(("A",), 0), "1 copies instead of 2; 0 sync replicas instead of 1"
    )


def test_a_node_that_is_no_more_in_the_zone_is_emptied() -> None:
    (move,) = rebalance([on("a", "A", "D")], PolicyDemand(2, 1, ABC), "ABC")
    assert (move.target, move.why) == (Target(("A", "B"), 1), "D is not in the zone, or down")


def test_two_copies_in_one_failure_domain_part() -> None:
    racks = PlacementZone("ABC", "ABC", {"A": "r1", "B": "r1"})
    (move,) = rebalance([on("a", "A", "B")], PolicyDemand(2, 1, racks), "ABC")
    assert (move.target, move.why) == (Target(("A", "C"), 1), "B and A are both in failure domain r1")


@pytest.mark.feature("P2", "P5", "P13")
@pytest.mark.parametrize("sync", [0, 1])
def test_racks_with_primary_and_backup_nodes_are_even_for_sync_and_async_replicas(sync: int) -> None:
    """One rack is A and three backup nodes, the other one C and one; X is gone. Each of ten partitions has a copy in
    each rack, and one on A or C: the sum of all squares is least with 4 on A and 6 on C."""
    mixed = PlacementZone("ABEFCD", "ABEFCD", dict.fromkeys("ABEF", "r1") | dict.fromkeys("CD", "r2"), backup="BEFD")
    tables = [on(f"p{i}", *(("A", "X"), ("C", "X"), ("X", "D"))[i % 3], sync=sync) for i in range(10)]
    moves = rebalance(tables, PolicyDemand(2, sync, mixed), "ABEFCD")
    targets = [m.target for m in moves if m.target]
    assert Counter(n for t in targets for n in t.nodes) == {"A": 4, "B": 2, "E": 2, "F": 2, "C": 6, "D": 4}
    assert {(t.sync_replicas, t.nodes[0] in "AC") for t in targets} == {(sync, True)}


def test_roles_are_spread_too() -> None:
    (move,) = rebalance([on("a", "A", "B"), on("b", "A", "B")], PolicyDemand(2, 1, PlacementZone("AB", "AB")), "AB")
    assert move.target is not None
    assert move.target.nodes == ("B", "A")
    assert move.why == "A is the preferred node of 2, B of 0"


def test_what_cannot_move_stays_and_says_why() -> None:
    tables = [
        on("a", "A", "B", group=Group(required=1)),
        on("b", "A", "B", target=Target(("C", "B"), 1)),
        on("c", "A", "B"),
        on("d", "D", "E"),
    ]
    shape = PolicyDemand(2, 1, PlacementZone("ABCDE", "ABC"))
    stay = {m.partition: m.why for m in rebalance(tables, shape, "ABC") if m.target is None}
    assert stay == {
        "a": "it cannot move while 1 nodes are required",
        "b": "it is moving to C, B already",
        "d": "none of D, E is running, so that nobody could move it",
    }


def test_where_all_nodes_are_replaced_it_is_placed_anew_unless_they_may_have_more_than_the_log() -> None:
    tables = [on("a", "D", "E"), on("b", "D", "E", quorum=2)]
    a, b = rebalance(tables, PolicyDemand(2, 1, PlacementZone("AB", "AB")), "AB")
    assert a.target is not None
    assert sorted(a.target.nodes) == ["A", "B"]
    assert (b.target, "start a majority first" in b.why) == (None, True)


def test_what_died_with_all_its_nodes_is_placed_anew_unless_commits_do_not_wait_for_the_log() -> None:
    died = on("a", "D", "E", active=Member("D", 4), replicas=(Replica("E", 5, SYNC),))
    shape = PolicyDemand(2, 1, PlacementZone("AB", "AB"))
    (move,) = rebalance([died], shape, "AB")
    assert move.target is not None
    (stays,) = rebalance([died], shape._replace(unlogged=True), "AB")
    assert (stays.target, "accept-loss" in stays.why) == (None, True)


def test_a_move_to_a_node_that_is_replaced_is_planned_anew() -> None:
    tables = [on("a", "A", "B", target=Target(("A", "D"), 1)), on("b", "A", "B", target=Target(("B", "A"), 1))]
    moves = rebalance(tables, PolicyDemand(2, 1, PlacementZone("ABC", "ABC")), "ABC")
    assert [(m.partition, m.target and m.target.nodes) for m in moves] == [("a", ("A", "C")), ("b", None)]


@pytest.mark.feature("P5", "P2")
def test_backup_nodes_are_preferred_no_more() -> None:
    backups = PlacementZone("ABCD", "ABCD", backup="CD")
    why = {
        m.partition: (m.target and m.target.nodes, m.why)
        for m in rebalance(
            [on("b", "C", "D"), on("c", "A", "D", "B", sync=2), on("e", "C", "A", "B", sync=2)],
            PolicyDemand(3, 2, backups),
            "ABCD",
        )
    }
    assert sorted(nodes[0] for nodes, _ in why.values() if nodes) == ["A", "A", "B"]
    assert "C is a backup node" in why["b"][1]
    assert why["e"] == (("B", "A", "C"), "C is a backup node")
    assert why["c"] == (("A", "B", "D"), "primary nodes come before backup nodes")
    (alone,) = rebalance([on("a", "D", sync=0)], PolicyDemand(1, 0, PlacementZone("AD", "AD", backup="D")), "AD")
    assert (alone.target, alone.why) == (Target(("A",), 0), "none of its copies is on a primary node")


def test_a_plan_that_could_commit_nothing_is_refused() -> None:
    never = Group(priorities={"C": 0, "B": 0})
    (move,) = rebalance(
        [on("a", "A", "B", "C", quorum=2, group=never)], PolicyDemand(2, 1, PlacementZone("BC", "BC")), "ABC"
    )
    assert (move.target, "priority never" in move.why) == (None, True)


def by_hand(*tables: PartitionTable, serving: str = "ABC", running: str = "ABC") -> list[MoveProposal]:
    wanted = {"a": Target(("A", "B"), 1), "b": Target(("B", "C"), 0)}
    return place_by_hand(tables, wanted, serving, running)


@pytest.mark.feature("P3")
def test_partitions_placed_by_hand_go_to_where_the_file_has_them() -> None:
    """Order, members and sync replicas count; what is there, or on its way, is left out; evenness is nothing."""
    assert by_hand(on("a", "A", "B"), on("b", "B", "C", sync=0)) == []
    assert by_hand(on("a", "C", "B", target=Target(("A", "B"), 1))) == []
    moves = by_hand(on("a", "B", "A"), on("b", "B", "C"))
    assert [(m.partition, m.target) for m in moves] == [("a", Target(("A", "B"), 1)), ("b", Target(("B", "C"), 0))]
    assert moves[0].why == "the configuration has it on A, B with 1 sync"


@pytest.mark.feature("P3")
@pytest.mark.parametrize(
    ("there", "serving", "running", "why"),
    [
        (on("a", "C", "B"), "BC", "ABC", "A cannot get a copy now"),
        (on("a", "C", "B"), "ABC", "A", "none of C, B is running, so that nobody could move it"),
        (on("a", "C", "B", target=Target(("C",), 0)), "ABC", "ABC", "it is moving to C already"),
        (on("a", "C", "B", group=Group(required=1)), "ABC", "ABC", "it cannot move while 1 nodes are required"),
        (on("a", "C", "B", group=Group(priorities={"A": 0, "B": 0})), "ABC", "ABC", "A, B have priority never"),
    ],
)
def test_partitions_placed_by_hand_stay_where_they_cannot_move(
    there: PartitionTable, serving: str, running: str, why: str
) -> None:
    (move,) = by_hand(there, serving=serving, running=running)
    assert move.target is None
    assert move.why.startswith(why)


def off(*nodes: str) -> dict[str, PartitionDefinition]:
    return {n: PartitionDefinition(("A", "B", "C"), 1, DISABLED) for n in nodes}


@pytest.mark.feature("P7", "P13")
def test_a_node_that_has_disabled_it_gets_no_copy() -> None:
    """A has none at all, and would be the next to get one."""
    tables = [on("a", "D", sync=0, definitions=off("A")), on("b", "B", "C"), on("c", "D", "C")]
    moves = {m.partition: m for m in rebalance(tables, PolicyDemand(2, 1, PlacementZone("ABCD", "ABCD")), "ABCD")}
    target = moves["a"].target
    assert target is not None, moves["a"].why
    assert (len(target.nodes), target.sync_replicas, "A" in target.nodes) == (2, 1, False)


@pytest.mark.feature("P7", "P13")
def test_where_only_such_nodes_are_left_it_stays_as_it_is() -> None:
    assert (
        rebalance([on("a", "B", sync=0, definitions=off("A"))], PolicyDemand(2, 1, PlacementZone("AB", "AB")), "AB")
        == []
    )


@pytest.mark.feature("P7", "P13")
def test_a_copy_that_would_go_to_such_a_node_stays_where_it_is() -> None:
    tables = [on(p, "B", "C", definitions=off("A")) for p in "abc"]
    assert all(set(m.target.nodes) == {"B", "C"} for m in rebalance(tables, PolicyDemand(2, 1, ABC), "ABC") if m.target)


@pytest.mark.feature("P7", "P13")
def test_plans_come_to_rest_where_a_node_has_disabled_partitions() -> None:
    """C has disabled them all, and three on A and B are as even as can be."""
    tables = [on("a", "A", "B", definitions=off("C")), on("b", "B", "A", definitions=off("C"))]
    tables.append(on("c", "A", "B", definitions=off("C")))
    assert rebalance(tables, PolicyDemand(2, 1, ABC), "ABC") == []


@pytest.mark.feature("P7", "P13")
def test_evenness_minds_where_a_partition_is_disabled() -> None:
    tables = [on(f"p{i}", *("AB" if i % 2 else "BA"), definitions=off("C") if i == 0 else {}) for i in range(6)]
    there = {t.name: t.configured for t in tables}
    there |= {m.partition: m.target.nodes for m in rebalance(tables, PolicyDemand(2, 1, ABC), "ABC") if m.target}
    assert Counter(n for nodes in there.values() for n in nodes) == dict.fromkeys("ABC", 4)
    assert "C" not in there["p0"]


@pytest.mark.feature("Q2")
def test_a_node_of_priority_never_is_not_preferred_where_another_has_disabled_it() -> None:
    group = Group(priorities={"A": 0, "C": 0})
    tables = [on("a", "C", sync=0, group=group, definitions=off("A", "D"))]
    (move,) = rebalance(tables, PolicyDemand(2, 1, PlacementZone("ABCD", "ABCD")), "ABCD")
    assert move.target == Target(("B", "C"), 1)


@pytest.mark.feature("P7", "P13")
def test_what_no_node_may_get_says_so() -> None:
    (move,) = rebalance(
        [on("a", "D", "E", definitions=off("A", "B"))], PolicyDemand(2, 1, PlacementZone("AB", "AB")), "AB"
    )
    why = "no node of its zone may get a copy now; A, B disabled it, `halog partition enable a` there"
    assert (move.target, move.why) == (None, why)
