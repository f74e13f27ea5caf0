"""What a running cluster cannot have is refused before it is activated: the same that nodes would refuse, and more."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.config import (
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    RemoteSiteConfig,
    SiteConfig,
    StaticPartition,
    ZoneConfig,
    ZoneQuorumConfig,
)
from halog.config.changes import MOVES, REFUSED
from halog.core.table.table import PartitionTable
from halog.errors import ConfigError
from halog.metadata.nodes import NodeInfo
from halog.runtime.placement.bootstrap import create_tables
from halog.runtime.placement.config_admission import Facts, facts, judged

pytestmark = pytest.mark.feature("P11", "P1")

POLICY = PolicyConfig("main", 4, sync_replicas=1, async_replicas=1)
NODES = {n: NodeConfig(Path(n)) for n in "ABCD"}
BASE = Config(
    ClusterConfig("t"),
    SiteConfig(bootstrap="a:1", zookeeper="b:1"),
    zones={"main": ZoneConfig(("A", "B", "C")), "all": ZoneConfig(("*",)), "few": ZoneConfig(("A", "B", "D"))},
    policies={"p": POLICY},
    bindings={"*": "p"},
    nodes=NODES,
    sites={"west": RemoteSiteConfig("w:1", "w:2")},
).validate()

OTHER: dict[str, Any] = {
    "zone": "few",
    "partitions": 5,
    "sync_replicas": 2,
    "async_replicas": 0,
    "local_sync": "WRITE_NO_SYNC",
    "remote_sync": "SYNC",
    "quorum": True,
    "below_quorum": "wait",
    "count_never": True,
    "lease_ttl_ms": 500,
    "mapper": "round_robin",
    "ring_size": 100_000,
    "before_images": False,
    "rebalance": "manual",
    "kind": "static",
    "zones": ("few",),
    "backup": ("C",),
    "home": "west",
    "move_objects": 7,
    "move_pause_ms": 5,
    "copy_bytes_per_s": 1_000_000,
    "move_threads": 2,
    "copy_threads": 2,
    "call_deadline_ms": 3_000,
    "append_deadline_ms": 3_000,
    "doubt_timeout_ms": 3_000,
    "min_stay_ms": 3_000,
    "join_settle_ms": 3_000,
    "replace_after_ms": 3_000,
    "sync_sites": ("west", "home"),
    "sync_site_away": "drop",
    "sync_site_away_ms": 9_000,
    "takeover": "always",
    "takeover_after_ms": 9_000,
    "comparison": "two-way",
}


def with_policy(**values: Any) -> Config:
    return dataclasses.replace(BASE, policies={"p": dataclasses.replace(POLICY, **values)})


def moves(old: Config | None, new: Config, known: Facts) -> bool:
    return any(c.effect == MOVES for c in judged(old, new, known))


def refused(old: Config | None, new: Config, known: Facts) -> dict[str, str]:
    return {c.text: c.why for c in judged(old, new, known) if c.effect == REFUSED}


def test_there_is_another_value_of_every_key_of_a_policy() -> None:
    assert set(OTHER) == {f.name for f in dataclasses.fields(PolicyConfig)} - {"static"}
    assert not any(getattr(POLICY, name) == value for name, value in OTHER.items())


STARTED_WITH = {"home"}
"""Nodes that find the tables made start with another one as if nothing were said; its own test is below."""


@pytest.mark.parametrize("name", [name for name in OTHER if name not in STARTED_WITH])
def test_of_a_policy_just_that_is_refused_which_nodes_would_refuse(coordinator: MemoryCoordinator, name: str) -> None:
    """Whatever is activated, nodes can start with; where keys belong they go by the cluster."""
    tables = [t for _, t in create_tables(coordinator, BASE).values()]
    new = with_policy(**{name: OTHER[name]})
    if name == "sync_replicas":  # three nodes, three copies
        new = with_policy(sync_replicas=2, async_replicas=0)
    if name == "zones":
        new = with_policy(zone="", zones=("few",))
    if name == "kind":
        by_hand = {f"p-{i}": StaticPartition(("A", "B", "C")) for i in range(4)}
        new = with_policy(kind="static", async_replicas=0, static=by_hand)
    if name.startswith("sync_site"):
        new = with_policy(home="home", **{"sync_sites": OTHER["sync_sites"], name: OTHER[name]})
    if name in ("takeover", "comparison"):
        new = with_policy(home="home", **{name: OTHER[name]})
    try:
        create_tables(coordinator, new.validate(), planned=True)
        starts = True
    except ConfigError:
        starts = False
    known = facts(coordinator, "t", tables, [], {})
    mapped = name in ("partitions", "mapper", "ring_size")
    for old in (BASE, None):
        found = refused(old, new, known)
        assert starts is not bool(found), found
        assert moves(old, new, known) is mapped, "objects are moved first"
        assert starts or (f"policies.p.{name}" in found or (old is None and name in ("zone", "zones")))


@pytest.mark.feature("M5")
@pytest.mark.parametrize(
    ("began", "home", "fits"),
    [
        ("", "", True),
        ("", "home", True),  # the name of this very site
        ("", "west", False),
        ("west", "west", True),
        ("west", "home", False),
        ("west", "", False),
    ],
)
def test_partitions_began_where_they_began(coordinator: MemoryCoordinator, began: str, home: str, fits: bool) -> None:
    def original(table: PartitionTable) -> PartitionTable:
        return msgspec.structs.replace(table, home=began, owner=began)

    tables = [t for _, t in create_tables(coordinator, BASE, originals=original).values()]
    known = facts(coordinator, "t", tables, [], {})
    for old in (BASE, None):
        found = refused(old, with_policy(home=home).validate(), known)
        assert (found == {}) is fits, found
        if not fits:
            assert found["policies.p.home"].startswith(f"its partitions began at site {began or 'home'}, where")


@pytest.mark.feature("M5")
def test_a_mirrored_policy_keeps_its_mapping(coordinator: MemoryCoordinator) -> None:
    old, new = with_policy(home="home").validate(), with_policy(home="home", partitions=5).validate()
    known = facts(coordinator, "t", [t for _, t in create_tables(coordinator, old).values()], [], {})
    assert "it is mirrored" in refused(old, new, known)["policies.p.partitions"]


@pytest.mark.feature("M5")
def test_a_policy_that_has_no_partitions_may_begin_anywhere() -> None:
    assert refused(BASE, with_policy(home="west"), Facts("t")) == {}


@pytest.mark.feature("M5")
def test_a_mirrored_partition_has_epochs_of_another_site() -> None:
    """They are no hindrance; but to be renamed is, and an epoch of nobody known."""
    known = Facts("t", sites={"west": "p-0"})
    assert refused(BASE, BASE, known) == {}
    renamed = dataclasses.replace(BASE, site=dataclasses.replace(BASE.site, name="east"))
    assert "p-0 has an epoch of site west" in refused(BASE, renamed, known)["site.name"]
    for old in (BASE, None):
        assert "site.name" in refused(old, BASE, Facts("t", sites={"south": "p-0"}))


@pytest.mark.feature("P11", "P5")
def test_a_policy_with_partitions_here_does_not_leave_for_another_site() -> None:
    """It is in the file as before; what has changed is where its nodes are."""
    sited = {name: dataclasses.replace(node, site="home") for name, node in NODES.items()}
    west = {"W": NodeConfig(Path("W"), site="west")}
    away = dataclasses.replace(
        BASE,
        nodes={**sited, **west},
        zones={**BASE.zones, "main": ZoneConfig(("W",))},
        policies={"p": dataclasses.replace(POLICY, sync_replicas=0, async_replicas=0)},
    ).validate()
    known = Facts("t", made={"p": {"home": ""}})
    why = refused(BASE, away, known)["policies.p"]
    assert why == "it has partitions, and a partition is never removed; by the file its nodes are at site west alone"
    two = dataclasses.replace(
        BASE,
        nodes={**sited, **west, "E": NodeConfig(Path("E"), site="east")},
        zones={**BASE.zones, "main": ZoneConfig(("W", "E"))},
        policies={"p": dataclasses.replace(POLICY, sync_replicas=0, async_replicas=0, home="west")},
        sites={**BASE.sites, "east": RemoteSiteConfig("e:1", "e:2")},
    ).validate()
    why = refused(BASE, two, known)["policies.p"]
    assert why.endswith("; by the file its nodes are at sites west and east alone")


@pytest.mark.feature("P11", "M5")
def test_the_file_of_another_site_is_not_activated_here() -> None:
    """Also before any node was started: those of this site would be refused by name, or look for west's partitions."""
    west = dataclasses.replace(
        BASE, site=SiteConfig("west", "w:1", "w:2"), sites={"home": RemoteSiteConfig("a:1", "b:1")}
    )
    here = Facts("t", others=frozenset({"west"}))
    for old in (None, BASE):
        why = refused(old, west, here)["site.name"]
        assert why == "by --config west is another site: activate its file there, and here one whose [site] is this one"
    assert refused(None, BASE, here) == refused(None, west, Facts("t", others=frozenset({"home"}))) == {}


