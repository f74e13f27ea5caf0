"""What a cluster was created with binds every later node: a different mapping or placement is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.config import Config, parse_config
from halog.errors import ConfigError
from halog.runtime.placement.bootstrap import create_tables


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
        ({"sync_replicas": 0}, "sync_replicas"),
        ({"sync_replicas": 2}, "sync_replicas"),
        ({"async_replicas": 1}, "copies"),
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


@pytest.mark.feature("P6")
def test_what_a_cluster_is_described_by_has_the_bytes_it_always_had(coordinator: MemoryCoordinator) -> None:
    """Clusters made before there were custom mappers, static policies or recorded bindings start unchanged."""
    create_tables(coordinator, _config())
    found = coordinator.get("policies/default")
    assert found is not None
    assert found.data == (
        b'{"mapper":"consistent_hash","partitions":6,"ring_size":65536,"local_sync":"SYNC","remote_sync":"NO_SYNC"}'
    )


def _with_nodes(*names: str) -> Config:
    before = _config()
    zones = {"main": replace(before.zones["main"], nodes=names)}
    nodes = {n: replace(before.nodes["A"], data_dir=Path(n)) for n in names}
    return replace(before, zones=zones, nodes=nodes).validate()


@pytest.mark.feature("P12", "X4")
def test_a_node_more_changes_nothing_of_what_is_placed(coordinator: MemoryCoordinator) -> None:
    """The table wins: partitions stay where they are until somebody moves them."""
    before = create_tables(coordinator, _config())
    assert create_tables(coordinator, _with_nodes("D", "A", "B", "C")) == before


@pytest.mark.feature("P12", "X4")
def test_a_node_is_taken_out_once_it_is_empty(coordinator: MemoryCoordinator) -> None:
    before = create_tables(coordinator, _config())
    with pytest.raises(ConfigError, match=r"A has a copy of partition default-0 .* `halog drain`") as refused:
        create_tables(coordinator, _with_nodes("B", "C"))
    assert refused.value.evidence["nodes"] == ["A"]
    for version, table in before.values():
        nodes = tuple("C" if n == "A" and "C" not in table.configured else n for n in table.configured if n != "A")
        moved = msgspec.structs.replace(table, configured=nodes or ("B",), config_version=1)
        coordinator.set(f"partitions/{table.name}", moved.to_bytes(), version)
    assert all("A" not in t.hosts for _, t in create_tables(coordinator, _with_nodes("B", "C")).values())


@pytest.mark.feature("P5")
def test_a_new_cluster_is_placed_by_failure_domains(coordinator: MemoryCoordinator) -> None:
    racks = {"A": "r1", "B": "r1", "C": "r2", "D": "r2"}
    before = _with_nodes(*racks)
    nodes = {n: replace(before.nodes[n], failure_domain=rack) for n, rack in racks.items()}
    tables = create_tables(coordinator, replace(before, nodes=nodes).validate())
    assert all(len({racks[n] for n in t.configured}) == 2 for _, t in tables.values())
    with pytest.raises(ConfigError, match=r"nodes\.A\.failure_domain: must be 1 to 100 of"):
        replace(before, nodes={**nodes, "A": replace(nodes["A"], failure_domain="rack 1")}).validate()


@pytest.mark.feature("P1")
def test_a_start_does_not_list_all_partitions_for_each_of_them(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 4,096 of them that took a node seconds."""
    listed: list[str] = []
    names = Config.partition_names

    def told(config: Config, policy: str) -> tuple[str, ...]:
        listed.append(policy)
        return names(config, policy)

    monkeypatch.setattr(Config, "partition_names", told)
    create_tables(coordinator, _config(partitions=64))
    create_tables(coordinator, _config(partitions=64))
    assert len(listed) < 20
