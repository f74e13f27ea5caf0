"""A halog that does not know the cluster's level does nothing (U1): it looks at no store and no configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.config import ClusterConfig, Config, NodeConfig, SiteConfig
from halog.errors import VersionMismatchError
from halog.metadata import config_versions as versions
from halog.metadata.cluster_level import LEVEL
from halog.metadata.config_versions import Draft
from halog.runtime.node.open import node
from halog.runtime.node.wiring import open_store

pytestmark = pytest.mark.feature("U1")

HIGHER = json.dumps({"level": LEVEL + 1}).encode()


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> MemoryTree:
    """What every ZooKeeper of this process has."""
    tree = MemoryTree()

    def session(*given: Any, **more: Any) -> MemoryCoordinator:
        return MemoryCoordinator(tree)

    monkeypatch.setattr("halog.adapters.zookeeper.coordinator.ZkCoordinator", session)
    return tree


def configured(directory: Path) -> Config:
    site = SiteConfig(bootstrap="127.0.0.1:1", zookeeper="127.0.0.1:1")
    return Config(ClusterConfig("ops"), site, nodes={"A": NodeConfig(directory / "A")})


def test_a_store_of_a_later_format_stays_where_the_level_is_not_known(tree: MemoryTree, tmp_path: Path) -> None:
    """An old binary, started by mistake on an upgraded node, is refused: the store is still there for the new one."""
    store = open_store(tmp_path / "A")
    store.write([(b"k", b"v")], flush=True)
    store.close()
    (tmp_path / "A/HALOG-STORE").write_text("2\n")
    before = contents(tmp_path)
    tree.create("level", HIGHER, 0)
    with pytest.raises(VersionMismatchError, match=f"cluster ops is at level {LEVEL + 1}"):
        node(configured(tmp_path), "A")
    assert contents(tmp_path) == before


def test_the_level_is_told_before_what_is_wrong_with_the_active_version(tree: MemoryTree, tmp_path: Path) -> None:
    """What is wrong with it here may be that it is of a later version; that this halog is too old is what helps."""
    own, coordinator = configured(tmp_path), MemoryCoordinator(tree)
    coordinator.connect(lambda state: None)
    made = versions.activate(coordinator, versions.read(coordinator), Draft(1, "ann@ops", "f", "", own))
    later = msgspec.structs.replace(made, config={**made.config, "timing": {"min_stay_ms": "a day"}})
    tree.set(versions.ACTIVE, later.to_bytes(), 0)
    tree.create("level", HIGHER, 0)
    coordinator.close()
    with pytest.raises(VersionMismatchError, match=f"cluster ops is at level {LEVEL + 1}"):
        node(own, "A")
    assert not (tmp_path / "A").exists()


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")}
