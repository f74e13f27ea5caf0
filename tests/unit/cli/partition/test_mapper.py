"""mapper list and explain, and what custom mappers and inherited bindings do, on the memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from halog.errors import ConfigError, DuplicateKeyError, MapperError, RefusedError
from halog.schema import managed
from mappers import ConsistentHash, versioned
from tests.unit.cli.conftest import FLEET, Aircraft, Cluster, Flight, Seaplane, running
from tests.unit.cli.partition import placing

pytestmark = pytest.mark.feature("P6", "O1")

Run = Callable[..., Any]

TOML = """
[cluster]
name = "ops"
[site]
bootstrap = "127.0.0.1:1"
zookeeper = "127.0.0.1:2"
[application]
modules = ["tests.unit.cli.partition.placing"]
[zones.home]
nodes = ["A", "B", "C"]
[policies.p]
zone = "home"
partitions = 6
ring_size = 6000
[policies.few]
zone = "home"
partitions = 2
mapper = "tests.unit.cli.partition.placing:Rules.first"
[policies.fixed]
kind = "static"
zone = "home"
mapper = "tests.unit.cli.partition.placing:by_region"
[policies.fixed.partitions]
eu = ["A", "B"]
us = { nodes = ["C", "B", "A"], async = ["A"] }
[bindings]
"*" = "p"
Seaplane = "few"
Flight = "fixed"
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
[nodes.C]
data_dir = "C"
"""


@managed(registry=FLEET)
class Flyingboat(Seaplane):
    """Of a base with a binding of its own."""

    def fly(self, miles: int) -> int:
        self.miles += miles
        return self.miles


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, TOML), monkeypatch) as made:
        yield made


def app(cluster: Cluster) -> Any:
    return cluster.nodes["A"]


def stored(cluster: Cluster, partition: str) -> list[bytes]:
    """The index keys in a partition."""
    return [found.key for found in app(cluster).runtime.scan(partition, b"")]


def test_the_list_shows_each_policys_mapper_and_types(mapped: Cluster, halog: Run) -> None:
    found = {p["policy"]: p for p in halog("mapper", "list", "--format", "json").json}
    assert {n: (p["kind"], p["mapper"], p["version"], p["parameters"]) for n, p in found.items()} == {
        "p": ("dynamic", "consistent_hash", 1, {"ring_size": 6000}),
        "few": ("dynamic", "tests.unit.cli.partition.placing:Rules.first", 1, {}),
        "fixed": ("static", "tests.unit.cli.partition.placing:by_region", 3, {}),
    }
    assert found["few"]["types"] == ["Flyingboat", "Seaplane"], "a binding holds for subclasses"
    assert found["fixed"]["types"] == ["Flight"]
    assert "Aircraft" in found["p"]["types"]
    shown = halog("mapper", "list")
    assert shown.code == 0
    assert "ring_size 6000" in shown.out


def test_explain_goes_from_the_type_to_the_nodes(mapped: Cluster, halog: Run) -> None:
    ring = ConsistentHash(6, 6000)
    routing = FLEET.info(Aircraft).routing_key(("N1",))
    found = halog("mapper", "explain", "Aircraft", "N1", "--format", "json").json
    assert found["partition"] == f"p-{ring.partition(routing)}"
    assert found["slot"] == ring.slot(routing)
    assert found["mapper"] == {"name": "consistent_hash", "version": 1, "parameters": {"ring_size": 6000}}
    assert (found["chain"], found["binding"], found["policy"]) == (["Aircraft"], "*", "p")
    assert found["subclasses"] == {"Flyingboat": "few-0", "Seaplane": "few-0"}
    assert [n["role"] for n in found["nodes"]] == ["active", "sync"]
    text = halog("mapper", "explain", "Aircraft", "N1").out
    assert f"{ring.slot(routing)} of 6000" in text
    assert '"*" = "p" for every type' in text


def test_explain_names_the_base_whose_binding_holds(mapped: Cluster, halog: Run) -> None:
    found = halog("mapper", "explain", "Flyingboat", "N1", "--format", "json").json
    assert (found["chain"], found["binding"]) == (["Flyingboat", "Seaplane", "Aircraft"], "Seaplane")
    assert (found["policy"], found["partition"], found["slot"]) == ("few", "few-0", None)
    assert "by inheritance" in halog("mapper", "explain", "Flyingboat", "N1").out


def test_explain_shows_a_static_partitions_nodes(mapped: Cluster, halog: Run) -> None:
    found = halog("mapper", "explain", "Flight", "us-1", "7", "--format", "json").json
    assert (found["partition"], found["kind"], found["mapper"]["version"]) == ("us", "static", 3)
    assert found["nodes"] == [
        {"node": "C", "role": "active"},
        {"node": "B", "role": "sync"},
        {"node": "A", "role": "async"},
    ]
    assert found["routing_values"] == ["us-1"], "partition_by decides, not the key"


def test_a_custom_mapper_places_and_finds(mapped: Cluster) -> None:
    placing.ASKED.clear()
    mapped.create(Flight("eu-1", 1), Flight("us-1", 1))
    assert len(stored(mapped, "eu")) == len(stored(mapped, "us")) == 1
    assert set(placing.ASKED) == {("Flight", ("eu-1",)), ("Flight", ("us-1",))}
    with mapped.nodes["B"].transaction() as tx:
        assert tx.get(Flight, "us-1", 1).flight == 1


def test_a_mapper_that_names_no_partition_is_an_error_and_nothing_changes(mapped: Cluster, halog: Run) -> None:
    """The error names mapper, version, type, key, answer, and the partitions there are."""
    said = r"placing:by_region \(version 3\) for Flight \('asia-1'\) said 'asia', which is no partition: eu, us"
    with pytest.raises(MapperError, match=said), app(mapped).transaction() as tx:
        tx.create(Aircraft("N1"))
        tx.create(Flight("asia-1", 1))
    with app(mapped).transaction() as tx:
        assert tx.find(Aircraft, "N1") is None
    with pytest.raises(MapperError, match=said):
        app(mapped).load([Flight("asia-1", 1)])
    ran = halog("mapper", "explain", "Flight", "asia-1", "7")
    assert (ran.code, "said 'asia', which is no partition" in ran.err) == (1, True), ran


def test_a_mapper_that_changes_its_mind_is_an_error(mapped: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    app(mapped).runtime.routing.mappings.now.owners.clear()
    monkeypatch.setitem(placing.ANSWERS, "first", cycle(["few-0", "few-1"]))
    with pytest.raises(MapperError, match="said 'few-0' and then 'few-1': it must look at type and key only"):
        mapped.create(Seaplane("N2"))


def test_a_base_finds_what_subclasses_keep_elsewhere(mapped: Cluster) -> None:
    mapped.create(Seaplane("N1", floats=3), Aircraft("N2"), Flyingboat("N3"))
    assert len(stored(mapped, "few-0")) == 2
    for name in "AB":
        node = mapped.nodes[name]
        with node.transaction() as tx:
            found: Any = tx.get(Aircraft, "N1")
            assert found.floats == 3
            assert tx.get(Seaplane, "N1") is tx.get(Aircraft, "N1")
            assert type(tx.get(Aircraft, "N3")) is Flyingboat
            assert tx.find(Seaplane, "N2") is None
            assert type(tx.get(Aircraft, "N2")) is Aircraft
            assert {a.tail for a in tx.extent(Aircraft)} == {"N1", "N2", "N3"}
        with node.transaction() as tx:
            tx.get(Aircraft, "N1").miles += 1
    with app(mapped).transaction() as tx:
        assert tx.get(Seaplane, "N1").miles == 2
        ref = tx.ref(tx.get(Seaplane, "N1"))
    with app(mapped).transaction() as tx:
        assert tx.resolve(ref).miles == 2


def test_methods_run_where_the_subclass_is(mapped: Cluster) -> None:
    """Found by the base, from every node, also after the base's place was looked at in vain."""
    mapped.create(Flyingboat("N3"))
    for flown, name in enumerate("ABC", 1):
        with mapped.nodes[name].transaction() as tx:
            assert tx.find(Aircraft, "N9") is None
            boat: Any = tx.get(Aircraft, "N3")
            assert boat.fly(10) == 10 * flown
            tx.create(Seaplane(f"N9-{name}"))
    with app(mapped).transaction() as tx:
        assert tx.get(Flyingboat, "N3").miles == 30
        assert len(list(tx.extent(Seaplane))) == 4


