"""plan create, show, apply, status and cancel, against a cluster on the memory adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from halog.errors import CoordinatorError
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("P13", "O1")

Run = Callable[..., Any]


def hosts(cluster: Any) -> Counter[str]:
    return Counter(n for t in cluster.tables() for n in t.configured)


def test_an_even_cluster_needs_no_plan(cluster: Any, halog: Run) -> None:
    ran = halog("plan", "create")
    assert (ran.code, ran.out) == (0, ""), ran
    assert "nothing is to move" in ran.err
    assert halog("plan", "status", "--format", "json").json["moves"] == 0
    assert halog("plan", "apply").code == 0


def test_an_emptied_node_is_filled_again(cluster: Any, halog: Run) -> None:
    assert halog("drain", "C", "--allow-fewer", "--timeout", 60).code == 0
    assert hosts(cluster)["C"] == 0
    made = halog("plan", "create")
    assert made.code == 0, made
    assert "3 copies instead of 2" in made.out
    assert "6 partitions are to move" in made.err
    assert halog("plan", "status").code == 4, "it waits"
    plan = halog("status", "--format", "json").json["plan"]
    assert (plan["made_for"], plan["moves"], plan["waiting"], plan["moving"]) == (None, 6, 6, 0)
    shown = halog("status")
    assert f"plan        {plan['id']}, an operator's, of " in shown.out, shown
    assert "6 of 6 partitions wait, 0 move; nodes may hold back their own" in shown.out
    assert hosts(cluster)["C"] == 0, "nothing moves before it is applied"
    applied = halog("plan", "apply", "--at-once", 3, "--timeout", 60, "--format", "json")
    assert applied.code == 0, applied
    assert {m["state"] for m in applied.json["moves"]} == {"done"}
    assert hosts(cluster) == dict.fromkeys("ABC", 6)
    assert Counter(t.configured[0] for t in cluster.tables()) == dict.fromkeys("ABC", 2), "roles are even, too"
    assert halog("plan", "status").code == 0
    assert halog("status", "--format", "json").json["plan"] is None, "it is done"


def test_a_dry_run_is_no_plan(cluster: Any, halog: Run) -> None:
    assert halog("partition", "migrate", "p-0", "--nodes", "A,B", "--timeout", 30).code == 0
    shown = halog("plan", "create", "--dry-run", "--format", "json").json
    assert [(m["partition"], m["to"]) for m in shown["moves"]] == [("p-0", ["A", "B", "C"])]
    ran = halog("plan", "show")
    assert (ran.code, "there is no plan" in ran.err) == (0, True), ran


def test_a_plan_that_is_half_done_is_finished_or_cancelled_first(cluster: Any, halog: Run) -> None:
    for p in ("p-0", "p-1"):
        assert halog("partition", "migrate", p, "--nodes", "A,B", "--timeout", 30).code == 0
    assert halog("plan", "create").code == 0
    made = halog("plan", "create", "--format", "json")
    assert made.code == 0, "nothing was begun: it may be replaced"
    first = made.json["moves"][0]
    to = ",".join(first["to"])
    assert halog("partition", "migrate", first["partition"], "--nodes", to, "--sync", 1, "--timeout", 30).code == 0
    again = halog("plan", "create")
    assert (again.code, "is not done" in again.err) == (5, True), again
    assert "cancelled; 0 partitions are moving, 1 stay" in halog("plan", "cancel").out
    refused = halog("plan", "apply")
    assert (refused.code, "was cancelled" in refused.err) == (5, True)
    assert halog("plan", "status").code == 0, "nothing of it is to come"
    assert halog("status", "--format", "json").json["plan"] is None
    assert halog("plan", "create").code == 0


def test_what_somebody_else_moved_since_is_left_alone(cluster: Any, halog: Run) -> None:
    for p in ("p-0", "p-1"):
        assert halog("partition", "migrate", p, "--nodes", "A,B", "--timeout", 30).code == 0
    assert halog("plan", "create").code == 0
    assert halog("partition", "migrate", "p-1", "--nodes", "B,C", "--timeout", 30).code == 0
    ran = halog("plan", "apply", "--timeout", 60, "--format", "json")
    assert {m["partition"]: m["state"] for m in ran.json["moves"]} == {"p-0": "done", "p-1": "changed since"}
    assert next(t for t in cluster.tables() if t.name == "p-1").configured == ("B", "C")


def test_a_node_that_is_down_keeps_what_it_has_unless_it_is_replaced(cluster: Any, halog: Run) -> None:
    for i in range(6):
        assert halog("partition", "migrate", f"p-{i}", "--nodes", "A,C", "--timeout", 30).code == 0
    cluster.stop("C")
    kept = halog("plan", "create", "--dry-run", "--format", "json").json
    assert all(set(m["from"]) <= set(m["to"]) for m in kept["moves"]), "C stays"
    replaced = halog("plan", "create", "--dry-run", "--replace-down", "--format", "json").json
    assert all(set(m["to"]) == {"A", "B"} for m in replaced["moves"])
    assert "C is not in the zone, or down" in replaced["moves"][0]["why"]


@pytest.mark.feature("P10")
def test_node_lists_that_differ_are_an_error_and_nothing_is_planned(cluster: Any, halog: Run) -> None:
    """Both are named; once they agree, or are left out, the plan is made."""
    assert halog("drain", "B", "--allow-fewer", "--timeout", 60).code == 0
    assert halog("partition", "define", "p-0", "--node", "C", "--nodes", "C,A").code == 0
    ours = ", ".join(next(t for t in cluster.tables() if t.name == "p-0").configured)
    said = f"C has defined p-0 on C, A and not enabled it, and the cluster has it on {ours}: enable it on C"
    if ours == "C, A":
        pytest.fail("the lists are to differ")
    for more in ((), ("--dry-run",), ("--policy", "p")):
        ran = halog("plan", "create", *more)
        assert (ran.code, said in ran.err, "nothing was changed" in ran.err) == (5, True, True), ran
    assert halog("plan", "show", "--format", "json").json is None, "there is no plan"
    skipped = halog("plan", "create", "--skip-inconsistent", "--format", "json")
    assert skipped.code == 0, skipped
    assert {m["partition"] for m in skipped.json["moves"]} == {f"p-{i}" for i in range(1, 6)}
    assert said in skipped.out
    assert halog("partition", "define", "p-0", "--node", "C", "--nodes", ours.replace(" ", "")).code == 0
    assert halog("plan", "create").code == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("create", "--policy", "x"), 2, "there is no policy x; "),
        (("show",), 0, "`halog plan create` makes one"),
        (("apply",), 0, "there is no plan"),
        (("status",), 0, "there is no plan"),
        (("cancel",), 0, "there is no plan"),
        (("apply", "--at-once", "0"), 2, "not in the range"),
    ],
)
def test_what_cannot_be_is_said(cluster: Any, halog: Run, args: tuple[str, ...], code: int, said: str) -> None:
    ran = halog("plan", *args)
    assert (ran.code, said in ran.err) == (code, True), ran


# --- what was begun, and what is in its way ---


def planned(cluster: Any, halog: Run, *partitions: str) -> None:
    """C is to have these, which it has not."""
    for p in partitions:
        assert halog("partition", "migrate", p, "--nodes", "A,B", "--timeout", 30).code == 0
    assert halog("plan", "create").code == 0


def applied(halog: Run) -> tuple[int, dict[str, str]]:
    ran = halog("plan", "apply", "--timeout", 60, "--format", "json")
    return ran.code, {m["partition"]: m["state"] for m in ran.json["moves"]}


def test_a_move_that_was_set_is_not_refused_though_the_mark_of_its_node_stays(cluster: Any, halog: Run) -> None:
    """It is waited for like any other, and what is left to do is said."""
    planned(cluster, halog, "p-0")
    assert halog("drain", "C", "--allow-fewer", "--timeout", 60).code == 0
    assert halog("plan", "create").code == 0
    cluster.tree.faults.fail("delete", UnknownResult("no answer"), "drained/C")
    code, states = applied(halog)
    assert code == 5
    assert len(states) == 6
    for partition, state in states.items():
        said = f"done: {partition} goes there as asked for, but znode drained/C does not go away: until "
        assert state.startswith(f"{said}`halog drain C --undo`"), state
    assert hosts(cluster)["C"] == 6


@pytest.mark.parametrize("landed", [True, False])
def test_a_move_of_which_no_answer_came_is_not_known_until_it_is_seen(cluster: Any, halog: Run, landed: bool) -> None:
    """And then the coordinator cannot be asked for a while."""
    planned(cluster, halog, "p-0")
    lost = cluster.tree.faults.fail("set", UnknownResult("no answer"), "partitions/p-0", lands=landed, times=1)

    def asks_behind_it(path: str) -> bool:
        return lost.ended and path == "partitions/p-0"

    away = cluster.tree.faults.fail("sync", CoordinatorError("ZooKeeper is away"), asks_behind_it, times=1)
    code, states = applied(halog)
    assert lost.ended
    assert away.ended
    if landed:
        assert (code, states) == (0, {"p-0": "done"})
        return
    assert code == 5
    assert "not known: " in states["p-0"]
    assert "it is not known whether the table of p-0 was changed: no answer came, and then: ZooKeeper" in states["p-0"]
    assert "look at it with `halog partition show p-0`, and ask again if it was not" in states["p-0"]
    assert applied(halog) == (0, {"p-0": "done"}), "the next one goes on with it"