@pytest.mark.feature("M5")
def test_a_site_is_not_given_the_name_of_the_one_it_mirrors() -> None:
    """Its copies would become those of the home."""
    known = Facts("t", made={"p": {"home": "west"}}, sites={"west": "p-0"})
    renamed = dataclasses.replace(BASE, site=dataclasses.replace(BASE.site, name="west"))
    assert "policy p is mirrored here from site west" in refused(None, renamed, known)["site.name"]


def test_what_was_activated_and_not_made_yet_may_change(coordinator: MemoryCoordinator) -> None:
    known = facts(coordinator, "t", [], [], {})
    assert refused(BASE, with_policy(partitions=5, mapper="round_robin"), known) == {}


def test_a_quorum_is_for_those_who_are_up() -> None:
    """Neither asked for where nobody runs, or where it is switched off, nor where it was lacking before."""

    def guarded(votes: int) -> Config:
        zone = ZoneConfig(("A", "B", "C"), ZoneQuorumConfig(minimum_votes=votes))
        return dataclasses.replace(BASE, zones={**BASE.zones, "main": zone}).validate()

    key = "zones.main.quorum.minimum_votes"
    up = Facts("t", up=frozenset("AB"))
    assert refused(BASE, guarded(2), up) == {}
    assert refused(BASE, guarded(3), up)[key] == "A, B would go offline: 2 votes, 3 needed; start the others first"
    assert refused(None, guarded(3), up)[key]
    assert refused(BASE, guarded(3), Facts("t")) == {}
    assert refused(BASE, guarded(3), up._replace(off=frozenset({"main"}))) == {}
    assert refused(guarded(3), guarded(3), up) == {}, "they are offline already"
    assert refused(BASE, guarded(2), Facts("t", up=frozenset("A")))[key].startswith("A would go offline")


