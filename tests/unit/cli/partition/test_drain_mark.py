"""The mark of a drained node, over commands that are about something else too (P12, P2); on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import Attempt, MemoryCoordinator
from halog.core.table.table import Target
from halog.errors import RefusedError
from halog.metadata.drains import mark
from halog.runtime.placement import plan as plans
from tests.unit.cli.conftest import FOUR, TOML, Cluster, running

Run = Callable[..., Any]

pytestmark = pytest.mark.feature("P12", "P2")


def drain(halog: Run, node: str, *args: object) -> None:
    ran = halog("drain", node, "--allow-fewer", "--timeout", 60, *args)
    assert ran.code == 0, ran


def test_the_mark_of_a_node_that_is_gone_from_the_file_is_taken_away_as_status_says(cluster: Any, halog: Run) -> None:
    """It was drained to be taken away: status would tell of it for ever."""
    drain(halog, "C")
    cluster.stop("C")
    fewer = TOML.replace(', "C"]', "]").replace('[nodes.C]\ndata_dir = "C"\n', "")
    cluster.path.write_text(fewer.replace("async_replicas = 1\n", ""))
    assert "halog drain C --undo" in halog("status").out
    ran = halog("drain", "C", "--undo", "--format", "json")
    assert (ran.code, ran.out and ran.json) == (0, {"node": "C", "was_drained": True}), ran
    assert cluster.tree.children("drained") == []
    assert halog("drain", "C", "--undo").code == 2, "now there is nothing of that name"


def test_who_moves_another_nodes_copy_takes_no_mark_away(cluster: Any, halog: Run) -> None:
    """A drain of A that has got no farther than its mark, or is at it: p-0 is on A still, and B leaves it."""
    assert halog("partition", "migrate", "p-0", "--nodes", "A,B", "--timeout", 60).code == 0
    cluster.tree.create("drained/A", b"{}", 0)
    assert halog("partition", "migrate", "p-0", "--nodes", "A,C", "--timeout", 60).code == 0
    assert cluster.tree.children("drained") == ["A"], "nobody has brought it a copy"
    assert halog("partition", "migrate", "p-0", "--nodes", "C,B", "--timeout", 60).code == 0
    assert halog("partition", "migrate", "p-0", "--nodes", "A,B", "--timeout", 60).code == 0
    assert cluster.tree.children("drained") == []


def test_a_drain_that_got_no_farther_than_its_mark_keeps_it_through_another_nodes_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    """p-0 is on A and B. Whoever drains A dies, then B is drained: A has its copy as before, and is to lose it."""
    with running(Cluster(tmp_path, FOUR), monkeypatch) as made:
        made.start("D")
        with made.tree.faults.fail("set", RefusedError("somebody was quicker"), "partitions/"):
            assert halog("drain", "A").code == 5
        assert made.tree.children("drained") == ["A"]
        drain(halog, "B")
        assert "A" in made.tables()[0].configured
        assert made.tree.children("drained") == ["A", "B"]
        drain(halog, "A")
        assert made.tree.children("drained") == ["A", "B"]
        assert {*made.tables()[0].configured} == {"C", "D"}


@pytest.mark.feature("P7")
def test_a_definition_that_brings_a_copy_ends_it(cluster: Any, halog: Run) -> None:
    """As a migration does: it is a wish."""
    drain(halog, "A")
    assert "A" not in next(t for t in cluster.tables() if t.name == "p-0").configured
    assert halog("partition", "define", "p-0", "--node", "A", "--nodes", "A,B,C").code == 0
    assert cluster.tree.children("drained") == ["A"], "nothing moves before it is enabled"
    ran = halog("partition", "enable", "p-0", "--node", "A", "--timeout", 30)
    assert ran.code == 0, ran
    assert cluster.tree.children("drained") == []


@pytest.mark.parametrize("other", [("--copy-rate", "5"), ("--no-wait",)])
def test_what_an_undo_does_nothing_with_is_refused(cluster: Any, halog: Run, other: tuple[str, ...]) -> None:
    drain(halog, "A")
    ran = halog("drain", "A", "--undo", *other)
    assert (ran.code, f"leave out {other[0]}" in ran.err) == (2, True), ran
    assert cluster.tree.children("drained") == ["A"]


# --- plans that were made before ---


def planned(cluster: Any, halog: Run) -> str:
    """C is to have p-0 and p-1, which it has not."""
    for p in ("p-0", "p-1"):
        assert halog("partition", "migrate", p, "--nodes", "A,B", "--timeout", 30).code == 0
    ran = halog("plan", "create", "--format", "json")
    assert {m["partition"] for m in ran.json["moves"]} == {"p-0", "p-1"}, ran
    assert "was drained" not in ran.err
    plan: str = ran.json["plan"]
    return plan


def on_c(cluster: Any) -> set[str]:
    return {t.name for t in cluster.tables() if "C" in (*t.configured, *(t.target.nodes if t.target else ()))}


@pytest.mark.feature("P13")
def test_a_plan_that_was_made_before_brings_a_drained_node_nothing(cluster: Any, halog: Run) -> None:
    """Until the drain is taken back."""
    plan = planned(cluster, halog)
    drain(halog, "C")
    assert on_c(cluster) == set()
    ran = halog("plan", "apply", "--timeout", 60)
    assert ran.code == 5, ran
    assert f"plan {plan} would bring C copies of p-0, p-1, and C was drained after it was made" in ran.err
    assert "`halog plan create`" in ran.err
    assert "`halog drain C --undo`" in ran.err
    assert (on_c(cluster), cluster.tree.children("drained")) == (set(), ["C"])
    assert halog("drain", "C", "--undo").code == 0
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert on_c(cluster) == {"p-0", "p-1"}


@pytest.mark.feature("P13")
def test_a_plan_that_is_made_when_a_node_is_drained_means_it_until_it_is_drained_again(
    cluster: Any, halog: Run
) -> None:
    planned(cluster, halog)
    drain(halog, "C")
    made = halog("plan", "create")
    assert (made.code, "C was drained, and is to have p-0" in made.err) == (0, True), made
    drain(halog, "C")
    assert halog("plan", "apply", "--timeout", 60).code == 5
    assert on_c(cluster) == set()
    assert halog("plan", "create").code == 0
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert on_c(cluster) == {f"p-{i}" for i in range(6)}
    assert cluster.tree.children("drained") == []


@pytest.mark.feature("P13")
def test_what_a_plan_has_not_begun_when_a_node_is_drained_is_refused(cluster: Any, halog: Run) -> None:
    """What moves there already is the drain's to wait for."""
    planned(cluster, halog)

    def drained_behind_the_first(attempt: Attempt[list[str]]) -> list[str]:
        first = next(t for t in cluster.tables() if t.name == "p-0")
        if first.target is None and "C" in first.configured:
            looks.end()
            coordinator = MemoryCoordinator(cluster.tree)
            coordinator.connect(lambda state: None)
            mark(coordinator, "C", 1)
            coordinator.close()
        return attempt.land()

    looks = cluster.tree.faults.add("children", drained_behind_the_first, "drained")
    ran = halog("plan", "apply", "--at-once", 1, "--timeout", 60, "--format", "json")
    assert ran.code == 5, ran
    states = {m["partition"]: m["state"] for m in ran.json["moves"]}
    assert states["p-0"] == "done"
    assert states["p-1"].startswith("refused: plan "), states
    assert "would bring C copies of p-1, and C was drained after" in states["p-1"]
    assert "p-1" not in on_c(cluster)


@pytest.mark.feature("X10")
def test_a_plan_is_not_rolled_back_to_a_node_that_was_drained_since(cluster: Any, halog: Run) -> None:
    """The plan takes C's copies of two partitions, then C is drained of the others."""
    for p in ("p-0", "p-1"):
        assert halog("partition", "migrate", p, "--nodes", "A,B,C", "--timeout", 30).code == 0
    tables = {t.name: t for t in cluster.tables()}
    moves = [plans.planned_from(tables[p], tables[p].configured, Target(("A", "B"), 1), "") for p in ("p-0", "p-1")]
    plan = plans.new(tuple(moves), {})
    cluster.tree.create("plan", plan.to_bytes(), 0)
    assert halog("plan", "apply", "--timeout", 60).code == 0
    drain(halog, "C")
    ran = halog("plan", "rollback", "--timeout", 60)
    assert ran.code == 5, ran
    assert "C was to have it again, and was drained since: say `halog drain C --undo` first" in " ".join(
        ran.out.split()
    )
    assert on_c(cluster) == set()
