"""What a cluster was created with binds every later node: a different mapping or placement is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.config import Config, parse_config
from halog.errors import ConfigError
from halog.runtime.cluster import create_tables


def _config(**policy: Any) -> Config:
    return parse_config(
        {
            "cluster": {"name": "t"},
            "site": {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:2"},
            "zones": {"main": {"nodes": ["A", "B", "C"]}},
            "policies": {"default": {"zone": "main", "partitions": 6, **policy}},
            "bindings": {"*": "default"},
            "nodes": {n: {"data_dir": n} for n in "ABC"},
        },
        "halog.toml",
        Path("/tmp"),
    )


@pytest.fixture
def coordinator() -> Iterator[MemoryCoordinator]:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    yield made
    made.close()


@pytest.mark.feature("P1", "P2")
def test_the_second_node_reads_what_the_first_created(coordinator: MemoryCoordinator) -> None:
    """Log ids are drawn once: whoever comes later takes the tables that are there."""
    first, second = create_tables(coordinator, _config()), create_tables(coordinator, _config())
    assert first == second
    assert {t.configured[0] for _, t in first.values()} == {"A", "B", "C"}


@pytest.mark.feature("P6")
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"ring_size": 131_072}, "ring_size"),
        ({"local_sync": "WRITE_NO_SYNC"}, "local_sync"),
        ({"remote_sync": "SYNC"}, "remote_sync"),
        ({"lease_ttl_ms": 2_000}, "lease_ttl_ms"),
        ({"mapper": "round_robin"}, "round_robin"),
        ({"partitions": 4}, "partitions"),
        ({"partitions": 8}, "partitions"),
        ({"sync_replicas": 0}, "configured"),
        ({"sync_replicas": 2}, "configured"),
    ],
)
def test_a_configuration_that_differs_is_refused_by_name(
    coordinator: MemoryCoordinator, changed: dict[str, Any], named: str
) -> None:
    """A node that would look for objects where they are not does not start, and nothing is changed."""
    before = create_tables(coordinator, _config())
    with pytest.raises(ConfigError, match=named) as refused:
        create_tables(coordinator, _config(**changed))
    assert str(refused.value).startswith("halog.toml: ")
    assert create_tables(coordinator, _config()) == before


def test_the_name_of_the_file_is_told(coordinator: MemoryCoordinator) -> None:
    """The error begins with the configuration's source."""
    create_tables(coordinator, _config())
    with pytest.raises(ConfigError, match=r"^other\.toml: "):
        create_tables(coordinator, replace(_config(ring_size=131_072), source="other.toml"))


@pytest.mark.feature("R5")
def test_a_cluster_without_leases_is_described_as_before_there_were_any(coordinator: MemoryCoordinator) -> None:
    """Its nodes may be replaced one by one by those that know them."""
    create_tables(coordinator, _config())
    found = coordinator.get("policies/default")
    assert found is not None
    assert b"lease" not in found.data
