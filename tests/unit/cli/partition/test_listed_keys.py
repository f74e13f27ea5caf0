"""Round robin and its key directory as operators meet them, on the memory adapters: entries are never objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.backend import Work, Write
from halog.core.keys.directory import DIRECTORY, ID_BYTES, packed
from halog.core.log.records import UPDATE
from halog.errors import DuplicateKeyError
from tests.unit.cli.conftest import FLEET, TOML, Aircraft, Cluster, Flight, Seaplane, running

pytestmark = pytest.mark.feature("P6", "O1")

Run = Callable[..., Any]

ROUND = """
[policies.round]
zone = "home"
partitions = 4
mapper = "round_robin"
sync_replicas = 1
[bindings]
Seaplane = "round"
Flight = "round"
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, TOML.replace("[bindings]\n", ROUND)), monkeypatch) as made:
        yield made


def at(halog: Run, tail: str) -> str:
    """Where a seaplane is, as `halog get` finds it."""
    partition = halog("get", "Seaplane", tail, "--format", "json").json["partition"]
    assert isinstance(partition, str)
    return partition


def fill(fleet: Cluster, count: int = 12) -> None:
    fleet.create(*(Seaplane(f"S{i}", miles=i) for i in range(count)))


def test_objects_are_found_where_their_turn_was(fleet: Cluster, halog: Run) -> None:
    fill(fleet)
    assert set(Counter(at(halog, f"S{i}") for i in range(12)).values()) == {3}
    assert halog("get", "Aircraft", "S3", "--format", "json").json["fields"]["miles"] == 3, "of its base, too"
    missing = halog("get", "Seaplane", "S99")
    assert (missing.code, "no Seaplane has the key S99" in missing.err) == (2, True), missing


def test_a_child_may_go_round_where_its_base_is_hashed(fleet: Cluster, halog: Run) -> None:
    """Inheritance and override: the base finds what its subclass keeps elsewhere."""
    fleet.create(Aircraft("N1"), Seaplane("S1"))
    node = fleet.nodes["B"]
    with node.transaction() as tx:
        assert type(tx.get(Aircraft, "S1")) is Seaplane
        assert type(tx.get(Aircraft, "N1")) is Aircraft
        assert tx.find(Seaplane, "N1") is None
        assert tx.find(Aircraft, "none") is None
        assert sorted(a.tail for a in tx.extent(Aircraft)) == ["N1", "S1"]
    with pytest.raises(DuplicateKeyError), node.transaction() as tx:
        tx.create(Seaplane("S1"))
    with node.transaction() as tx:
        tx.delete(tx.get(Aircraft, "S1"))
    with node.transaction() as tx:
        assert tx.find(Aircraft, "S1") is None
        tx.create(Seaplane("S1"))


def test_explain_says_where_the_entry_is_and_where_it_leads(fleet: Cluster, halog: Run) -> None:
    fill(fleet, 4)
    found = halog("mapper", "explain", "Seaplane", "S2", "--format", "json").json
    assert found["mapper"] == {"name": "round_robin", "version": 1, "parameters": {"ring_size": 65536}}
    assert found["partition"] == at(halog, "S2")
    assert found["entry"] == fleet.partition_of(Seaplane("S2"))
    assert [n["role"] for n in found["nodes"]] == ["active", "sync"]
    none = halog("mapper", "explain", "Seaplane", "S99", "--format", "json").json
    assert (none["partition"], none["nodes"], none["entry"]) == (None, [], fleet.partition_of(Seaplane("S99")))
    shown = halog("mapper", "explain", "Seaplane", "S99").out
    assert "there is no such object; a new one goes where its turn is" in shown
    base = halog("mapper", "explain", "Aircraft", "S2", "--format", "json").json
    assert (base["entry"], base["subclasses"]["Seaplane"]) == (None, at(halog, "S2")), "not where its entry is"
    assert halog("mapper", "explain", "Aircraft", "N1", "--format", "json").json["subclasses"]["Seaplane"] is None
    assert "has a key directory; there is none of this key" in halog("mapper", "explain", "Aircraft", "N1").out
    listed = {p["policy"]: p for p in halog("mapper", "list", "--format", "json").json}
    types = sorted(
        i.name for i in FLEET.by_name.values() if issubclass(i.cls, Flight | Seaplane)
    )  # of other tests, too
    assert (listed["round"]["mapper"], listed["round"]["types"]) == ("round_robin", types)


def test_the_distribution_is_that_of_the_objects_and_nothing_moves(fleet: Cluster, halog: Run) -> None:
    fill(fleet, 8)
    args = ("mapper", "explain", "--distribution", "--partitions")
    found = halog(*args, 7, "Seaplane", "--format", "json").json
    assert [s["keys"] for s in found["partitions"]] == [2, 2, 2, 2]
    assert [(g["before"], g["after"], g["moved"], g["minimum"]) for g in found["growth"]] == [(4, 7, 0, 0)]
    fewer = halog(*args, 3, "Seaplane", "--format", "json").json["growth"][0]
    assert (fewer["moved"], fewer["minimum"]) == (2, 2)
    made_up = halog(*args, 7, "--policy", "round", "--sample", 400, "--format", "json").json
    assert [s["keys"] for s in made_up["partitions"]] == [100] * 4
    assert made_up["growth"][0]["moved"] == 0