def test_found_nowhere_and_then_created(mapped: Cluster) -> None:
    """What was looked for in vain at the base's place is created at its own."""
    with app(mapped).transaction() as tx:
        assert tx.find(Aircraft, "N1") is None
        tx.create(Seaplane("N1"))
    assert len(stored(mapped, "few-0")) == 1
    with app(mapped).transaction() as tx:
        with pytest.raises(DuplicateKeyError):
            tx.create(tx.find(Aircraft, "N1") and Seaplane("N1"))
        tx.delete(tx.get(Aircraft, "N1"))
    assert stored(mapped, "few-0") == []


def test_one_key_at_two_places_needs_two_transactions(mapped: Cluster) -> None:
    """The key is unique at each place; a transaction never takes one object for the other."""
    mapped.create(Aircraft("N1"), Seaplane("N1"))
    with app(mapped).transaction() as tx:
        assert type(tx.get(Aircraft, "N1")) is Aircraft, "its own place first"
        with pytest.raises(RefusedError, match=r"Aircraft 'N1' is in this transaction .* belongs in few-0"):
            tx.find(Seaplane, "N1")
        with pytest.raises(RefusedError, match="use a transaction for each"):
            tx.create(Seaplane("N1"))
    with app(mapped).transaction() as tx:
        assert type(tx.get(Seaplane, "N1")) is Seaplane


