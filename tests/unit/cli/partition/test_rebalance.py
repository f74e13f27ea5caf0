"""rebalance, its dry run, status and cancel, and mappers of the application's that change, on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mappers import versioned
from tests.unit.cli.conftest import TOML, Aircraft, Cluster, running
from tests.unit.cli.partition import placing

pytestmark = pytest.mark.feature("P6", "P13", "O1")

Run = Callable[..., Any]

CUSTOM = TOML.replace("[zones.home]", '[application]\nmodules = ["tests.unit.cli.partition.placing"]\n[zones.home]')


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, CUSTOM.replace("partitions = 6", "partitions = 3")), monkeypatch) as made:
        made.create(*(Aircraft(f"N{i}", miles=i) for i in range(40)))
        yield made


def write(fleet: Cluster, name: str, **values: object) -> Path:
    """A file in which the policy has these values."""
    said = "".join(
        f"{key} = {value!r}\n" if isinstance(value, int) else f'{key} = "{value}"\n' for key, value in values.items()
    )
    kept = CUSTOM.replace("partitions = 6\n", "" if "partitions" in values else "partitions = 3\n")
    path = fleet.directory / name
    path.write_text(kept.replace("[policies.p]\n", f"[policies.p]\n{said}"))
    return path


SOME = range(0, 40, 5)


def at(halog: Run, fleet: Cluster) -> dict[str, str]:
    """Where each aircraft is, as `halog get` finds it."""
    return {f"N{i}": halog("get", "Aircraft", f"N{i}", "--format", "json").json["partition"] for i in SOME}


def test_a_dry_run_says_what_will_move_and_the_rest_moves_it(fleet: Cluster, halog: Run) -> None:
    file = write(fleet, "more.toml", partitions=5)
    dry = halog("rebalance", "--config", file, "--dry-run", "--format", "json")
    assert (dry.code, dry.json["objects"]) == (0, 40), dry
    assert {m["to"] for m in dry.json["moves"]} == {"p-3", "p-4"}, "only the new ones get any"
    assert halog("rebalance", "status").code == 0
    assert len(fleet.tables()) == 3, "nothing was changed"
    ran = halog("rebalance", "--config", file, "--timeout", 30, "--format", "json")
    assert (ran.code, ran.json["state"], ran.json["version"], ran.json["clean"]) == (0, "done", 1, 5), ran
    assert len(fleet.tables()) == 5
    assert {"p-3", "p-4"} & set(at(halog, fleet).values())
    moved = halog("rebalance", "--config", file)
    assert (moved.code, "nothing differs" in moved.err) == (0, True), "there is nothing to do"
    assert halog("mapper", "list", "--format", "json").json[0]["partitions"] == 5
    fleet.settle()


def test_a_node_with_the_old_file_starts_and_goes_by_the_cluster(fleet: Cluster, halog: Run) -> None:
    before = at(halog, fleet)
    assert halog("rebalance", "--config", write(fleet, "ring.toml", ring_size=333), "--timeout", 30).code == 0
    after = at(halog, fleet)
    assert before != after
    fleet.stop("A")
    fleet.start("A")
    for tail, partition in after.items():
        with fleet.nodes["A"].transaction():
            assert fleet.nodes["A"].get(Aircraft, tail).miles == int(tail[1:])
        assert fleet.nodes["A"].runtime.partition_of("Aircraft", b"\x04" + tail.encode()) is not None
        assert fleet.partition_of(Aircraft(tail)) == partition


def test_another_mapper_its_next_version_and_code_that_lacks_it(
    fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of the next version is deployed first; a node without it is named, and nothing is changed."""

    @versioned(1)
    def spread(type_name: str, key: tuple[Any, ...]) -> str:
        return f"p-{int(key[0][1:]) % 3}"

    @versioned(2, earlier=spread)
    def gathered(type_name: str, key: tuple[Any, ...]) -> str:
        return "p-1"

    file = write(fleet, "custom.toml", mapper="tests.unit.cli.partition.placing:spread")
    monkeypatch.setitem(placing.DEPLOYED, "spread", spread)
    assert halog("rebalance", "--config", file, "--timeout", 30).code == 0
    assert at(halog, fleet) == {f"N{i}": f"p-{i % 3}" for i in SOME}
    monkeypatch.setitem(placing.DEPLOYED, "spread", gathered)
    assert at(halog, fleet)["N5"] == "p-2", "newer code goes by the cluster's version"
    fleet.stop("A")
    fleet.start("A")
    assert halog("rebalance", "--config", file, "--timeout", 30).code == 0
    assert set(at(halog, fleet).values()) == {"p-1"}
    monkeypatch.setitem(placing.DEPLOYED, "spread", spread)  # the code from before
    fleet.stop("A")
    with pytest.raises(Exception, match="version 2 of mapper"):
        fleet.start("A")
    monkeypatch.setitem(placing.DEPLOYED, "spread", gathered)
    fleet.start("A")
    assert halog("rebalance", "--config", write(fleet, "back.toml"), "--timeout", 30).code == 0


