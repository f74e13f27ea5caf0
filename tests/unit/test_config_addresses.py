"""A node has one address or several, in order of preference, and so has each node that is reached otherwise (N2)."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from halog.config import Config
from halog.config.active_merge import live, merged, waiting
from halog.config.changes import AT_ONCE, differences
from halog.config.read import parse_config, problems_of
from halog.errors import ConfigError

TEXT = """
[cluster]
name = "c"
[site]
embedded = "site"
[nodes.A]
data_dir = "/a"
address = ["10.0.0.5:7400", "[fd00::5]:7400", "node-a.example.org:7400"]
[nodes.B]
data_dir = "/b"
listen = ["0.0.0.0:7400", "[::]:7401"]
advertise = "node-b:7400"
"""


def read(more: str = "") -> Config:
    return parse_config(tomllib.loads(TEXT + more), "halog.toml", Path("/"))


@pytest.mark.feature("N2")
def test_a_list_of_addresses_is_in_order_of_preference() -> None:
    found = read().nodes
    assert found["A"].reached == ("10.0.0.5:7400", "[fd00::5]:7400", "node-a.example.org:7400")
    assert found["B"].listens == ("0.0.0.0:7400", "[::]:7401")
    assert found["B"].reached == ("node-b:7400",)


@pytest.mark.feature("N2")
def test_the_text_of_a_configuration_with_lists_reads_back_equal() -> None:
    config = read('[discovery]\nA = "gate:1"\nB = ["gate:2", "gate:3"]\n')
    assert parse_config(tomllib.loads(config.to_toml()), "halog.toml", Path("/")) == config
    assert "discovery" not in read().to_toml(), "an earlier halog would warn of it"


@pytest.mark.feature("N2")
@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ('[nodes.C]\ndata_dir = "/c"\naddress = []', "nodes.C.address", "must name at least one address"),
        ('[nodes.C]\ndata_dir = "/c"\nlisten = []', "nodes.C.listen", "must name at least one address"),
        ('[nodes.C]\ndata_dir = "/c"\nadvertise = []', "nodes.C.advertise", "must name at least one address"),
        ('[nodes.C]\ndata_dir = "/c"\naddress = ["c:1", "C:1"]', "nodes.C.address", "names 'C:1' twice"),
        ('[nodes.C]\ndata_dir = "/c"\naddress = ["c:1", 2]', "nodes.C.address", "a list of strings in order"),
        ('[nodes.C]\ndata_dir = "/c"\naddress = ["c:1", "c"]', "nodes.C.address", "'c' must be host:port"),
        ('[nodes.C]\ndata_dir = "/c"\nlisten = ["c:1", "0.0.0.0:2"]', "nodes.C.listen", "set nodes.C.advertise to"),
        ('[nodes.C]\ndata_dir = "/c"\nadvertise = ["c:1", "[::]:2"]', "nodes.C.advertise", "every interface"),
        ('[nodes.C]\ndata_dir = "/a/b"\naddress = ["x:1", "10.0.0.5:1"]', "nodes.C.data_dir", "in that of node A"),
        ('[discovery]\nA = ["a:1", "a:0"]', "discovery.A", "needs a port"),
        ('[discovery]\nAA = "a:1"', "discovery.AA", "is not in [nodes]; did you mean 'A'?"),
    ],
)
def test_what_is_wrong_with_an_address_names_its_key(more: str, key: str, reason: str) -> None:
    found = problems_of(tomllib.loads(TEXT + more), "halog.toml")
    assert [(k, reason in why) for k, why in found] == [(key, True)], found


@pytest.mark.feature("N2")
def test_two_nodes_share_none_of_their_addresses() -> None:
    more = '[nodes.C]\ndata_dir = "/c"\naddress = ["c:1", "[FD00::5]:7400"]\n[zones.z]\nnodes = ["A", "C"]'
    assert problems_of(tomllib.loads(TEXT + more), "halog.toml") == [
        ("nodes.C.address", "'[FD00::5]:7400' is node A's too; each node needs its own")
    ]


@pytest.mark.feature("N2")
def test_configured_addresses_are_those_of_the_active_version_at_once() -> None:
    own, active = read('[discovery]\nA = "old:1"\n'), read('[discovery]\nA = ["new:1", "new:2"]\nB = "new:3"\n')
    changes = differences(own, active)
    assert [(c.text, c.effect) for c in changes] == [("discovery.A", AT_ONCE), ("discovery.B", AT_ONCE)]
    made = merged(own, active)
    assert dict(made.discovery) == {"A": ("new:1", "new:2"), "B": "new:3"}
    assert waiting(own, made) == []
    assert live(own, made).discovery == made.discovery


def test_an_address_built_in_python_is_checked_too() -> None:
    config = read()
    with pytest.raises(ConfigError, match=r"nodes\.A\.address"):
        replace(config, nodes={"A": replace(config.nodes["A"], address=("a:1", "a:1"))}).validate()
