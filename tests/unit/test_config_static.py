"""Static policies and mappers in a configuration: what is written is read; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.config import PolicyConfig, StaticPartition, load_config
from halog.errors import ConfigError

GOOD = """
[cluster]
name = "fleet"
[site]
embedded = "var/site"
[application]
modules = ["fleet.placing"]
[zones.main]
nodes = ["A", "B", "C"]
[zones.rest]
nodes = ["D"]
[policies.p]
zone = "main"
partitions = 4
[policies.fixed]
kind = "static"
zone = "main"
mapper = "fleet.placing:by_region"
[policies.fixed.partitions]
eu = ["A", "B"]
us = { nodes = ["B", "A", "C"], async = ["C"] }
[bindings]
"*" = "p"
Order = "fixed"
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
[nodes.C]
data_dir = "C"
[nodes.D]
data_dir = "D"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "halog.toml"
    path.write_text(text)
    return path


@pytest.mark.feature("P3", "P4")
def test_partitions_named_by_hand_are_read_and_written(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    fixed = config.policies["fixed"]
    assert fixed.static == {"eu": StaticPartition(("A", "B")), "us": StaticPartition(("B", "A", "C"), ("C",))}
    assert (fixed.partitions, config.partition_names("fixed")) == (2, ("eu", "us"))
    assert config.partition_names("p") == ("p-0", "p-1", "p-2", "p-3")
    assert [p.sync_replicas(fixed) for p in fixed.static.values()] == [1, 1]
    again = load_config(write(tmp_path, config.to_toml()))
    assert again == config
    assert [list(p.static) for p in again.policies.values()] == [list(p.static) for p in config.policies.values()], (
        "the order is that of their indices"
    )


@pytest.mark.feature("P3")
@pytest.mark.parametrize(
    ("nodes", "late", "wanted", "sync"),
    [
        ("A", None, 1, 0),
        ("ABC", None, 1, 1),
        ("ABC", None, 5, 2),
        ("ABC", "", 1, 2),
        ("ABC", "C", 2, 1),
        ("AB", "B", 1, 0),
    ],
)
def test_sync_replicas_are_the_policys_or_said_for_each_node(
    nodes: str, late: str | None, wanted: int, sync: int
) -> None:
    partition = StaticPartition(tuple(nodes), None if late is None else tuple(late))
    assert partition.sync_replicas(PolicyConfig("main", sync_replicas=wanted)) == sync


@pytest.mark.feature("P6", "P4")
def test_a_binding_holds_for_subclasses_unless_they_have_their_own(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert config.policy_of("Order") == "fixed"
    assert config.policy_of("LateOrder", ("FastOrder", "Order")) == "fixed"
    assert config.policy_of("Plane", ("Vehicle",)) == "p"
    text = GOOD.replace('Order = "fixed"', 'Order = "fixed"\nFastOrder = "p"').replace('"*" = "p"', "")
    config = load_config(write(tmp_path, text))
    assert config.policy_of("LateOrder", ("FastOrder", "Order")) == "p", "the nearest base's"
    assert config.policy_of("Plane", ("Vehicle",)) is None


WRONG: list[tuple[str, str, str, str]] = [
    ('kind = "static"', 'kind = "fixed"', "policies.fixed.kind", "'fixed' must be one of dynamic, static"),
    ('kind = "static"', "", "policies.fixed.kind", 'must be "static": policies.fixed.partitions names'),
    ('kind = "static"', "kind = 1", "policies.fixed.kind", "must be a string"),
    ("partitions = 4", 'partitions = 4\nkind = "static"', "policies.p.partitions", "must be a table of node lists"),
    ("partitions = 4", "partitions = {}", "policies.p.partitions", "must name at least one partition"),
    ("partitions = 4", "static = 4", "policies.p.static", "is unknown"),
    ('eu = ["A", "B"]', "eu = 3", "policies.fixed.partitions.eu", "must be a list of node names"),
    ('eu = ["A", "B"]', "eu = [1]", "policies.fixed.partitions.eu", "must be a list of node names"),
    (
        'eu = ["A", "B"]',
        "eu = { nodes = [], async = [] }",
        "policies.fixed.partitions.eu",
        "must name at least one node",
    ),
    ('eu = ["A", "B"]', 'eu = ["A", "A"]', "policies.fixed.partitions.eu", "names 'A' twice"),
    ('eu = ["A", "B"]', 'eu = ["A", "a"]', "policies.fixed.partitions.eu", "'a' is not in zone 'main'; it has A, B"),
    ('eu = ["A", "B"]', 'eu = ["A", "D"]', "policies.fixed.partitions.eu", "'D' is not in zone 'main'"),
    ('eu = ["A", "B"]', '"e u" = ["A"]', "policies.fixed.partitions.e u", "topic and znode names"),
    ('eu = ["A", "B"]', 'p-3 = ["A"]', "policies.fixed.partitions.p-3", "policy p has a partition of this name"),
    ('eu = ["A", "B"]', 'eu = { async = ["B"] }', "policies.fixed.partitions.eu.nodes", "is missing"),
    ('eu = ["A", "B"]', 'eu = { nods = ["B"] }', "policies.fixed.partitions.eu.nods", "known are nodes, async"),
    ('async = ["C"]', 'async = "C"', "policies.fixed.partitions.us.async", "must be a list"),
    ('async = ["C"]', 'async = ["D"]', "policies.fixed.partitions.us.async", "'D' is not in its nodes: B, A, C"),
    ('async = ["C"]', 'async = ["A"]', "policies.fixed.partitions.us.async", "must be the last of its nodes"),
    ('async = ["C"]', 'async = ["C", "C"]', "policies.fixed.partitions.us.async", "must be the last of its nodes"),
    ('async = ["C"]', 'async = ["B", "A", "C"]', "policies.fixed.partitions.us.async", "the first of its nodes"),
    ('kind = "static"', 'kind = "static"\nasync_replicas = 1', "policies.fixed.async_replicas", "node lists say"),
    (
        'kind = "static"',
        'kind = "static"\nquorum = true\nsync_replicas = 0',
        "policies.fixed.partitions.eu",
        "a quorum of 2",
    ),
    ('eu = ["A", "B"]', 'eu = ["A"]', "policies.fixed.local_sync", "policies.fixed.partitions.eu has none"),
    ("fleet.placing:by_region", "load", "policies.fixed.mapper", "must be one of consistent_hash, round_robin, "),
    ("fleet.placing:by_region", "lightly_loaded", "policies.fixed.mapper", '"<module>:<callable>"'),
    ("fleet.placing:by_region", "at_create:", "policies.fixed.mapper", 'must be "at_create:<module>:<callable>"'),
    ("fleet.placing:by_region", "at_create:f", "policies.fixed.mapper", 'must be "at_create:<module>:<callable>"'),
    ("fleet.placing:by_region", "at_create:os:getcwd", "policies.fixed.mapper", "'os' is not in [application] modules"),
    ("fleet.placing:by_region", 'least_loaded"\nring_size = "9', "policies.fixed.ring_size", "must be"),
    ("fleet.placing:by_region", "fleet.placing:", "policies.fixed.mapper", 'must be "<module>:<callable>"'),
    ("fleet.placing:by_region", "fleet.placing:a()", "policies.fixed.mapper", 'must be "<module>:<callable>"'),
    ("fleet.placing:by_region", "os:getcwd", "policies.fixed.mapper", "'os' is not in [application] modules (fleet.pl"),
    ("partitions = 4", "partitions = 4\nring_size = 39", "policies.p.ring_size", "10 x partitions (40) to 16777216"),
]


@pytest.mark.feature("P3", "P6")
@pytest.mark.parametrize(("old", "new", "key", "why"), WRONG, ids=[f"{w[2]}: {w[1]}" for w in WRONG])
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, key: str, why: str) -> None:
    """One line with file, key and reason."""
    text = GOOD.replace(old, new, 1)
    if key.endswith("local_sync"):
        text = text.replace('kind = "static"', 'kind = "static"\nlocal_sync = "NO_SYNC"')
    assert text != GOOD
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {key}: "), message
    assert why in message
    assert "\n" not in message