def test_nodes_that_lack_a_mappers_module_are_named_and_nothing_changes(
    cluster: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(placing.DEPLOYED, "spread", lambda type_name, key: "p-1")
    file = cluster.directory / "custom.toml"
    file.write_text(
        CUSTOM.replace("[policies.p]\n", '[policies.p]\nmapper = "tests.unit.cli.partition.placing:spread"\n')
    )
    ran = halog("rebalance", "--config", file)
    assert ran.code == 5, ran
    assert all(f"node {name}: " in ran.err for name in "ABC")
    assert "is not in [application] modules" in ran.err
    assert halog("rebalance", "status", "--format", "json").json["policies"][0]["version"] == 0


def test_a_change_under_way_is_shown_and_cancelled(fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapper that fails for some key: the change stands, the node says why, and it can be turned back."""

    def picky(type_name: str, key: tuple[Any, ...]) -> str:
        return "nowhere" if key[0] == "N7" else "p-0"

    monkeypatch.setitem(placing.DEPLOYED, "spread", picky)
    file = write(fleet, "picky.toml", mapper="tests.unit.cli.partition.placing:spread")
    began = halog("rebalance", "--config", file, "--no-wait")
    assert began.code == 0, began

    def stuck() -> bool:
        ran = halog("rebalance", "status", "--format", "json")
        return ran.code == 4 and "'nowhere'" in str(ran.json["problems"])

    from tests.unit.cli.conftest import wait_until

    wait_until(stuck)
    assert halog("export", "--out", fleet.directory / "all.jsonl").code != 0
    assert halog("rebalance", "cancel").code == 0
    wait_until(lambda: halog("rebalance", "status").code == 0)
    for i in range(40):
        with fleet.nodes["B"].transaction():
            assert fleet.nodes["B"].get(Aircraft, f"N{i}").miles == i


def test_large_objects_are_all_counted(fleet: Cluster, halog: Run) -> None:
    """By whatever reads all of them before anything moves: pages of large objects are short, and not the last ones."""
    fleet.nodes["A"].load(Aircraft(f"L{i}", photo=bytes(20_000)) for i in range(560))
    file = write(fleet, "more.toml", partitions=5)
    dry = halog("rebalance", "--config", file, "--dry-run", "--format", "json").json
    assert dry["objects"] == 600
    foreseen = halog("config", "diff", file, "--format", "json").json["moving"]["p"]
    assert foreseen == {"objects": 600, "would_move": sum(m["objects"] for m in dry["moves"])}
    found = halog("mapper", "explain", "Aircraft", "--distribution", "--format", "json").json
    assert found["keys"] == 600
    assert len(halog("list", "Aircraft", "--all", "--format", "json").json) == 600
