"""plan rollback and plan list, against a cluster on the memory adapters: what goes back, what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.signals import INTERRUPTED
from tests.unit.cli.conftest import wait_until

pytestmark = [pytest.mark.feature("X10", "P12"), pytest.mark.timeout(120)]

Run = Callable[..., Any]
Places = dict[str, tuple[tuple[str, ...], int]]


def places(cluster: Any) -> Places:
    """Where every partition is; nothing moves."""
    assert all(t.target is None for t in cluster.tables())
    return {t.name: (t.configured, t.sync_replicas) for t in cluster.tables()}


def place(cluster: Any, partition: str) -> tuple[str, ...]:
    nodes: tuple[str, ...] = next(t.configured for t in cluster.tables() if t.name == partition)
    return nodes


def migrate(halog: Run, partition: str, nodes: str) -> None:
    ran = halog("partition", "migrate", partition, "--nodes", nodes, "--timeout", 30)
    assert ran.code == 0, ran


def applied(cluster: Any, halog: Run) -> tuple[str, Places]:
    """A and B have p-0 and p-1 alone; a plan has given them C. Its id, and where all was before."""
    for p in ("p-0", "p-1"):
        migrate(halog, p, "A,B")
    before = places(cluster)
    assert halog("plan", "create").code == 0
    ran = halog("plan", "apply", "--timeout", 60, "--format", "json")
    assert {m["state"] for m in ran.json["moves"]} == {"done"}, ran
    assert places(cluster) != before
    return ran.json["plan"], before


def states(ran: Any) -> dict[str, str]:
    return {m["partition"]: m["state"] for m in ran.json["moves"]}


def test_an_applied_plan_is_looked_at_and_rolled_back_and_forth_again_by_name(cluster: Any, halog: Run) -> None:
    """Node lists and sync replicas are as before; the objects that are copied for it are counted before."""
    for i in range(40):
        cluster.create(cluster.Aircraft(f"N{i}"))
    assert halog("drain", "C", "--allow-fewer", "--timeout", 60).code == 0
    before = places(cluster)
    assert halog("plan", "create").code == 0
    assert halog("plan", "apply", "--at-once", 3, "--timeout", 60).code == 0
    after = places(cluster)
    assert after != before
    plan = halog("plan", "show", "--format", "json").json["plan"]

    shown = halog("plan", "rollback", "--dry-run", "--format", "json").json
    assert (shown["undoes"], set(states_of(shown))) == (plan, {"waiting"})
    assert {m["partition"]: (tuple(m["to"]), m["sync_replicas"]) for m in shown["moves"]} == before
    assert {m["objects_copied"] for m in shown["moves"]} == {0}, "C has copies more, and nobody lacks one"
    assert halog("plan", "show", "--format", "json").json["plan"] == plan, "nothing was changed"
    assert places(cluster) == after

    ran = halog("plan", "rollback", "--at-once", 3, "--timeout", 60)
    assert ran.code == 0, ran
    assert f"rolls back plan {plan}" in ran.err
    assert f"as before plan {plan}" in ran.out
    assert places(cluster) == before

    again = halog("plan", "rollback")
    assert (again.code, "moves all there again; nothing was changed" in again.err) == (0, True), again
    way = halog("plan", "show", "--format", "json").json["plan"]
    forth = halog("plan", "rollback", way, "--dry-run", "--format", "json").json
    assert sum(m["objects_copied"] for m in forth["moves"]) == 40, "each object is copied to C"
    assert halog("plan", "rollback", way, "--at-once", 3, "--timeout", 60).code == 0
    assert places(cluster) == after
    listed = halog("plan", "list", "--format", "json").json
    assert [p["undoes"] for p in listed] == [way, plan, ""]
    assert [p["plan"] for p in listed[1:]] == [way, plan]
    assert f"an operator, to roll back {way}" in halog("plan", "list").out


def states_of(shown: Any) -> list[str]:
    return [m["state"] for m in shown["moves"]]


def test_of_a_plan_that_was_cancelled_half_way_only_that_half_goes_back(cluster: Any, halog: Run) -> None:
    for p in ("p-0", "p-1"):
        migrate(halog, p, "A,B")
    before = places(cluster)
    made = halog("plan", "create", "--format", "json").json
    for more in ((), (made["plan"],), ("--dry-run",)):
        unbegun = halog("plan", "rollback", *more)
        assert (unbegun.code, "`halog plan cancel` ends it; nothing was changed" in unbegun.err) == (5, True), unbegun
    first = made["moves"][0]
    migrate_as_planned(cluster, halog, first)
    half = halog("plan", "rollback")
    assert (half.code, "is not done: finish it" in half.err) == (5, True), half
    assert halog("plan", "rollback", "--dry-run").code == 5
    assert halog("plan", "cancel").code == 0
    ran = halog("plan", "rollback", "--timeout", 60, "--format", "json")
    assert (ran.code, states(ran)) == (0, {first["partition"]: "done"}), ran
    assert places(cluster) == before
    nothing = halog("plan", "rollback", made["plan"])
    assert (nothing.code, "nothing to roll back" in nothing.err) == (0, True), "once more: it is all back"


def test_of_a_plan_that_was_cancelled_before_it_began_there_is_nothing_to_roll_back(cluster: Any, halog: Run) -> None:
    for p in ("p-0", "p-1"):
        migrate(halog, p, "A,B")
    assert halog("plan", "create").code == 0
    assert halog("plan", "cancel").code == 0
    ran = halog("plan", "rollback", "--format", "json")
    assert (ran.code, ran.json, "has moved nothing that is not back" in ran.err) == (0, None, True), ran


def migrate_as_planned(cluster: Any, halog: Run, move: Any) -> None:
    """One move of the plan, as whoever applied it began it before he stopped."""
    to, sync = ",".join(move["to"]), move["sync_replicas"]
    assert halog("partition", "migrate", move["partition"], "--nodes", to, "--sync", sync, "--timeout", 30).code == 0


def test_a_command_that_died_half_way_goes_on_when_given_again(cluster: Any, halog: Run) -> None:
    plan, before = applied(cluster, halog)
    with cluster.tree.faults.fail("set", KeyboardInterrupt(), "partitions/p-1"):
        assert halog("plan", "rollback", "--at-once", 1).code == INTERRUPTED
    way = halog("plan", "show", "--format", "json").json
    assert way["undoes"] == plan
    assert states_of(way).count("waiting") == 1
    other = halog("plan", "rollback", "--partition", way["moves"][1]["partition"])
    assert (other.code, f"plan {way['plan']} is not done" in other.err) == (5, True), other
    again = halog("plan", "rollback", "--timeout", 60, "--format", "json")
    assert (again.code, again.json["plan"], set(states(again).values())) == (0, way["plan"], {"done"}), again
    assert places(cluster) == before


def test_what_was_moved_since_is_named_with_who_moved_it_and_may_be_left_out(cluster: Any, halog: Run) -> None:
    """By hand, by another plan, by a node that disabled it: nothing goes back, until the others are named."""
    plan, before = applied(cluster, halog)
    lead = place(cluster, "p-1")[0]  # it stays preferred, so that the next plan leaves p-0 alone
    two = (lead, "A" if lead == "C" else "C")
    migrate(halog, "p-1", ",".join(two))
    after = places(cluster)
    said = f"it is on {', '.join(two)} now, and not where plan {plan} had it: it was moved by no plan (an operator's"
    wait_until(lambda: halog("plan", "rollback", "--format", "json").json["stay"]["p-1"].startswith(said))
    ran = halog("plan", "rollback")
    assert (ran.code, "1 of 2 partitions cannot go back; nothing was changed" in ran.err) == (5, True), ran
    assert places(cluster) == after
    assert halog("plan", "show", "--format", "json").json["plan"] == plan, "nothing was stored"

    assert halog("plan", "create").code == 0
    other = halog("plan", "apply", "--timeout", 60, "--format", "json").json["plan"]
    ran = halog("plan", "rollback", plan, "--format", "json")
    assert f"plan {other} moved it since" in ran.json["stay"]["p-1"], "by a plan"

    assert halog("partition", "disable", "p-1", "--node", "A", "--timeout", 30).code == 0
    cluster.settle()
    ran = halog("plan", "rollback", plan)
    assert (ran.code, "A disabled it since" in ran.out) == (5, True), ran

    ran = halog("plan", "rollback", plan, "--partition", "p-0", "--timeout", 60, "--format", "json")
    assert (ran.code, states(ran)) == (0, {"p-0": "done"}), ran.out
    assert places(cluster)["p-0"] == before["p-0"]
    assert set(place(cluster, "p-1")) == {"B", "C"}
    unknown = halog("plan", "rollback", plan, "--partition", "p-5")
    assert (unknown.code, "moves no p-5; it has p-0, p-1" in unknown.err) == (5, True), unknown


@pytest.mark.feature("P7")
def test_a_definition_that_a_node_has_enabled_since_is_named(cluster: Any, halog: Run) -> None:
    applied(cluster, halog)
    assert halog("partition", "define", "p-1", "--node", "C", "--nodes", "C,A").code == 0
    assert halog("partition", "enable", "p-1", "--node", "C", "--timeout", 30).code == 0
    wait_until(lambda: "p-1" in halog("plan", "rollback", "--dry-run", "--format", "json").json["stay"])
    said = "it was moved by no plan (C enabled its definition, 20"
    wait_until(lambda: said in halog("plan", "rollback", "--dry-run").out)


def test_a_node_of_before_that_is_down_is_named(cluster: Any, halog: Run) -> None:
    for p in ("p-0", "p-1"):
        migrate(halog, p, "B,C" if p == "p-0" else "A,B")
    cluster.stop("C")
    assert halog("plan", "create", "--replace-down").code == 0
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert "C" not in place(cluster, "p-0")
    ran = halog("plan", "rollback", "--format", "json")
    assert (ran.code, ran.json["moves"] == []) == (5, True), ran
    assert ran.err.rstrip().endswith("cannot go back; nothing was changed"), "there are no others to be named"
    assert "C was to have it again, and cannot get a copy now: start it first" in ran.json["stay"]["p-0"]
    cluster.start("C")
    cluster.settle()
    assert halog("plan", "rollback", "--timeout", 60).code == 0
    assert place(cluster, "p-0") == ("B", "C")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("rollback",), 0, "there is no plan, so there is nothing to roll back"),
        (("rollback", "x", "--dry-run"), 2, "there is no plan x; known are none"),
    ],
)
def test_without_a_plan_there_is_nothing_to_roll_back(
    cluster: Any, halog: Run, args: tuple[str, ...], code: int, said: str
) -> None:
    ran = halog("plan", *args)
    assert (ran.code, said in ran.err) == (code, True), ran
    assert halog("plan", "list", "--format", "json").json == []


def test_a_plan_that_is_not_kept_is_named_with_those_that_are(cluster: Any, halog: Run) -> None:
    plan, _ = applied(cluster, halog)
    ran = halog("plan", "rollback", "51d6f0c2")
    assert (ran.code, f"there is no plan 51d6f0c2; known are {plan}: see" in ran.err) == (2, True), ran
