"""What becomes of a changed key: each has a rule, differences are found whole, files and versions are merged."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.config import (
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    TimingConfig,
    ZoneConfig,
    ZoneQuorumConfig,
    load_config,
    parse_config,
)
from halog.config.active_merge import disagreements, live, merged, waiting
from halog.config.changes import AT_ONCE, BY_PLAN, NAMED, OWN_FILE, REFUSED, RESTART, RULES, differences, pattern, tree
from halog.config.read import problems_of
from halog.errors import ConfigError
from halog.runtime.keys.key_owners import layout_of

TABLE: dict[str, Any] = {
    "cluster": {"name": "fleet"},
    "site": {"bootstrap": "a:1", "zookeeper": "b:1"},
    "application": {"modules": ["fleet"]},
    "zones": {"main": {"nodes": ["A", "B"]}},
    "policies": {"p": {"zone": "main", "partitions": 6}},
    "bindings": {"*": "p"},
    "nodes": {"A": {"data_dir": "var/A"}, "B": {"data_dir": "var/B"}},
}


def parsed(table: dict[str, Any], source: str = "/etc/halog.toml") -> Config:
    return parse_config(table, source, Path(source).parent)


def changed(**sections: Any) -> Config:
    return parsed({**TABLE, **sections})


BASE = changed()


def patterns(cls: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Every key that a dataclass of the model can hold, and every entry of a table of names."""
    for name, hint in typing.get_type_hints(cls).items():
        item = next(f for f in dataclasses.fields(cls) if f.name == name)
        if not item.metadata.get("table", True):
            continue
        key = (*above, name)
        if isinstance(hint, types.UnionType) and dataclasses.is_dataclass(typing.get_args(hint)[0]):
            hint = typing.get_args(hint)[0]  # a table that may be absent
        if "Mapping" in str(typing.get_origin(hint)):
            yield ".".join((*key, "*"))
            value = typing.get_args(hint)[1]
            if dataclasses.is_dataclass(value):
                yield from patterns(value, (*key, "*"))
        elif dataclasses.is_dataclass(hint):
            yield from patterns(hint, key)
        elif isinstance(hint, types.UnionType) and dataclasses.is_dataclass(one := typing.get_args(hint)[0]):
            yield from patterns(one, key)  # a table that may be absent
        else:
            assert not isinstance(hint, types.GenericAlias) or hint.__origin__ is tuple
            yield ".".join(key)


@pytest.mark.feature("P11")
def test_every_key_has_a_rule_and_every_rule_a_key() -> None:
    """A new key says what becomes of a change of it, or this fails."""
    assert set(RULES) == {*patterns(Config), "policies.*.partitions.*"}, "named by hand, they are a table"
    assert {rule.effect for rule in RULES.values()} == {AT_ONCE, BY_PLAN, OWN_FILE, REFUSED, RESTART}


@pytest.mark.feature("P11")
def test_differences_name_keys_and_whole_entries() -> None:
    new = changed(
        zones={"main": {"nodes": ["A", "B"], "quorum": {"minimum_votes": 2}}},
        policies={"p": {"zone": "main", "partitions": 6, "below_quorum": "wait"}},
        nodes={"A": {"data_dir": "var/A", "votes": 2}, "x.y": {"data_dir": "x"}, "B": {"data_dir": "elsewhere"}},
        bindings={"*": "p", "Order": "p"},
    )
    found = {c.text: (c.was, c.effect) for c in differences(BASE, new)}
    assert found == {
        "zones.main.quorum.minimum_votes": (None, AT_ONCE),
        "policies.p.below_quorum": ("refuse", AT_ONCE),
        "bindings.Order": (None, RESTART),
        "nodes.A.votes": (1, AT_ONCE),
        "nodes.B.data_dir": ("/etc/var/B", OWN_FILE),
        'nodes."x.y"': (None, AT_ONCE),
    }
    assert [c.now for c in differences(new, BASE) if c.text == 'nodes."x.y"'] == [None], "the other way round it goes"
    assert differences(BASE, BASE) == []


def test_a_tree_is_the_configuration() -> None:
    """As plain values and back; also where a table of names is empty."""
    assert parsed(tree(BASE), "x") == dataclasses.replace(BASE, source="x")
    empty = Config(ClusterConfig("c"), SiteConfig(bootstrap="a:1", zookeeper="b:1"))
    assert parsed(tree(empty)) == empty
    assert not set(tree(empty)) & set(NAMED)


