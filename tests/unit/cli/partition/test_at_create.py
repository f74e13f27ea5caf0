"""Mappers asked at create as operators meet them, on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import TOML, Cluster, Seaplane, running
from tests.unit.cli.partition.test_listed_keys import ROUND, at

pytestmark = pytest.mark.feature("P6", "O1")

Run = Callable[..., Any]
MODULE = "tests.unit.cli.partition.placing"
BY_MILES = f"at_create:{MODULE}:by_miles"
SITE = f'[application]\nmodules = ["{MODULE}"]\n[site]\n'
PLACED = TOML.replace("[site]\n", SITE).replace("[bindings]\n", ROUND.replace("round_robin", BY_MILES))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, PLACED), monkeypatch) as made:
        yield made


def fill(fleet: Cluster, count: int = 8) -> None:
    fleet.create(*(Seaplane(f"S{i}", miles=i * 5) for i in range(count)))


def test_a_mapper_is_listed_and_explained(fleet: Cluster, halog: Run) -> None:
    """With its version, the ring of its directory, and where it has put the object."""
    fill(fleet)
    listed = {p["policy"]: p for p in halog("mapper", "list", "--format", "json").json}["round"]
    assert (listed["mapper"], listed["version"], listed["parameters"]) == (BY_MILES, 4, {"ring_size": 65536})
    found = halog("mapper", "explain", "Seaplane", "S7", "--format", "json").json
    assert found["mapper"] == {"name": BY_MILES, "version": 4, "parameters": {"ring_size": 65536}}
    assert (found["partition"], found["entry"]) == ("round-3", fleet.partition_of(Seaplane("S7")))
    assert [at(halog, f"S{i}") for i in range(8)] == [f"round-{i // 2}" for i in range(8)]
    none = halog("mapper", "explain", "Seaplane", "S99").out
    assert "there is no such object; a new one goes where the mapper says, which is asked then" in none
    assert "has a key directory; there is none of this key" in halog("mapper", "explain", "Aircraft", "N1").out


def test_objects_are_counted_where_they_are_and_keys_alone_say_nothing(
    fleet: Cluster, halog: Run, tmp_path: Path
) -> None:
    fill(fleet, 6)
    args = ("mapper", "explain", "--distribution")
    found = halog(*args, "Seaplane", "--partitions", 2, "--format", "json").json
    assert [s["keys"] for s in found["partitions"]] == [2, 2, 2, 0]
    assert (found["growth"][0]["moved"], found["growth"][0]["after"]) == (2, 2)
    keys = tmp_path / "keys.txt"
    keys.write_text("S1\nS2\n")
    for more in (("--policy", "round", "--sample", 10), ("Seaplane", "--keys", keys)):
        refused = halog(*args, *more)
        assert (refused.code, f"mapper {BY_MILES} of policy round looks at more than the key" in refused.err) == (
            5,
            True,
        ), refused


def test_imported_objects_go_where_the_mapper_says(fleet: Cluster, halog: Run, tmp_path: Path) -> None:
    fill(fleet)
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file).code == 0
    node = fleet.nodes["C"]
    with node.transaction() as tx:
        for found in tx.extent(Seaplane):
            tx.delete(found)
    assert halog("import", file).code == 0
    assert [at(halog, f"S{i}") for i in range(8)] == [f"round-{i // 2}" for i in range(8)]


def test_an_import_that_the_mapper_refuses_says_how_far_it_is(fleet: Cluster, halog: Run, tmp_path: Path) -> None:
    fill(fleet, 2)
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file).code == 0
    text = (
        file.read_text().replace('"S1"', '"S8"').replace('"miles": 5', '"miles": 99').replace('"miles":5', '"miles":99')
    )
    file.write_text(text)
    assert "its checksum differs; nothing was imported" in halog("import", file, "--skip-existing").err
    refused = halog("import", file, "--skip-existing", "--unverified")
    assert refused.code != 0
    assert "after 0 objects: mapper at_create:" in refused.err, refused
    assert (
        "for Seaplane ('S8') said 'round-9', which is no partition: round-0, round-1, round-2, round-3" in refused.err
    )
    assert halog("get", "Seaplane", "S8").code == 2


def test_a_dry_run_asks_the_mapper_of_the_file(fleet: Cluster, halog: Run) -> None:
    fill(fleet)
    fewer, ready = fleet.directory / "fewer.toml", fleet.directory / "ready.toml"
    fewer.write_text(PLACED.replace("partitions = 4", "partitions = 3"))
    ready.write_text(PLACED.replace("partitions = 4", "partitions = 3").replace(BY_MILES, "least_loaded"))
    args = ("rebalance", "--policy", "round", "--config")
    failing = halog(*args, fewer, "--dry-run")
    assert "said 'round-3', which is no partition: round-0, round-1, round-2" in failing.err, failing
    dry = halog(*args, ready, "--dry-run", "--format", "json").json
    assert (dry["would_move"], {m["from"] for m in dry["moves"]}) == (2, {"round-3"})
    ran = halog(*args, ready, "--timeout", 60, "--format", "json")
    assert (ran.code, ran.json["state"]) == (0, "done"), ran
    assert {at(halog, f"S{i}") for i in range(8)} == {"round-0", "round-1", "round-2"}
    listed = {p["policy"]: p for p in halog("mapper", "list", "--format", "json").json}["round"]
    assert (listed["mapper"], listed["version"]) == ("least_loaded", 1)


def test_a_configuration_is_checked_by_name(fleet: Cluster, halog: Run) -> None:
    wrong = fleet.directory / "wrong.toml"
    for mapper, why in (
        ("at_create:os:getcwd", "module 'os' is not in [application] modules"),
        (f"at_create:{MODULE}", 'must be "at_create:<module>:<callable>"'),
        ("least_laden", "must be one of consistent_hash, round_robin, least_loaded"),
    ):
        wrong.write_text(PLACED.replace(BY_MILES, mapper))
        checked = halog("config", "check", "--config", wrong)
        assert checked.code != 0
        assert why in checked.err + checked.out, checked