@pytest.mark.parametrize(
    ("was", "now", "fits"), [(None, 3, False), (2, 3, False), (3, 2, True), (3, None, True), (3, 3, True)]
)
def test_topics_stay_as_they_are(was: int | None, now: int | None, fits: bool) -> None:
    old, new = (
        dataclasses.replace(BASE, site=dataclasses.replace(BASE.site, replication_factor=n)) for n in (was, now)
    )
    assert (refused(old, new, Facts("t")) == {}) is fits


@pytest.mark.parametrize(
    ("bindings", "types", "keys"),
    [
        ({"*": "q"}, ["Order"], ["bindings.*"]),
        ({"*": "q"}, [], []),
        ({"*": "p", "Order": "q"}, ["Order"], ["bindings.Order"]),
        ({"*": "p", "Order": "q"}, ["Flight"], []),
        ({"*": "p", "Order": "p"}, ["Order"], []),
        ({}, ["Order"], ["bindings.*"]),
    ],
)
def test_a_type_in_use_stays_where_it_is(bindings: dict[str, str], types: list[str], keys: list[str]) -> None:
    policies = {"p": POLICY, "q": POLICY}
    old = dataclasses.replace(BASE, policies=policies)
    new = dataclasses.replace(old, bindings=bindings)
    found = refused(old, new, Facts("t", types=dict.fromkeys(types, ())))
    assert [key.replace('"', "") for key in found] == keys