def test_a_pattern_replaces_names_only() -> None:
    assert pattern(("nodes", "zones", "votes")) == "nodes.*.votes"
    assert pattern(("bindings", "*")) == "bindings.*"
    assert pattern(("timing", "keep_alive_ms")) == "timing.keep_alive_ms"


# --- a version and a file ---


@pytest.mark.feature("P11")
def test_what_nodes_share_is_the_versions_and_what_a_machine_knows_its_files(tmp_path: Path) -> None:
    active = parse_config(
        {
            **TABLE,
            "site": {"bootstrap": "far:1", "zookeeper": "far:2", "replication_factor": 3, "name": "west"},
            "application": {"modules": ["os"]},
            "timing": {"keep_alive_ms": 100},
            "nodes": {**TABLE["nodes"], "C": {"data_dir": "var/C", "address": "c:7"}},
        },
        "active version 4",
        Path(),
    )
    own = parsed(
        {
            **TABLE,
            "nodes": {"A": {"data_dir": "/disk", "address": "a:9", "votes": 5}},
            "zones": {},
            "policies": {},
            "bindings": {},
        },
        str(tmp_path / "halog.toml"),
    )
    made = merged(own, active)
    assert (made.site.bootstrap, made.site.replication_factor, made.site.name) == ("a:1", 3, "west")
    assert made.application.modules == ("fleet",), "nobody else says what is imported"
    assert made.nodes["A"] == NodeConfig(Path("/disk"), "a:9"), "votes are the version's"
    assert made.nodes["C"] == NodeConfig(tmp_path / "var/C", "c:7"), "what the file does not say the version says"
    assert (made.timing.keep_alive_ms, made.policies) == (100, active.policies)
    assert made.source == f"{own.source} under active version 4"


@pytest.mark.feature("P11", "P6")
def test_a_file_need_not_name_the_module_of_a_mapper_that_it_never_asks() -> None:
    """Whoever does ask is refused then: nothing but what the own file names is ever imported."""
    mapped = {"p": {"zone": "main", "partitions": 6, "mapper": "shop:by_region"}}
    made = merged(changed(), changed(application={"modules": ["shop"]}, policies=mapped))
    assert made.policies["p"].mapper == "shop:by_region"
    with pytest.raises(ConfigError, match="module 'shop' of mapper shop:by_region is not in"):
        layout_of(made, "p")


@pytest.mark.feature("P11")
def test_a_version_and_a_file_that_do_not_fit_are_an_error_that_names_both() -> None:
    active = changed(site={"bootstrap": "a:1", "zookeeper": "b:1", "replication_factor": 3})
    with pytest.raises(
        ConfigError, match=r"halog\.toml under .*: site\.replication_factor: .* an embedded site has one"
    ):
        merged(changed(site={"embedded": "site"}), active)


@pytest.mark.feature("P11")
@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        ({}, []),
        ({"timing": {"keep_alive_ms": 150}}, ["timing.keep_alive_ms"]),  # the default, but it stands in the file
        ({"application": {"modules": ["other"]}, "site": {"embedded": "x"}}, []),  # its own to say
        ({"zones": {}, "policies": {}, "bindings": {}, "nodes": {}}, []),  # it says nothing
        ({"zones": {}, "policies": {}, "bindings": {}, "nodes": {"A": {"data_dir": "/x"}}}, []),
        ({"nodes": {**TABLE["nodes"], "C": {"data_dir": "C"}}}, ["nodes.C"]),
        ({"bindings": {"*": "p", "Order": "p"}}, ["bindings.Order"]),
        ({"policies": {"p": {"zone": "main", "partitions": 7}}}, ["policies.p.partitions"]),
    ],
)
def test_a_file_disagrees_in_what_stands_in_it_only(sections: dict[str, Any], keys: list[str]) -> None:
    active = changed(timing={"keep_alive_ms": 100})
    assert [c.text for c in disagreements(changed(**sections), active, "A")] == keys


@pytest.mark.feature("P11")
def test_a_configuration_built_in_python_says_everything() -> None:
    built = dataclasses.replace(BASE, written=None, timing=TimingConfig())
    assert [c.text for c in disagreements(built, changed(timing={"keep_alive_ms": 100}), "A")] == [
        "timing.keep_alive_ms"
    ]


