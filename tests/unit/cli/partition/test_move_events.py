"""Where somebody wishes a partition is told once, by whoever does: whether or not a node is up to see it (P12, O2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.metadata.identity import who
from halog.ports import UnknownResult
from tests.unit.cli.conftest import TOML, Cluster, Ran, running, wait_until

pytestmark = pytest.mark.feature("P12", "O2")

Run = Callable[..., Ran]
MIGRATION, MIGRATED = "HALOG-1026", "HALOG-1027"
ASKED, THERE = "an operator's command", "every copy is where it is to be"


class Four(Cluster):
    def settle(self) -> Cluster:
        self.start("D")
        return super().settle()


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two partitions, each with an active node and a replica."""
    toml = TOML.replace('"C"]', '"C", "D"]').replace("partitions = 6", 'partitions = 2\nrebalance = "manual"')
    toml = toml.replace("async_replicas = 1", "") + '[nodes.D]\ndata_dir = "D"\n'
    with running(Four(tmp_path, toml), monkeypatch) as made:
        yield made


def told(halog: Run, partition: str = "p-0") -> list[Any]:
    """What the history has of its migrations."""
    ran = halog("events", "--partition", partition, "--format", "json")
    assert ran.code == 0, ran
    return [e for e in ran.json if e["code"] in (MIGRATION, MIGRATED)]


def end(halog: Run, partition: str = "p-0", ends: int = 1) -> list[Any]:
    """The same, once so many are over and were asked for; a node that would tell a wish too has done so by then. Who
    asks and who ends it tell each for himself, so that of a short one the end may be in the history first."""
    codes = (MIGRATION, MIGRATED)
    wait_until(lambda: all([e["code"] for e in told(halog, partition)].count(c) >= ends for c in codes), 30)
    found = [(e["code"], e["more"]["to"], e["cause"]) for e in told(halog, partition)]
    for i, (code, to, _) in enumerate(found[:-1]):
        before = [c for c, where, _ in found[:i] if where == to]
        if (
            code == MIGRATED
            and found[i + 1][:2] == (MIGRATION, to)
            and before.count(MIGRATION) == before.count(MIGRATED)
        ):
            found[i], found[i + 1] = found[i + 1], found[i]
    return found


def both_on_a(halog: Run) -> None:
    """p-0 is there from the beginning."""
    assert halog("partition", "migrate", "p-1", "--nodes", "A,C", "--timeout", 60).code == 0
    end(halog, "p-1")


def test_a_wish_that_no_node_of_the_partition_is_up_to_see_is_told_by_the_command(four: Cluster, halog: Run) -> None:
    """With who gave it; those that get the partition tell that it is there, and no more."""
    hosts = next(t for t in four.tables() if t.name == "p-0").configured
    others = ",".join(n for n in "ABCD" if n not in hosts)
    for name in hosts:
        four.stop(name)
    ran = halog("partition", "migrate", "p-0", "--nodes", others, "--sync", 1, "--no-wait")
    assert ran.code == 0, ran
    (one,) = (e for e in told(halog) if e["code"] == MIGRATION)
    to = others.replace(",", ", ")
    assert (one["cause"], one["node"], one["more"]) == (ASKED, who(), {"to": to, "sync": 1, "by": who()})
    assert one["text"] == f"partition p-0: moves to {to}, with 1 sync replicas: {ASKED}"
    assert end(halog) == [(MIGRATION, to, ASKED), (MIGRATED, to, THERE)]


def test_each_of_several_wishes_is_told_once_while_nodes_are_up(
    four: Cluster, halog: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The same wish again is none."""
    caplog.set_level("INFO", "halog.events")
    for nodes in ("A,D", "C,A", "D,C", "D,C"):
        assert halog("partition", "migrate", "p-0", "--nodes", nodes, "--replace", "--no-wait").code == 0
    asked = [(MIGRATION, nodes, ASKED) for nodes in ("A, D", "C, A", "D, C")]
    assert end(halog) == [*asked, (MIGRATED, "D, C", THERE)]
    lines = [r.getMessage() for r in caplog.records if r.name == "halog.events"]
    assert f"HALOG-1026 partition p-0: moves to D, C, with 1 sync replicas: {ASKED}" in lines, "of a node that is up"


def test_a_drain_and_a_plan_are_told_of_each_partition(four: Cluster, halog: Run) -> None:
    both_on_a(halog)
    assert halog("drain", "A", "--timeout", 60).code == 0
    for partition, ends in {"p-0": 1, "p-1": 2}.items():
        assert [code for code, _, _ in end(halog, partition, ends)] == [MIGRATION, MIGRATED] * ends
    ran = halog("plan", "create", "--format", "json")
    moves = {m["partition"]: ", ".join(m["to"]) for m in ran.json["moves"]}
    assert moves
    assert halog("plan", "apply", "--timeout", 60).code == 0
    for partition, to in moves.items():
        ends = {"p-0": 2, "p-1": 3}[partition]
        assert end(halog, partition, ends)[-2:] == [(MIGRATION, to, ASKED), (MIGRATED, to, THERE)]
        assert len(told(halog, partition)) == 2 * ends


def test_a_definition_that_a_command_puts_into_effect_is_told_once(four: Cluster, halog: Run) -> None:
    assert halog("partition", "define", "p-0", "--node", "D", "--nodes", "D,A").code == 0
    assert halog("partition", "enable", "p-0", "--node", "D", "--timeout", 60).code == 0
    assert end(halog) == [(MIGRATION, "D, A", "D enabled its definition"), (MIGRATED, "D, A", THERE)]
    assert halog("partition", "disable", "p-0", "--node", "A", "--timeout", 60).code == 0
    assert end(halog, ends=2)[2:] == [(MIGRATION, "D", "A disabled it"), (MIGRATED, "D", THERE)]


def test_what_a_program_wishes_is_told_once_by_its_node(four: Cluster, halog: Run) -> None:
    four.nodes["C"].runtime.operators.migrate("p-0", ("D", "A"), wait_s=60)
    assert end(halog) == [(MIGRATION, "D, A", ASKED), (MIGRATED, "D, A", THERE)]
    four.nodes["A"].partitions["p-0"].disable(wait_s=60)
    assert end(halog, ends=2)[2:] == [(MIGRATION, "D", "A disabled it"), (MIGRATED, "D", THERE)]
    assert [e["by"] for e in told(halog) if e["code"] == MIGRATION] == ["C", "A"]


def test_a_wish_whose_answer_was_lost_is_told_once(four: Cluster, halog: Run) -> None:
    lost = four.tree.faults.fail("set", UnknownResult("no answer"), "partitions/p-0", lands=True, times=1)
    assert halog("partition", "migrate", "p-0", "--nodes", "D,A", "--timeout", 60).code == 0
    assert lost.ended
    assert end(halog) == [(MIGRATION, "D, A", ASKED), (MIGRATED, "D, A", THERE)]


def test_what_was_wished_before_a_command_failed_is_told(four: Cluster, halog: Run) -> None:
    """A drain that dies half-way has moved something."""
    both_on_a(halog)
    with four.tree.faults.fail("set", RuntimeError("it is away"), "partitions/p-1"):
        assert halog("drain", "A", "--timeout", 60).code != 0
    assert [code for code, _, _ in end(halog)] == [MIGRATION, MIGRATED]
    assert len(told(halog, "p-1")) == 2