def test_a_node_that_is_up_or_has_copies_stays() -> None:
    known = Facts("t", hosts={"p": {"C": "p-1"}}, up=frozenset("D"))
    fewer = dataclasses.replace(
        BASE,
        nodes={n: NODES[n] for n in "AB"},
        zones={"main": ZoneConfig(("A", "B"))},
        policies={"p": dataclasses.replace(POLICY, async_replicas=0)},
    ).validate()
    assert refused(BASE, fewer, known) == {
        "nodes.C": "C has a copy of p-1: empty it with `halog drain C` first",
        "nodes.D": "it is up: stop it first",
    }
    narrower = dataclasses.replace(BASE, zones={**BASE.zones, "main": ZoneConfig(("A", "B", "D"))})
    assert list(refused(BASE, narrower, known)) == ["zones.main.nodes"]


def test_partitions_named_by_hand_keep_their_names_and_may_move(coordinator: MemoryCoordinator) -> None:
    """Where they are is for a plan; which there are is for ever."""

    def by_hand(**nodes: tuple[str, ...]) -> Config:
        made = {name: StaticPartition(on) for name, on in nodes.items()}
        return with_policy(kind="static", async_replicas=0, static=made).validate()

    old = by_hand(eu=("A", "B"), us=("B", "A"))
    known = facts(coordinator, "t", [t for _, t in create_tables(coordinator, old).values()], [], {})
    (moved,) = judged(old, by_hand(eu=("A", "C"), us=("B", "A")), known)
    assert (moved.text, moved.was, moved.now, moved.effect) == (
        "policies.p.partitions.eu",
        ["A", "B"],
        ["A", "C"],
        "by halog plan",
    )
    more = judged(old, by_hand(eu=("A", "B"), us=("B", "A"), asia=("C", "A")), known)
    assert [(c.text, c.effect) for c in more if c.text == "policies.p.partitions"] == [
        ("policies.p.partitions", REFUSED)
    ]
    assert refused(old, BASE, known).keys() >= {"policies.p.kind", "policies.p.partitions"}


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ({"Base": "q", "*": "p"}, {"Base": "q", "*": "p", "Sub": "p"}, False),
        ({"Base": "q", "*": "p"}, {"Base": "q", "*": "p", "Sub": "q"}, True),
        ({"Base": "q", "*": "p"}, {"Base": "p", "*": "q"}, True),  # as nodes have it: by its own name or "*", too
        (None, {"*": "p"}, False),
        (None, {"Base": "q", "*": "p"}, True),
    ],
)
def test_what_the_cluster_holds_of_a_type_counts(
    coordinator: MemoryCoordinator, old: dict[str, str] | None, new: dict[str, str], fits: bool
) -> None:
    """Sub was bound by its base: nobody's file names it."""
    coordinator.create("bindings", b'{"Sub":"q"}')
    known = facts(coordinator, "t", [], [], {"Sub": ("Base",)})
    files = [
        None if b is None else dataclasses.replace(BASE, policies={"p": POLICY, "q": POLICY}, bindings=b)
        for b in (old, new)
    ]
    assert files[1] is not None
    assert (refused(files[0], files[1], known) == {}) is fits


@pytest.mark.feature("N2")
def test_a_list_of_addresses_is_refused_while_a_node_runs_that_reads_no_list() -> None:
    """It would go on as it is, and not start again."""
    listed = dataclasses.replace(NODES["A"], listen=("a:1", "a:2"))
    west = dataclasses.replace(BASE.sites["west"], nodes={"W": ("w:7", "w:8"), "V": "v:7"})
    new = dataclasses.replace(BASE, nodes={**NODES, "A": listed}, sites={"west": west})
    nodes = [
        NodeInfo("A", 1, "a:1", 1, True, 0, "0.3.0", addresses=("a:1",)),
        NodeInfo("B", 1, "b:1", 2, True, 0, "0.2.0"),
    ]
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    for infos, refused in ((nodes, ["nodes.A.listen", "sites.west.nodes.W"]), (nodes[:1], [])):
        known = facts(coordinator, "t", [], infos, {})
        found = [c for c in judged(None, new, known) if c.effect == REFUSED]
        assert sorted(c.text for c in found) == refused
        assert all("node B runs a halog before 0.3" in c.why for c in found)