def test_another_mapper_is_refused_by_name(mapped: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, name or ring: neither a node nor a tool works with it, and nothing changes."""
    before = {p: mapped.tree.get(f"policies/{p}") for p in ("p", "few", "fixed")}
    monkeypatch.setitem(placing.DEPLOYED, "by_region", versioned(4)(placing.region))
    with pytest.raises(ConfigError, match=r"policies\.fixed differs from what .* mapper_version is 4 here, 3 there"):
        mapped.start("client")
    ran = halog("get", "Flight", "eu-1", "7")
    assert (ran.code, "mapper_version is 4 here, 3 there" in ran.err) == (2, True), ran
    monkeypatch.setitem(placing.DEPLOYED, "by_region", versioned(3)(placing.region))
    for old, new, said in (
        ("ring_size = 6000", "ring_size = 7000", "ring_size is 7000 here, 6000 there"),
        ('"tests.unit.cli.partition.placing:Rules.first"', '"consistent_hash"', "mapper is "),
        ("us = {", "asia = {", 'names is \\["eu","asia"\\] here'),
    ):
        mapped.path.write_text(TOML.replace(old, new))
        with pytest.raises(ConfigError, match=said):
            mapped.start("client")
    assert {p: mapped.tree.get(f"policies/{p}") for p in before} == before


def test_another_binding_is_refused_by_name(mapped: Cluster, halog: Run) -> None:
    """A type stays with the policy it was first bound to."""
    mapped.path.write_text(TOML.replace('Seaplane = "few"', 'Seaplane = "p"'))
    with pytest.raises(ConfigError, match=r'bindings\."\w+": is p, and the cluster keeps objects of \w+ under few'):
        mapped.start("client")


def test_types_of_a_cluster_without_recorded_bindings_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    """Before bindings were inherited, a subclass without its own fell to "*"; its objects are still found."""
    older = TOML.replace('Seaplane = "few"', "")
    with running(Cluster(tmp_path, older), monkeypatch) as made:
        made.create(Flyingboat("N1"))
        for name in "ABC":
            made.stop(name)
        held = made.tree.get("bindings")
        assert held is not None
        made.tree.delete("bindings", held.version)
        made.path.write_text(TOML)
        for name in "ABC":
            made.start(name)
        made.settle()
        with made.nodes["A"].transaction() as tx:
            assert tx.get(Flyingboat, "N1").tail == "N1"
        assert halog("mapper", "explain", "Flyingboat", "N1", "--format", "json").json["policy"] == "p"


def test_the_distribution_of_made_up_keys(mapped: Cluster, halog: Run) -> None:
    args = ("mapper", "explain", "--distribution", "--policy", "p", "--sample", 3000)
    found = halog(*args, "--partitions", 9, "--nodes", 1, "--format", "json").json
    assert sum(s["keys"] for s in found["partitions"]) == found["keys"] == 3000
    assert 1.0 <= found["partitions_max_of_mean"] < 1.3
    assert sum(s["keys"] for s in found["leads"]) == 3000
    assert sum(s["keys"] for s in found["copies"]) == 6000
    partitions, nodes = found["growth"]
    assert (partitions["before"], partitions["after"], partitions["minimum"]) == (6, 9, 1000)
    assert abs(partitions["moved"] - 1000) < 200, "only what the new ones get"
    assert (nodes["before"], nodes["after"], nodes["minimum"]) == (3, 4, 1500)
    assert abs(nodes["moved"] - 1500) < 500, "three of twelve copies"
    shown = halog(*args, "--partitions", 9).out
    assert "an even spread takes 1,000" in shown
    assert halog(*args, "--format", "json").json["growth"] == [], "the same keys again"


def test_the_distribution_of_objects_and_of_files(mapped: Cluster, halog: Run, tmp_path: Path) -> None:
    mapped.create(Aircraft("N1"), Aircraft("N2"), Seaplane("N3"), *[Flight("eu-1", i) for i in range(4)])
    found = halog("mapper", "explain", "Aircraft", "--distribution", "--format", "json").json
    assert (found["policy"], found["keys"]) == ("p", 2), "Seaplane has a binding of its own"
    flights = halog("mapper", "explain", "Flight", "--distribution", "--nodes", 1, "--format", "json").json
    assert [(s["name"], s["keys"], s["of_mean"]) for s in flights["partitions"]] == [("eu", 4, 2.0), ("us", 0, 0.0)]
    assert flights["growth"][0]["moved"] == 0, "static"
    exported, keys = tmp_path / "all.jsonl", tmp_path / "keys.txt"
    assert halog("export", "-o", exported).code == 0
    assert (
        halog("mapper", "explain", "Flight", "--distribution", "--keys", exported, "--format", "json").json["keys"] == 4
    )
    keys.write_text('eu-1 7\n\n["us-3", 8]\n')
    found = halog("mapper", "explain", "Flight", "--distribution", "--keys", keys, "--format", "json").json
    assert [s["keys"] for s in found["partitions"]] == [1, 1]
    keys.write_text("one\ntwo\n")
    args = ("mapper", "explain", "--distribution", "--policy", "p", "--keys", keys, "--format", "json")
    assert halog(*args).json["keys"] == 2


@pytest.mark.feature("P7")
def test_a_partition_nobody_has_placed_has_keys_and_no_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    toml = TOML.replace('mapper = "tests.unit.cli.partition.placing:by_region"', "").replace(
        "[bindings]", "asia = []\n[bindings]"
    )
    with running(Cluster(tmp_path, toml), monkeypatch):
        ran = halog("mapper", "explain", "--distribution", "--policy", "fixed", "--sample", 900, "--format", "json")
        assert ran.code == 0, ran
        keys = {s["name"]: s["keys"] for s in ran.json["partitions"]}
        assert (keys.keys(), sum(keys.values())) == ({"eu", "us", "asia"}, 900)
        assert {s["name"]: s["keys"] for s in ran.json["leads"]} == {"A": keys["eu"], "B": 0, "C": keys["us"]}
        assert sum(s["keys"] for s in ran.json["copies"]) == 2 * keys["eu"] + 3 * keys["us"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("explain", "Aircraft"), 2, "give a type and a key"),
        (("explain", "Aircraft", "N1", "--partitions", "3"), 2, "give a type and a key"),
        (("explain", "Aircraft", "--distribution", "--sample", "3"), 2, "made-up keys have no type"),
        (("explain", "Aircraft", "N1", "N2"), 2, "the key is (tail)"),
        (("explain", "Aircarft", "N1"), 2, "did you mean Aircraft?"),
        (("explain", "--distribution"), 2, "name one with --policy; "),
        (("explain", "--distribution", "--policy", "x"), 2, "there is no policy x; known are p, few, fixed"),
        (("explain", "--distribution", "--policy", "few"), 2, "is asked by type: give one"),
        (("explain", "Flight", "--distribution", "--policy", "p"), 2, "is bound to policy fixed, not to p"),
        (("explain", "Flight", "--distribution", "--partitions", "3"), 5, "nobody knows what it would say"),
        (("explain", "--distribution", "--policy", "p", "--partitions", "601"), 2, "at least 6010"),
        (("explain", "--distribution", "--policy", "p", "--keys", "none.txt"), 2, "none.txt: cannot be read"),
    ],
)
def test_what_cannot_be_is_said(mapped: Cluster, halog: Run, args: tuple[str, ...], code: int, said: str) -> None:
    ran = halog("mapper", *args)
    assert (ran.code, said in ran.err) == (code, True), ran


def test_a_bad_line_is_named(mapped: Cluster, halog: Run, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("eu-1 7\neu-1 seven\n")
    ran = halog("mapper", "explain", "Flight", "--distribution", "--keys", keys)
    assert (ran.code, f"{keys}, line 2: " in ran.err) == (2, True), ran
