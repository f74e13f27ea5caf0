"""The way back of a plan as arithmetic: what goes back, what stays and why, records of older versions, plans kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.config import Config, parse_config
from halog.core.table.table import DEFINED, DISABLED, PartitionDefinition, PartitionTable, Target
from halog.errors import NothingToDoError, RefusedError, UnknownNameError
from halog.runtime.placement import plan as plans
from halog.runtime.placement.plan import Plan, PlannedMove
from halog.runtime.placement.plan_rollback import Situation, chosen, copies_of, roll_back, under_way

pytestmark = pytest.mark.feature("X10", "P12")

HERE, THERE = Target(("A", "B"), 1), Target(("C", "B"), 0)


def config(nodes: str = "ABC") -> Config:
    made: dict[str, Any] = {
        "cluster": {"name": "c"},
        "site": {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:2"},
        "zones": {"z": {"nodes": list(nodes)}},
        "policies": {"p": {"zone": "z", "partitions": 3}},
        "bindings": {"*": "p"},
        "nodes": {n: {"data_dir": n} for n in "ABC"},
    }
    return parse_config(made, "halog.toml", Path())


def table(name: str, at: Target, version: int, **more: Any) -> PartitionTable:
    return PartitionTable(name, "0" * 32, "t", 0, "p", at.nodes, at.sync_replicas, config_version=version, **more)


def move(name: str, version: int = 0, **more: Any) -> PlannedMove:
    return PlannedMove(name, HERE.nodes, THERE, version, "", **{"sync": HERE.sync_replicas, **more})


def way(
    plan: Plan, tables: Sequence[PartitionTable], *, up: str = "ABC", zone: str = "ABC", others: Sequence[Plan] = ()
) -> Plan:
    return roll_back(plan, Situation(config(zone), {t.name: t for t in tables}, up, up, (plan, *others)))


def plan(*moves: PlannedMove, id_: str = "x", **more: Any) -> Plan:
    return Plan(id_, 0, moves, **more)


def test_what_was_moved_goes_back_and_what_was_not_is_left_out() -> None:
    """Moved; on its way; begun by nobody; moved by somebody else before the plan could; back already."""
    moving = table("moving", HERE, 1, target=THERE)
    tables = [
        table("moved", THERE, 1),
        moving,
        table("waits", HERE, 0),
        table("other", Target(("B",), 0), 1),
        table("back", HERE, 2),
    ]
    made = way(plan(*(move(t.name) for t in tables)), tables)
    assert {(m.partition, m.target, m.version) for m in made.moves} == {("moved", HERE, 1), ("moving", HERE, 1)}
    assert [m.given_up for m in made.moves] == [None, THERE], "what is under way is given up for it"
    assert (made.undoes, made.stay) == ("x", {})
    assert copies_of(made.moves) == {"moved": ("A",), "moving": ()}
    again = way(made, [table("moved", HERE, 2), table("moving", HERE, 2)])
    assert {(m.partition, m.target) for m in again.moves} == {("moved", THERE), ("moving", THERE)}, "and forth again"


def test_a_record_of_an_older_halog_has_no_sync_replicas_of_before() -> None:
    """Then there are as many as the plan gave it, if there are nodes enough."""
    data = msgspec.json.decode(plan(move("p")).to_bytes())
    del data["moves"][0]["sync"], data["undoes"]
    old = Plan.from_bytes(msgspec.json.encode(data))
    assert way(old, [table("p", THERE, 1)]).moves[0].target == Target(HERE.nodes, THERE.sync_replicas)


@pytest.mark.parametrize(
    ("now", "how", "why"),
    [
        (None, {}, "there is no partition p any more"),
        (table("p", THERE, 1), {"up": "BC"}, "A was to have it again, and cannot get a copy now"),
        (table("p", THERE, 1), {"zone": "BC"}, "A is not in zone z of policy p"),
        (table("p", THERE, 1, definitions={"A": PartitionDefinition(("A",), 0, DISABLED)}), {}, "p is disabled on A"),
        (
            table("p", THERE, 1, definitions={"B": PartitionDefinition(("B",), 0, DEFINED)}),
            {},
            "B has defined p on B and not",
        ),
        (table("p", Target(("B",), 0), 2), {}, "now, and not where plan x had it: it was moved by no plan"),
        (table("p", Target(("A",), 0), 2, target=Target(("B",), 0)), {}, "it is on B now"),
        (
            table("p", Target(("B",), 0), 2, definitions={"C": PartitionDefinition(THERE.nodes, 0, DISABLED)}),
            {},
            "C disabled it since",
        ),
        (table("p", THERE, 1), {"up": ""}, "none of A, B is running"),
    ],
)
def test_what_cannot_go_back_says_why(now: PartitionTable | None, how: dict[str, Any], why: str) -> None:
    made = way(plan(move("p"), move("q")), [table("q", THERE, 1)] + ([] if now is None else [now]), **how)
    assert why in made.stay["p"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "plan y moved it since"),
        ({"made_for": "p", "why": "D came"}, "plan y, made by a node for policy p since D came, moved it since"),
        ({"undoes": "w"}, "plan y, which rolled back plan w, moved it since"),
    ],
)
def test_a_plan_that_has_moved_it_since_is_named(more: dict[str, Any], said: str) -> None:
    later = plan(msgspec.structs.replace(move("p", 1), target=Target(("B",), 0)), id_="y", **more)
    made = way(plan(move("p")), [table("p", Target(("B",), 0), 2)], others=[later])
    assert said in made.stay["p"]


def test_what_the_history_tells_of_a_move_by_no_plan_is_said() -> None:
    now = {"p": table("p", Target(("B",), 0), 2)}
    told = {("p", ("B",)): "C enabled its definition, at noon"}
    made = roll_back(plan(move("p")), Situation(config(), now, "ABC", "ABC", (), lambda *asked: told[asked]))
    assert made.stay["p"].endswith("it was moved by no plan (C enabled its definition, at noon)")


def test_a_plan_that_is_not_begun_is_cancelled_and_not_rolled_back() -> None:
    """Who says that there is nothing to do says that all is as before, and stays so."""
    tables = [table("p", HERE, 0), table("q", HERE, 2)]
    with pytest.raises(RefusedError, match=r"x has moved nothing yet, .* moves p: `halog plan cancel` ends it") as told:
        way(plan(move("p"), move("q")), tables)
    assert not isinstance(told.value, NothingToDoError)
    with pytest.raises(NothingToDoError, match="has moved nothing of that that is not back where it was"):
        roll_back(plan(move("p"), move("q")), Situation(config(), {t.name: t for t in tables}, "ABC", "ABC", ()), ["q"])
    with pytest.raises(NothingToDoError, match="plan x has moved nothing that is not back where it was"):
        way(plan(move("p"), cancelled=True), [table("p", HERE, 0)])
    later = Situation(config(), {"p": table("p", HERE, 0)}, "ABC", "ABC", (plan(id_="y"), plan(move("p"))))
    with pytest.raises(NothingToDoError):
        roll_back(plan(move("p")), later)


def test_a_partition_that_is_none_of_its_is_refused() -> None:
    now = Situation(config(), {"p": table("p", THERE, 1)}, "ABC", "ABC", ())
    with pytest.raises(RefusedError, match="plan x moves no q; it has p"):
        roll_back(plan(move("p")), now, ["q"])


@pytest.fixture
def tree() -> MemoryCoordinator:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    return made


def test_plans_that_have_moved_something_are_kept_when_another_takes_their_place(tree: MemoryCoordinator) -> None:
    """The last ten; one that nobody began is not."""
    for i in range(14):
        plans.store(tree, Plan(f"plan{i}", i, (move("p"),)), [table("p", THERE if i % 14 else HERE, i % 14)])
    assert [p.id for p in plans.known(tree)] == [f"plan{i}" for i in range(13, 2, -1)]
    assert chosen(tree, [table("p", THERE, 1)], "plan7")[0].id == "plan7"
    with pytest.raises(UnknownNameError, match="there is no plan plan2; known are plan13, plan12,"):
        chosen(tree, [table("p", THERE, 1)], "plan2")


def test_one_that_is_not_begun_is_not_kept(tree: MemoryCoordinator) -> None:
    for name in "xy":
        plans.store(tree, plan(move("p"), id_=name), [table("p", HERE, 0)])
    assert [p.id for p in plans.known(tree)] == ["y"]


def test_a_copy_that_was_kept_by_one_who_died_is_the_plan_once(tree: MemoryCoordinator) -> None:
    x = plan(move("p"))
    plans.store(tree, x, [])
    plans._keep(tree, x)
    assert [p.id for p in plans.known(tree)] == ["x"]
    plans.store(tree, plan(move("p"), id_="y"), [table("p", THERE, 1)])
    assert [p.id for p in plans.known(tree)] == ["y", "x"]


def test_a_copy_that_was_kept_by_one_who_died_does_not_hide_that_the_plan_was_cancelled_since(
    tree: MemoryCoordinator,
) -> None:
    x = plan(move("p"))
    plans.store(tree, x, [])
    plans._keep(tree, x)
    plans.cancel(tree)
    plans.store(tree, plan(move("p"), id_="y"), [table("p", THERE, 1)])
    assert [(p.id, p.cancelled) for p in plans.known(tree)] == [("y", False), ("x", True)]


def test_a_way_back_that_was_cancelled_unbegun_is_not_taken_for_a_way_forth(tree: MemoryCoordinator) -> None:
    """Without a name the command says which plan to name; with it there is one to be rolled back."""
    plans.store(tree, plan(move("p")), [])
    back = plan(msgspec.structs.replace(move("p", 1), target=HERE, before=THERE.nodes), id_="w", undoes="x")
    there = [table("p", THERE, 1)]
    plans.store(tree, back, there)
    plans.cancel(tree)
    with pytest.raises(RefusedError, match="has not rolled back all of plan x yet: `halog plan rollback x` goes on"):
        chosen(tree, there)
    assert chosen(tree, there, "x")[0].id == "x"
    with pytest.raises(NothingToDoError, match="rolled back plan x: `halog plan rollback w` moves all there again"):
        chosen(tree, [table("p", HERE, 2, owner="A")])


def test_a_way_back_under_way_is_taken_up_and_no_other(tree: MemoryCoordinator) -> None:
    back = plan(msgspec.structs.replace(move("p", 1), target=HERE, before=THERE.nodes), id_="w", undoes="x")
    plans.store(tree, back, [])
    waits, done = [table("p", THERE, 1)], [table("p", HERE, 2)]
    assert under_way(tree, waits) == back == under_way(tree, waits, "x", ["p"])
    assert under_way(tree, waits, "w") is None, "who wants to go forth again"
    assert under_way(tree, waits, "x", ["q"]) is None
    assert under_way(tree, done) is None
    plans.cancel(tree)
    assert under_way(tree, waits) is None
