"""A node that is put back to an earlier version finds a store of RocksDB that the later one wrote (U1)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from halog.adapters.memory import MemoryBroker, MemoryChannel, MemoryCoordinator, MemoryLog, MemoryTree
from halog.adapters.rocksdb.store import RocksStore
from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    ZoneConfig,
)
from halog.errors import StoreError
from halog.runtime.node.open import RunningNode, node
from halog.runtime.node.wiring import open_store
from halog.runtime.store.encoding import unpack_position
from halog.runtime.support.adapters import Adapters
from halog.testing.cluster import wait_until
from tests.unit.counting import REGISTRY, Counter

pytestmark = [pytest.mark.nodes, pytest.mark.feature("U1")]


class Alone:
    """The only node of a cluster in memory, with a store on a disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker, self.tree = MemoryBroker(), MemoryTree()
        self.config = Config(
            ClusterConfig("test"),
            SiteConfig(bootstrap="memory:1", zookeeper="memory:1"),
            ApplicationConfig(()),
            nodes={"A": NodeConfig(directory)},
            zones={"z": ZoneConfig(("A",))},
            policies={"p": PolicyConfig("z", 1, 0, 0)},
            bindings={"*": "p"},
        )

    def start(self) -> RunningNode:
        def adapters(*_: object) -> Adapters:
            outside = MemoryLog(self.broker), MemoryCoordinator(self.tree), MemoryChannel()
            return Adapters(*outside, open_store(self.directory))

        return node(self.config, "A", registry=REGISTRY, adapters=adapters)


def upgrade(store: RocksStore) -> int:
    """Give each position a field that is not known here; how many there are."""
    found = []
    for key, value in store.scan(b""):
        try:
            unpack_position(value)
        except (StoreError, TypeError):
            continue
        found.append((key, msgspec.msgpack.encode({**msgspec.msgpack.decode(value), "tier": 2})))
    store.write(list(found))
    return len(found)


def test_a_position_that_says_more_than_is_known_makes_it_a_later_versions_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is set aside under that name, as one of a later format, and nobody calls it damaged."""
    alone = Alone(tmp_path / "A")
    with alone.start() as running, running.transaction():
        running.create(Counter("c"))
    store = RocksStore(alone.directory)
    assert upgrade(store) == 1
    store.close()
    with alone.start() as running:
        wait_until(lambda: "HALOG-1125" in caplog.text, "it says so")
        with running.transaction():
            assert running.get(Counter, "c").value == 0
    (aside,) = alone.directory.glob("db.*-*")
    assert aside.name.startswith("db.later-")
    (told,) = [r.getMessage() for r in caplog.records if "HALOG-1125" in r.getMessage()]
    assert str(aside) in told
    assert "its position has 'tier', which a later version of halog wrote" in told
    assert "damaged" not in caplog.text
