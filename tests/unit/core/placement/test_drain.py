"""Where the copies of a node go that is to be emptied (P12, X4)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.core.placement.drain import MoveProposal, plan
from halog.core.table.table import DISABLED, Group, PartitionDefinition, PartitionTable, Target
from tests.unit.core.kit import table

pytestmark = pytest.mark.feature("X4", "P12")

ZONES = {"q": ("A", "B", "C", "D")}


def on(name: str, *nodes: str, sync: int = 1, **more: Any) -> PartitionTable:
    return table(name=name, configured=nodes, sync=sync, **more)


def test_each_copy_goes_to_the_emptiest_node_without_one_and_takes_its_place() -> None:
    """C has two copies and D none: D gets the first two, then C is as good."""
    tables = [on("a", "A", "B"), on("b", "B", "A"), on("c", "C", "B"), on("d", "C", "B"), on("e", "A", "C")]
    moves = plan(tables, "A", ZONES, "ABCD", "ABCD")
    assert [(m.partition, m.target) for m in moves] == [
        ("a", Target(("D", "B"), 1)),
        ("b", Target(("B", "D"), 1)),
        ("e", Target(("D", "C"), 1)),
    ]


def test_only_nodes_that_run_and_are_in_the_zone_are_chosen() -> None:
    (move,) = plan([on("a", "A", "B")], "A", {"q": ("A", "B", "C")}, "ABD", "ABD")
    assert (move.target, "--allow-fewer" in move.why) == (None, True)


def test_a_list_gets_shorter_only_where_that_is_allowed() -> None:
    tables = [on("a", "A", "B", "C", sync=2)]
    (stuck,) = plan(tables, "A", ZONES, "ABC", "ABC")
    assert stuck.target is None
    (fewer,) = plan(tables, "A", ZONES, "ABC", "ABC", allow_fewer=True)
    assert fewer.target == Target(("B", "C"), 1)
    (last,) = plan([on("a", "A", sync=0)], "A", ZONES, "A", "A", allow_fewer=True)
    assert last == MoveProposal("a", ("A",), None, "no other node of its zone runs and is without a copy")


def test_a_node_that_was_drained_gets_a_copy_only_where_no_other_can() -> None:
    """D has none; B and C have more."""
    tables = [on("a", "A", "B"), on("b", "B", "C"), on("c", "A", "B", "C")]
    first, last = plan(tables, "A", ZONES, "ABCD", "ABCD", drained="D")
    assert first.target == Target(("C", "B"), 1)
    assert last.target == Target(("D", "B", "C"), 1)
    assert "was drained" in last.why


def test_what_moves_away_already_goes_on_and_what_is_overridden_stays() -> None:
    tables = [
        on("a", "A", "B", target=Target(("C", "B"), 1)),
        on("b", "A", "B", group=Group(required=1)),
        on("c", "C", "B", target=Target(("A", "B"), 1)),
    ]
    leaving, held, coming = plan(tables, "A", ZONES, "ABCD", "ABCD")
    assert leaving.target == Target(("C", "B"), 1)
    assert (held.target, "1 nodes are required" in held.why) == (None, True)
    assert (coming.target, "--replace" in coming.why) == (None, True)


def test_a_node_that_serves_nothing_gets_nothing_and_one_that_runs_can_still_give() -> None:
    """Offline in its zone (Q1): registered, and no home for more."""
    (move,) = plan([on("a", "A", "B")], "A", ZONES, "BD", "ABCD")
    assert move.target == Target(("D", "B"), 1)


def test_what_nobody_could_move_is_found_before_anything_is_changed() -> None:
    """With a quorum a partition none of whose nodes runs cannot be placed anew: the plan says so."""
    (move,) = plan([on("a", "A", "B", quorum=2)], "A", ZONES, "CD", "CD")
    assert (move.target, "none of A, B is running" in move.why) == (None, True)
    (alone,) = plan([on("a", "A", sync=0)], "A", ZONES, "CD", "CD")
    assert alone.target == Target(("C",), 0)


@pytest.mark.feature("P5", "X4")
def test_a_copy_goes_to_a_node_of_the_same_kind_if_there_is_one() -> None:
    """Primary nodes are preferred, and stay so."""
    tables = [on("a", "A", "C"), on("b", "B", "C"), on("c", "B", "C")]
    (move,) = plan(tables, "A", ZONES, "ABCD", "ABCD", backup={"q": "CD"})
    assert move.target == Target(("B", "C"), 1)
    moves = plan(tables, "C", ZONES, "ABCD", "ABCD", backup={"q": "CD"})
    assert [m.target and m.target.nodes for m in moves] == [("A", "D"), ("B", "D"), ("B", "D")]
    (last,) = plan([on("a", "A", "C")], "A", ZONES, "ACD", "ACD", backup={"q": "CD"})
    assert (last.target, "of the backup nodes" in last.why) == (Target(("D", "C"), 1), True)


def test_a_node_that_has_disabled_it_gets_no_copy() -> None:
    off = {"C": PartitionDefinition(("C", "B"), 1, DISABLED)}
    (move,) = plan([on("a", "A", "B", definitions=off), on("b", "D", "B")], "A", ZONES, "ABCD", "ABCD")
    assert move.target == Target(("D", "B"), 1), "C has fewer"
    (stuck,) = plan([on("a", "A", "B", definitions=off)], "A", ZONES, "ABC", "ABC")
    assert (stuck.target, "but C, where it is disabled" in stuck.why) == (None, True)


@pytest.mark.feature("P5", "X4")
def test_a_copy_goes_to_a_domain_that_has_none_before_all_else() -> None:
    """B has no copy at all, and is in A's rack; D is a backup node, and fuller."""
    racks = {"A": "r1", "B": "r1", "C": "r2", "D": "r2"}
    tables = [on("a", "A", "C"), on("b", "A", "D")]
    (move,) = plan(tables, "C", ZONES, "ABCD", "ABCD", domains=racks, backup={"q": "D"})
    assert move.target == Target(("A", "D"), 1)
    assert "is in a failure domain that has none, and the fewest copies of the backup nodes" in move.why
    (near,) = plan([on("a", "A", "C")], "C", ZONES, "ABC", "ABC", domains=racks)
    assert near.target == Target(("A", "B"), 1), "a second copy in the same rack is better than none"
