"""Static policies: partitions are where the file placed them first, and move only when somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import TOML as DYNAMIC, Cluster, running, wait_until

pytestmark = pytest.mark.feature("P3", "P13", "O1")

Run = Callable[..., Any]

TOML = DYNAMIC.replace("partitions = 6", "partitions = 3").replace(
    "[bindings]",
    """
[policies.fixed]
kind = "static"
zone = "home"
[policies.fixed.partitions]
eu = ["A", "B"]
us = { nodes = ["C", "A", "B"], async = ["B"] }
one = ["B"]
[bindings]
Flight = "fixed"
""",
)


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, TOML), monkeypatch) as made:
        yield made


def placed(cluster: Cluster) -> dict[str, tuple[tuple[str, ...], int]]:
    return {t.name: (t.configured, t.sync_replicas) for t in cluster.tables() if t.policy == "fixed"}


def named(cluster: Cluster, partition: str) -> Any:
    return next(t for t in cluster.tables() if t.name == partition)


AS_WRITTEN = {"eu": (("A", "B"), 1), "us": (("C", "A", "B"), 1), "one": (("B",), 0)}


def test_partitions_are_placed_as_written(static: Cluster, halog: Run) -> None:
    assert placed(static) == AS_WRITTEN
    assert {p: static.active(p) for p in AS_WRITTEN} == {"eu": "A", "us": "C", "one": "B"}
    assert [(r.node, r.kind) for r in named(static, "us").replicas] == [("A", "sync"), ("B", "async")]
    assert [t.index for t in static.tables() if t.policy == "fixed"] == [0, 2, 1], "eu, one, us: by place in the file"
    assert halog("partition", "show", "eu", "--format", "json").json["configured"] == ["A", "B"]


def test_leaves_and_joins_and_plans_move_nothing(static: Cluster, halog: Run) -> None:
    """The next of the node list is active while a node is away; where partitions are placed stays."""
    static.stop("A")
    wait_until(lambda: static.active("eu") == "B")
    assert halog("plan", "create", "--replace-down", "--dry-run").code == 0
    shown = halog("plan", "create", "--replace-down", "--dry-run", "--format", "json").json
    assert not [m for m in shown["moves"] if m["partition"] in AS_WRITTEN]
    assert placed(static) == AS_WRITTEN
    static.start("A")
    static.settle()
    assert placed(static) == AS_WRITTEN


def test_the_table_wins_until_a_plan_by_name_brings_it_to_the_file(static: Cluster, halog: Run) -> None:
    """A migration, and a changed file, are each kept by restarts; the plan of the policy goes where the file says."""
    assert halog("partition", "migrate", "eu", "--nodes", "C,B", "--timeout", 60).code == 0
    assert placed(static)["eu"] == (("C", "B"), 1)
    said = halog("plan", "create")
    assert "policy fixed is static and was left alone; eu: elsewhere than the configuration says" in said.err
    assert "eu" not in said.out
    shown = halog("plan", "create", "--policy", "fixed", "--format", "json").json
    assert [(m["partition"], m["from"], m["to"], m["sync_replicas"]) for m in shown["moves"]] == [
        ("eu", ["C", "B"], ["A", "B"], 1)
    ]
    assert shown["moves"][0]["why"] == "the configuration has it on A, B with 1 sync"
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert placed(static) == AS_WRITTEN
    assert "nothing is to move" in halog("plan", "create", "--policy", "fixed").err


def test_a_changed_file_is_started_with_and_changes_nothing_by_itself(
    static: Cluster, halog: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it asks for other copies; the node says what is elsewhere, and what to do."""
    static.path.write_text(TOML.replace('one = ["B"]', 'one = ["A", "C"]').replace('async = ["B"]', "async = []"))
    static.stop("A")
    static.start("A")
    static.settle()
    assert placed(static) == AS_WRITTEN
    assert "policy fixed: 2 of its partitions are not where" in caplog.text
    assert "halog plan create --policy fixed" in caplog.text
    assert halog("plan", "create", "--policy", "fixed").code == 0
    assert halog("plan", "apply", "--timeout", 60).code == 0
    assert placed(static) == {**AS_WRITTEN, "us": (("C", "A", "B"), 2), "one": (("A", "C"), 1)}


def test_nobody_takes_the_place_of_a_node_that_the_file_names(static: Cluster, halog: Run) -> None:
    static.path.write_text(TOML.replace('one = ["B"]', 'one = ["B", "C"]'))
    static.stop("C")
    wait_until(lambda: static.active("us") == "A")
    shown = halog("plan", "create", "--policy", "fixed", "--replace-down", "--dry-run", "--format", "json").json
    assert (shown["moves"], shown["stay"]) == ([], {"one": "C cannot get a copy now"})


def test_a_partition_the_file_does_not_know_is_refused(static: Cluster, halog: Run) -> None:
    static.path.write_text(TOML.replace("one = [", "two = ["))
    ran = halog("plan", "create", "--policy", "fixed")
    assert (ran.code, "policies.fixed.partitions does not name one, which the cluster has" in ran.err) == (2, True), ran
