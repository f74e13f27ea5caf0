"""A partition moves to another node while applications write to it: A, B becomes C, B (P12)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from halog.core.table.migration import left
from halog.errors import RefusedError
from tests import forked
from tests.faults.dying import run_dying
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import DIED, MOVED

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P12")]

P = "p-0"


@pytest.fixture
def spare(make: Make) -> Cluster:
    """Three nodes, each partition on two of them: p-0 on A and B."""
    cluster = make(partitions=3, async_=0)
    cluster.start()
    cluster.whole()
    cluster.lead(P, "A")
    assert cluster.table(P).node_list == ("A", "B")
    return cluster


def moved(cluster: Cluster, to: tuple[str, ...]) -> bool:
    table = cluster.table(P)
    return table.target is None and table.configured == table.node_list == to


def has_moved(cluster: Cluster, *to: str) -> None:
    """Whoever waits for a migration is told that it is done when the table says so. Who is in the node list follows."""
    wait(lambda: moved(cluster, to), lambda: f"{P} is on {to}: {cluster.table(P)}")


def test_a_partition_moves_under_load_and_the_old_node_keeps_nothing(spare: Cluster, control: Control) -> None:
    """C is active, B its sync replica; callers got no error, nothing is lost or doubled, and A, restarted with the file
    that places the partition there, starts all the same and still has no copy."""
    operators = spare.client().runtime.operators
    with Load(spare.client(), "move") as load:
        operators.migrate(P, ("C", "B"), wait_s=60)
        has_moved(spare, "C", "B")
        wait(lambda: [r.kind for r in spare.table(P).replicas] == ["sync"], "B is its sync replica")
        wait(lambda: P not in spare.copies("A"), "A lets go of its copy")
        load.flows()
        wait(lambda: f"partition {P}: hosted here no more" in spare.log_of("A"), "A says so")
        spare.kill("A")
        load.flows()
        spare.start(["A"])
        wait(spare.complete, "every node list is complete again")
        assert P not in spare.copies("A")
        hosted = {t.name for t in spare.tables() if "A" in t.configured}
        wait(lambda: set(spare.copies("A")) == hosted, "A has its other copies")
        load.flows()
    assert load.errors == []
    control.check(load.waits, DIED)
    check(spare, load)


@pytest.mark.long
def test_a_copy_is_made_at_the_rate_that_was_asked_for_until_another_one_is(spare: Cluster, control: Control) -> None:
    """At a byte a second C copies for ever; callers notice nothing. Without a limit it is there."""
    operators = spare.client().runtime.operators
    with Load(spare.client(), "slow") as load:
        wait(lambda: len(load.acked) > 1_000, "there is something to copy", 120)
        operators.migrate(P, ("C", "B"), copy_rate=1)
        wait(lambda: spare.copies("C").get(P, {}).get("role") == "loading", "C has begun")
        load.flows()
        assert spare.copies("C")[P]["role"] == "loading"
        assert left(spare.table(P))[0] == "C makes its copy at 1 bytes a second at most"
        operators.migrate(P, ("C", "B"), copy_rate=0, wait_s=60)
        has_moved(spare, "C", "B")
        wait(lambda: P not in spare.copies("A"), "A lets go of its copy")
        load.flows()
    assert load.errors == []
    control.check(load.waits, MOVED)
    check(spare, load)


def test_a_migration_survives_its_active_node_and_the_new_one(make: Make, control: Control) -> None:
    """Both are killed half-way, one after the other: commits go on, and once the nodes are back it is completed by
    whoever is active then."""
    spare = make(partitions=1, async_=0)
    spare.start()
    spare.whole()
    spare.lead(P, "A")
    operators = spare.client().runtime.operators
    with Load(spare.client(), "half") as load:
        spare.freeze("C")  # it cannot make its copy
        operators.migrate(P, ("C", "B"))
        wait(lambda: spare.table(P).target is not None, "the wish is set")
        spare.kill("A")
        load.flows()
        spare.kill("C")
        load.flows()
        assert spare.table(P).target is not None
        with pytest.raises(RefusedError, match="moving to C, B already"):
            operators.migrate(P, ("B",))
        spare.start(["C", "A"])
        wait(lambda: moved(spare, ("C", "B")), "it is completed", 90)
        wait(lambda: P not in spare.copies("A"), "A lets go of its copy")
        load.flows()
    assert load.errors == []
    control.check(load.waits, DIED)
    check(spare, load)


def test_there_and_back_with_a_quorum(make: Make, control: Control) -> None:
    """A group of two whose commits need both, moved to a third node and back; each acknowledged commit is there."""
    cluster = make(partitions=3, async_=0, quorum=True)
    cluster.start()
    cluster.whole()
    operators = cluster.client().runtime.operators
    with Load(cluster.client(), "quorum") as load:
        for to in (("C", "B"), ("A", "C"), ("A", "B")):
            operators.migrate(P, to, wait_s=60)
            has_moved(cluster, *to)
            assert cluster.table(P).quorum == 2
            load.flows()
    assert load.errors == []
    control.check(load.waits, MOVED)
    check(cluster, load)


def without_c(make: Make) -> Cluster:
    """Six partitions, each on A and B alone."""
    cluster = make(partitions=6, async_=0)
    cluster.start()
    cluster.whole()
    operators = cluster.client().runtime.operators
    for table in cluster.tables():
        operators.migrate(table.name, ("A", "B"), wait_s=60)
    return cluster


def test_a_plan_is_carried_out_though_the_command_is_killed(make: Make, control: Control) -> None:
    """All copies are on A and B; C gets its share under load. The first `apply` dies with kill -9, the next goes on."""
    cluster = without_c(make)
    with Load(cluster.client(), "plan") as load:
        planned = run(cluster, "plan", "create")["moves"]
        assert len(planned) >= 4
        dies_at_the_second(cluster, planned, "plan", "apply")
        assert {m["state"] for m in run(cluster, "plan", "apply")["moves"]} == {"done"}
        wait(cluster.complete, "every node list is complete")
        load.flows()
    hosted = Counter(n for t in cluster.tables() for n in t.configured)
    assert hosted == dict.fromkeys("ABC", 4)
    assert Counter(t.configured[0] for t in cluster.tables()) == dict.fromkeys("ABC", 2)
    assert load.errors == []
    control.check(load.waits, MOVED)
    check(cluster, load)


def command(cluster: Cluster, *args: str) -> list[str]:
    return ["halog.cli.main", *args, "--config", str(cluster.toml), "--format", "json"]


def dies_at_the_second(cluster: Cluster, planned: list[dict[str, Any]], *args: str) -> None:
    """A command that moves one partition after the other, in front of the second one."""
    second = rf"\d+ set partitions/{planned[1]['partition']}"
    ran = run_dying(cluster.directory / "steps", second, command(cluster, *args, "--at-once", "1"))
    assert ran.died, ran.steps


def run(cluster: Cluster, *args: str) -> Any:
    ran = forked.run(command(cluster, *args), timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.feature("X10")
def test_a_plan_is_rolled_back_under_load_though_the_command_is_killed(make: Make, control: Control) -> None:
    """C has got its share. The first `rollback` dies with kill -9; the same command goes on, and all is as before."""
    cluster = without_c(make)
    with Load(cluster.client(), "back") as load:
        run(cluster, "plan", "create")
        plan = run(cluster, "plan", "apply")["plan"]
        assert Counter(n for t in cluster.tables() for n in t.configured)["C"] == 4
        shown = run(cluster, "plan", "rollback", "--dry-run")
        assert (shown["undoes"], {m["state"] for m in shown["moves"]}) == (plan, {"waiting"})
        dies_at_the_second(cluster, shown["moves"], "plan", "rollback")
        done = run(cluster, "plan", "rollback", plan)
        assert (done["undoes"], {m["state"] for m in done["moves"]}) == (plan, {"done"})
        wait(cluster.complete, "every node list is complete")
        load.flows()
    assert {t.configured for t in cluster.tables()} == {("A", "B")}
    assert load.errors == []
    control.check(load.waits, MOVED)
    check(cluster, load)