def test_exported_objects_are_imported_in_turn_and_entries_are_neither(
    fleet: Cluster, halog: Run, tmp_path: Path
) -> None:
    fill(fleet)
    fleet.create(*(Flight("eu", i) for i in range(4)), Aircraft("N1"))
    file = tmp_path / "all.jsonl"
    assert halog("export", "-o", file).code == 0
    assert len(file.read_text().splitlines()) == 12 + 4 + 1 + 1, "and the checksum line"
    there = halog("import", file)
    assert (there.code, "exists; nothing was imported" in there.err) == (1, True), there
    node = fleet.nodes["C"]
    with node.transaction() as tx:
        for cls in (Aircraft, Flight):
            for found in tx.extent(cls):
                tx.delete(found)
    fleet.create(Seaplane("S0", miles=77))
    done = halog("import", file, "--skip-existing", "--format", "json")
    assert (done.code, done.json["created"], done.json["existing"]) == (0, 16, 1), done
    with node.transaction() as tx:
        assert [tx.get(Seaplane, f"S{i}").miles for i in range(12)] == [77, *range(1, 12)]
        assert len(list(tx.extent(Flight))) == 4
    found = halog("mapper", "explain", "Seaplane", "--distribution", "--format", "json").json
    assert found["keys"] == 12
    assert max(s["keys"] for s in found["partitions"]) <= 5


def test_the_log_shows_entries_as_such(fleet: Cluster, halog: Run) -> None:
    fill(fleet, 1)
    home, entry = at(halog, "S0"), fleet.partition_of(Seaplane("S0"))
    changes = [
        (name, c)
        for name in {home, entry}
        for s in halog("log", "tail", name, "-n", 100, "--format", "json").lines
        for c in s.get("changes", ())
    ]
    shown = {(name, c["op"], c["type"], *c["key"]) for name, c in changes}
    assert (home, "create", "Seaplane", "S0") in shown
    assert (entry, "create", "entry of Aircraft", "S0") in shown
    assert [c["fields"] for _, c in changes if c["type"].startswith("entry")] == [{"partition": home}]
    assert halog("log", "tail", entry).code == 0


def test_a_dry_run_counts_objects_only(fleet: Cluster, halog: Run) -> None:
    fill(fleet, 8)
    text = TOML.replace("[bindings]\n", ROUND)
    more, fewer, other = (fleet.directory / name for name in ("more.toml", "fewer.toml", "other.toml"))
    more.write_text(text.replace("partitions = 4", "partitions = 9"))
    fewer.write_text(text.replace("partitions = 4", "partitions = 3"))
    other.write_text(text.replace('"round_robin"', '"consistent_hash"').replace("partitions = 4", "partitions = 3"))
    args = ("rebalance", "--policy", "round", "--config")
    dry = halog(*args, more, "--dry-run", "--format", "json").json
    assert (dry["objects"], dry["would_move"]) == (8, 0)
    dry = halog(*args, fewer, "--dry-run", "--format", "json").json
    assert (dry["objects"], dry["would_move"], {m["from"] for m in dry["moves"]}) == (8, 2, {"round-3"})
    ran = halog(*args, fewer, "--timeout", 60, "--format", "json")
    assert (ran.code, ran.json["state"]) == (0, "done"), ran
    assert {at(halog, f"S{i}") for i in range(8)} == {"round-0", "round-1", "round-2"}
    dry = halog(*args, other, "--dry-run", "--format", "json").json
    ran = halog(*args, other, "--timeout", 60, "--format", "json")
    assert (ran.code, ran.json["state"]) == (0, "done"), ran
    assert {at(halog, f"S{i}") for i in range(8)} == {fleet.partition_of(Seaplane(f"S{i}")) for i in range(8)}
    assert 0 < dry["would_move"] <= 8
    both = halog(*args, more)
    assert (both.code, "change the mapper alone" in both.err) == (5, True), both


def test_an_object_that_is_never_where_its_entry_says_is_not_looked_for_for_ever(fleet: Cluster, halog: Run) -> None:
    """What should not be: its entry names another partition."""
    fill(fleet, 1)
    home, entry = at(halog, "S0"), fleet.partition_of(Seaplane("S0"))
    runtime = fleet.nodes["A"].runtime
    (now,) = list(runtime.scan(entry, DIRECTORY))
    wrong = packed(now.value[ID_BYTES : 2 * ID_BYTES], next(f"round-{i}" for i in range(4) if f"round-{i}" != home))
    runtime.commit(
        entry, runtime.new_transaction_id(), Work((), (Write(UPDATE, now.ref, now.key, wrong, now.version),))
    )
    for command in (("get",), ("mapper", "explain")):
        lost = halog(*command, "Seaplane", "S0", "--timeout", 1)
        assert (lost.code, "is not where its entry" in lost.err) == (6, True), lost
