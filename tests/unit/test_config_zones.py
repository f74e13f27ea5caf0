"""Zones in a configuration: patterns, votes, and the one kind of quorum a zone may have (P5, Q1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.config import Config, ZoneConfig, ZoneQuorumConfig, load_config
from halog.config.zones import expanded
from halog.errors import ConfigError
from halog.runtime.placement.bootstrap import planned_tables

TOML = """
[cluster]
name = "fleet"
[site]
bootstrap = "a:1"
zookeeper = "b:1"
[zones.west]
nodes = ["west-*", "spare"]
[zones.west.quorum]
minimum_votes = 2
[zones.all]
nodes = ["*"]
[policies.default]
zone = "west"
partitions = 3
[nodes.spare]
data_dir = "s"
votes = 0
[nodes.west-2]
data_dir = "w2"
[nodes.east-1]
data_dir = "e1"
votes = 3
[nodes.west-1]
data_dir = "w1"
"""
QUORUM = "minimum_votes = 2"


def read(tmp_path: Path, text: str = TOML) -> Config:
    path = tmp_path / "halog.toml"
    path.write_text(text)
    return load_config(path)


@pytest.mark.feature("P5")
def test_a_pattern_stands_for_configured_nodes_in_their_order(tmp_path: Path) -> None:
    """And a node may be in several zones."""
    config = read(tmp_path)
    assert config.nodes_of("west") == ("west-2", "west-1", "spare")
    assert config.nodes_of("all") == ("spare", "west-2", "east-1", "west-1")


@pytest.mark.feature("P5")
def test_partitions_are_placed_on_the_nodes_a_pattern_names(tmp_path: Path) -> None:
    placed = [t.configured for t in planned_tables(read(tmp_path))]
    assert placed == [("west-2", "west-1"), ("west-1", "spare"), ("spare", "west-2")]


@pytest.mark.feature("P5")
@pytest.mark.parametrize(
    ("entries", "nodes"),
    [
        (["n?"], ["n1", "n2"]),
        (["n2", "n*"], ["n2", "n1", "n10"]),
        (["n[12]", "N*"], ["n1", "n2", "N1"]),
        (["n1", "n1"], ["n1"]),
    ],
)
def test_names_and_patterns_become_names_each_once(entries: list[str], nodes: list[str]) -> None:
    """At the first place it has; capitals differ."""
    assert expanded(entries, ["n1", "n2", "n10", "N1"]) == tuple(nodes)


@pytest.mark.feature("Q1")
def test_a_zones_quorum_and_a_nodes_votes_are_read(tmp_path: Path) -> None:
    """None is the default: then a zone has no quorum at all."""
    config = read(tmp_path)
    assert config.zones["west"].quorum == ZoneQuorumConfig(minimum_votes=2)
    assert config.zones["all"].quorum == ZoneQuorumConfig()
    assert {n: c.votes for n, c in config.nodes.items()} == {"spare": 0, "west-2": 1, "east-1": 3, "west-1": 1}


@pytest.mark.feature("Q1", "P5")
@pytest.mark.parametrize("quorum", ["", QUORUM, "percentage = 51", "minimum_active_remote_nodes = 1"])
def test_toml_reads_back_equal(tmp_path: Path, quorum: str) -> None:
    config = read(tmp_path, TOML.replace(QUORUM, quorum))
    assert read(tmp_path, config.to_toml()) == config


WRONG = [
    (QUORUM, f"{QUORUM}\npercentage = 51", "zones.west.quorum.percentage", "excludes minimum_votes"),
    (
        QUORUM,
        "percentage = 51\nminimum_active_remote_nodes = 1",
        "zones.west.quorum.minimum_active_remote_nodes",
        "excludes percentage",
    ),
    (QUORUM, "minimum_votes = 0", "zones.west.quorum.minimum_votes", "must be 1 to 2 .*, is 0"),
    (QUORUM, "minimum_votes = 3", "zones.west.quorum.minimum_votes", "must be 1 to 2 .*, is 3"),
    (QUORUM, "percentage = 0", "zones.west.quorum.percentage", "must be 1 to 100, is 0"),
    (QUORUM, "percentage = 101", "zones.west.quorum.percentage", "must be 1 to 100, is 101"),
    (QUORUM, "percentage = 50.5", "zones.west.quorum.percentage", "must be a whole number"),
    (QUORUM, "minimum_active_remote_nodes = 0", "zones.west.quorum.minimum_active_remote_nodes", "must be 1 to 2"),
    (QUORUM, "minimum_active_remote_nodes = 3", "zones.west.quorum.minimum_active_remote_nodes", "must be 1 to 2"),
    (QUORUM, "minimum = 1", "zones.west.quorum.minimum", "is unknown"),
    ('nodes = ["*"]', 'nodes = ["*"]\nquorum = 2', "zones.all.quorum", "must be a table"),
    ("votes = 3", "votes = -1", "nodes.east-1.votes", "must not be negative, is -1"),
    ("votes = 3", "votes = true", "nodes.east-1.votes", "must be a whole number"),
    ('"west-*"', '"north-*"', "zones.west.nodes", "'north-\\*' matches none of"),
    ('["west-*", "spare"]', '["spare"]', "zones.west.quorum.minimum_votes", "no node of the zone has any"),
]


@pytest.mark.feature("Q1", "P5")
@pytest.mark.parametrize(("old", "new", "key", "reason"), WRONG, ids=[f"{w[2]}: {w[1][-20:]}" for w in WRONG])
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, key: str, reason: str) -> None:
    """File, key and reason, in one line."""
    assert old in TOML
    with pytest.raises(ConfigError, match=reason) as caught:
        read(tmp_path, TOML.replace(old, new))
    assert caught.value.evidence["key"] == key
    assert str(tmp_path / "halog.toml") in str(caught.value)


@pytest.mark.feature("Q1")
def test_a_configuration_built_in_python_is_checked_too(tmp_path: Path) -> None:
    config = read(tmp_path)
    quorum: ZoneQuorumConfig = ZoneQuorumConfig(minimum_votes="2")  # type: ignore[arg-type]
    zones = {**config.zones, "west": ZoneConfig(("west-1", "west-2"), quorum)}
    with pytest.raises(ConfigError, match=r"zones\.west\.quorum\.minimum_votes: must be int or NoneType, is str"):
        Config(config.cluster, config.site, zones=zones, nodes=config.nodes).validate()
