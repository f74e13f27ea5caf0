"""An activation that changes where keys belong begins to move the objects by itself (P13, P11), on memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.errors import OutcomeUnknownError
from halog.metadata import config_versions as versions
from tests.unit.cli.conftest import TOML, Aircraft, Cluster, running, wait_until
from tests.unit.cli.partition import placing

pytestmark = pytest.mark.feature("P13", "P11", "O1")

Run = Callable[..., Any]

THREE = TOML.replace("partitions = 6", "partitions = 3")
TAILS = [f"N{i}" for i in range(40)]
MOVES = {"policies.p.partitions": "moves objects"}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, THREE), monkeypatch) as made:
        made.create(*(Aircraft(tail) for tail in TAILS))
        yield made


def file(fleet: Cluster, partitions: int, more: str = "") -> Path:
    path = fleet.directory / "new.toml"
    path.write_text(THREE.replace("partitions = 3", f"partitions = {partitions}\n{more}"))
    return path


def effects(ran: Any) -> dict[str, str]:
    return {c["key"]: c["effect"] for c in ran.json["changes"]}


def status(halog: Run) -> tuple[int, str]:
    (found,) = halog("rebalance", "status", "--format", "json").json["policies"]
    return found["version"], found["state"]


def moved(fleet: Cluster, halog: Run, version: int) -> set[str]:
    """Where the objects are, once all have moved."""
    wait_until(lambda: status(halog) == (version, "done"), 30)
    return {halog("get", "Aircraft", tail, "--format", "json").json["partition"] for tail in TAILS}


@pytest.mark.parametrize("before", [True, False], ids=["active", "first"])
def test_one_command_activates_and_moves_what_the_preview_said(fleet: Cluster, halog: Run, before: bool) -> None:
    if before:
        assert halog("config", "activate").code == 0
    new = file(fleet, 5, "ring_size = 5000\n")
    keys = {**MOVES, "policies.p.ring_size": "moves objects"}
    for look in (("diff",), ("activate", "--dry-run")):
        ran = halog("config", *look, new, "--format", "json")
        assert (ran.code, effects(ran)) == (0, keys), ran
        foreseen = ran.json["moving"]["p"]
        assert foreseen["objects"] == 40
        assert 0 < foreseen["would_move"] <= 40
        said = f"policy p: {foreseen['would_move']} of 40 objects would move to another partition"
        assert said in halog("config", *look, new).err
    assert (status(halog), len(fleet.tables())) == ((0, "done"), 3), "nothing was changed"
    ran = halog("config", "activate", new, "--format", "json")
    assert (ran.code, ran.json["activated"], ran.json["moving"]) == (0, 1 + before, {"p": {"version": 1}}), ran
    assert "policy p: its objects begin to move" in ran.err
    assert moved(fleet, halog, 1) & {"p-3", "p-4"}
    fleet.stop("A")
    fleet.start("A")
    fleet.settle()
    assert moved(fleet, halog, 1) & {"p-3", "p-4"}, "a node that starts goes by it"


@pytest.mark.parametrize("died", ["before it is begun", "before it is activated"])
def test_a_command_that_died_on_the_way_is_given_again(
    fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    """Between the two steps objects move, nodes start with either file, and the preview says what is left to do."""
    assert halog("config", "activate").code == 0
    new = file(fleet, 5)
    step = "policies/p" if died == "before it is begun" else versions.ACTIVE
    with fleet.tree.faults.fail("set", OutcomeUnknownError("the operator's machine is gone"), step):
        assert halog("config", "activate", new).code != 0
    begun = died == "before it is activated"
    assert halog("config", "show", "--format", "json").json["number"] == 1
    if begun:
        assert moved(fleet, halog, 1) & {"p-3", "p-4"}
        fleet.stop("A")
        fleet.start("A")
        fleet.settle()
    ran = halog("config", "diff", new, "--format", "json")
    assert effects(ran) == ({"policies.p.partitions": "at each node's restart"} if begun else MOVES), ran
    ran = halog("config", "activate", new, "--format", "json")
    assert (ran.code, ran.json["activated"], ran.json["moving"]) == (0, 2, {} if begun else {"p": {"version": 1}}), ran
    assert moved(fleet, halog, 1) & {"p-3", "p-4"}


def test_who_wants_to_move_objects_by_hand_is_told_the_command(fleet: Cluster, halog: Run) -> None:
    assert halog("config", "activate").code == 0
    ran = halog("config", "activate", file(fleet, 5, 'rebalance = "manual"\n'))
    assert (ran.code, "`halog rebalance --policy p` with this file" in ran.err) == (5, True), ran
    assert status(halog) == (0, "done")


def test_a_file_that_is_behind_the_cluster_moves_nothing_back(fleet: Cluster, halog: Run) -> None:
    """It says what the active version says: nobody has wished for anything."""
    assert halog("config", "activate").code == 0
    assert halog("rebalance", "--config", file(fleet, 5), "--timeout", 30).code == 0
    ran = halog("config", "activate", file(fleet, 3, 'below_quorum = "wait"\n'))
    assert (ran.code, "made with 5, not 3" in ran.err) == (5, True), ran
    again = halog("config", "activate", file(fleet, 3))
    assert (again.code, "made with 5, not 3" in again.err) == (0, True), "it is active already, and not what is there"
    assert status(halog) == (1, "done")


def test_what_is_refused_for_another_key_moves_nothing(fleet: Cluster, halog: Run) -> None:
    assert halog("config", "activate").code == 0
    ran = halog("config", "activate", file(fleet, 5, "quorum = true\n"), "--format", "json")
    assert (ran.code, effects(ran)) == (5, {**MOVES, "policies.p.quorum": "refused"})
    assert (status(halog), ran.json["moving"]) == ((0, "done"), {})


def test_a_change_that_cannot_be_is_refused_with_the_reason(fleet: Cluster, halog: Run) -> None:
    assert halog("config", "activate").code == 0
    ran = halog("config", "activate", file(fleet, 5, 'mapper = "round_robin"\n'))
    assert (ran.code, "change the mapper alone" in ran.err) == (5, True), ran
    assert status(halog) == (0, "done")


def test_nodes_that_lack_the_code_of_a_mapper_are_named_and_nothing_happens(
    fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert halog("config", "activate").code == 0
    monkeypatch.setitem(placing.DEPLOYED, "spread", lambda type_name, key: "p-1")
    new = file(fleet, 3, 'mapper = "tests.unit.cli.partition.placing:spread"\n')
    new.write_text(new.read_text() + '[application]\nmodules = ["tests.unit.cli.partition.placing"]\n')
    ran = halog("config", "activate", new)
    assert (ran.code, all(f"node {name}: " in ran.err for name in "ABC")) == (5, True), ran
    assert (status(halog), len(halog("config", "history", "--format", "json").json)) == ((0, "done"), 1)


def test_objects_that_nobody_counts_are_said_to_move_all_the_same(
    fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node is up that could read them."""
    for name in "ABC":
        fleet.stop(name)
    ran = halog("config", "diff", file(fleet, 5), "--timeout", 0.5)
    assert (ran.code, "policy p: objects would move to another partition; how many is not known" in ran.err) == (
        0,
        True,
    ), ran