@pytest.mark.feature("P11", "Q1")
def test_what_takes_effect_at_once_and_what_waits() -> None:
    """Zones, votes, nodes and how a caller is answered below the quorum; the rest of a policy, and the times, wait."""
    policy = {"zone": "all", "partitions": 6, "below_quorum": "wait", "before_images": False, "sync_replicas": 0}
    new = changed(
        zones={"all": {"nodes": ["*"], "quorum": {"percentage": 51}}},
        nodes={**TABLE["nodes"], "C": {"data_dir": "C", "votes": 3}},
        policies={"p": policy, "q": {"zone": "all"}},
        bindings={"*": "p", "Order": "q"},
        timing={"keep_alive_ms": 100},
    )
    now = live(BASE, new)
    assert now.zones == {"all": ZoneConfig(("*",), ZoneQuorumConfig(percentage=51))}
    assert now.nodes == new.nodes
    assert now.policies == {"p": PolicyConfig("all", 6, sync_replicas=0, below_quorum="wait")}
    assert (now.bindings, now.timing) == (BASE.bindings, TimingConfig())
    names = [".".join(key) for key in waiting(BASE, new)]
    assert names == ["policies.p.before_images", "policies.q", "bindings.Order", "timing.keep_alive_ms"]
    assert waiting(BASE, BASE) == []
    assert waiting(now, live(now, BASE)) == [], "the way back waits for nothing"


# --- everything that is wrong ---


@pytest.mark.feature("O1", "P11")
def test_everything_that_is_wrong_is_found_at_once() -> None:
    """Unknown keys do not hide what else is wrong; a value of another type hides what depends on it."""
    table = {**TABLE, "policies": {"p": {"zone": "mian", "partitoins": 3, "partitions": 0}}, "timings": {}}
    table["bindings"] = {"*": "q"}
    assert [key for key, _ in problems_of(table, "f")] == [
        "timings",
        "policies.p.partitoins",
        "policies.p.zone",
        "policies.p.partitions",
        'bindings."*"',
    ]
    table["nodes"] = {"A": {"data_dir": 3}, "B": {"votes": "x"}}
    found = [key for key, _ in problems_of(table, "f")]
    assert found == ["timings", "policies.p.partitoins", "nodes.A.data_dir", "nodes.B.data_dir", "nodes.B.votes"]
    assert problems_of(TABLE, "f") == []
    assert problems_of({}, "f")[0] == ("cluster", "is missing")


def test_machines_may_have_their_nodes_data_in_the_same_place() -> None:
    nodes = {name: {"data_dir": "/var/lib/halog", "address": f"{name.lower()}:7500"} for name in "AB"}
    assert problems_of({**TABLE, "nodes": nodes}, "f") == []
    nodes["B"]["address"] = "a:7501"
    ((key, why),) = problems_of({**TABLE, "nodes": nodes}, "f")
    assert (key, "at the same host a;" in why) == ("nodes.B.data_dir", True)


@pytest.mark.feature("P11")
@pytest.mark.parametrize("change", [{"B": "a:7500"}, {"A": "b:7500", "B": "a:7500"}])
def test_a_node_that_moves_to_anothers_machine_starts_with_its_own_file(change: dict[str, str]) -> None:
    """What the version says of where the other one is may be long past, and so may what the file says."""
    place = {name: {"data_dir": "/var/lib/halog", "address": f"{name.lower()}:7500"} for name in "AB"}
    moved = {"B": {**place["B"], "address": change["B"]}}
    if "A" in change:
        moved["A"] = {**place["A"], "address": change["A"]}
    active = changed(nodes=place)
    own = changed(nodes=moved, zones={}, policies={}, bindings={})
    made = merged(own, active)
    assert {name: made.nodes[name].address for name in change} == change


@pytest.mark.feature("P3", "P11")
def test_a_node_list_that_cannot_be_read_says_nothing_more_of_its_policy() -> None:
    """That there are no partitions, or no nodes for their copies, would be said of what is not there."""
    by_hand = {"zone": "zone", "kind": "static", "sync_replicas": 7, "partitions": {"eu": "A"}}
    table = {**TABLE, "policies": {**TABLE["policies"], "hand": by_hand}, "bindings": {"*": "q"}}
    assert [key for key, _ in problems_of(table, "f")] == ["policies.hand.partitions.eu", 'bindings."*"']


def test_the_keys_of_a_file_are_known(tmp_path: Path) -> None:
    path = tmp_path / "halog.toml"
    path.write_text(BASE.to_toml())
    written = load_config(path).written
    assert written is not None
    assert ("bindings", "*") in written
    assert ("site", "embedded") not in written
