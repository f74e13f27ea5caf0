"""A whole cluster on the memory adapters, with the command line pointed at it."""

from __future__ import annotations

import datetime as dt
import enum
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

from halog.adapters.memory import (
    Faults,
    MemoryBroker,
    MemoryChannel,
    MemoryCoordinator,
    MemoryDisk,
    MemoryLog,
    MemoryStore,
    MemoryTree,
)
from halog.cli import main as frame
from halog.cli.shared.surroundings import Surroundings
from halog.config import Config, load_config
from halog.core.table.table import PartitionTable
from halog.runtime.node.live_config import ActiveConfig, for_node
from halog.runtime.node.open import RunningNode, node
from halog.runtime.support.adapters import Adapters
from halog.schema import Decimals, Ref, Registry, managed

TOML = """
[cluster]
name = "ops"
[site]
bootstrap = "127.0.0.1:1"
zookeeper = "127.0.0.1:2"
[zones.home]
nodes = ["A", "B", "C"]
[policies.p]
zone = "home"
partitions = 6
sync_replicas = 1
async_replicas = 1
[bindings]
"*" = "p"
[timing]
doubt_timeout_ms = 60_000
[nodes.A]
data_dir = "A"
[nodes.B]
data_dir = "B"
[nodes.C]
data_dir = "C"
"""

FOUR = TOML.replace('"C"]', '"C", "D"]').replace("partitions = 6", "partitions = 1").replace("async_replicas = 1", "")
FOUR += '[nodes.D]\ndata_dir = "D"\n'
"""One partition, on two of four nodes."""


class Kind(enum.Enum):
    JET = "jet"
    PROP = "prop"


FLEET = Registry()


@managed(key="tail", registry=FLEET)
class Aircraft:
    tail: str
    miles: int = 0
    kind: Kind = Kind.JET
    price: Annotated[Decimal, Decimals(12, 2)] = Decimal("0.00")
    photo: bytes = b""
    since: dt.datetime | None = None
    load: float = 0.0
    notes: dict[str, list[str]] | None = None


@managed(registry=FLEET)
class Seaplane(Aircraft):
    floats: int = 2


@managed(key=("carrier", "flight"), partition_by="carrier", registry=FLEET)
class Flight:
    carrier: str
    flight: int
    aircraft: Ref[Aircraft] | None = None


class Ran(NamedTuple):
    """How a command line went."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cluster:
    """Three nodes in memory. `wait_until` is for what nodes do by themselves."""

    Aircraft, Seaplane, Flight, Kind = Aircraft, Seaplane, Flight, Kind

    def __init__(self, directory: Path, toml: str = TOML, registry: Registry = FLEET) -> None:
        self.directory = directory
        self.registry = registry
        self.path = directory / "halog.toml"
        self.path.write_text(toml)
        self.broker = MemoryBroker()
        self.tree = MemoryTree()
        self.commands_faults = Faults()
        """What the requests of commands meet."""
        self.nodes: dict[str, RunningNode] = {}

    def adapters(self, config: Config, name: str, **_: float) -> Adapters:
        store = MemoryStore(MemoryDisk(name)) if name in config.nodes else None
        channel = MemoryChannel(faults=self.commands_faults if name.startswith("halog-cli") else None)
        return Adapters(MemoryLog(self.broker), MemoryCoordinator(self.tree), channel, store)

    def start(self, name: str, registry: Registry | None = None) -> RunningNode:
        of = registry or self.registry
        self.nodes[name] = running = node(
            load_config(self.path), name, registry=of, adapters=self.adapters, activated=self.activated
        )
        return running

    def activated(self, own: Config, name: str) -> ActiveConfig:
        coordinator = MemoryCoordinator(self.tree)
        coordinator.connect(lambda state: None)
        try:
            return for_node(own, coordinator, name)
        finally:
            coordinator.close()

    def stop(self, name: str) -> None:
        self.nodes.pop(name).close()

    def settle(self) -> Cluster:
        """Until every partition that is placed has its active node and all its replicas."""
        wait_until(lambda: all(_is_whole(t) for t in self.tables()))
        return self

    def tables(self) -> list[Any]:
        """As the coordinator has them: a command may know them before any node does, and the other way round."""
        tree = self.tree
        found = [tree.get(f"partitions/{name}") for name in sorted(tree.children("partitions"))]
        return [PartitionTable.from_bytes(value.data) for value in found if value is not None]

    def active(self, partition: str) -> str:
        return next(t.active.node for t in self.tables() if t.name == partition)

    def partition_of(self, obj: Any) -> str:
        info = FLEET.info(obj)
        routing = info.routing_key(info.key_of(obj))
        return next(iter(self.nodes.values())).runtime.partition_of(info.name, routing)

    def create(self, *objects: Any) -> None:
        some = next(iter(self.nodes.values()))

        @some.transactional()  # again, while somebody else's is in doubt
        def made(obj: Any) -> None:
            some.create(obj)

        for obj in objects:
            made(obj)


def _is_whole(table: PartitionTable) -> bool:
    return len(table.node_list) == len(table.configured) and bool(table.active or not table.configured)


BUSY_S = 10.0
"""A node of these tests shares its two cores with eight other test files: slow is not silent."""


AROUND = {"commands": Surroundings()}
"""What commands of the test that runs find around them."""


def find_around(monkeypatch: pytest.MonkeyPatch, around: Surroundings) -> None:
    """Until the end of the test, commands find this."""
    monkeypatch.setitem(AROUND, "commands", around)


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three settled nodes; commands reach them through the memory adapters."""
    with running(Cluster(tmp_path), monkeypatch) as made:
        yield made


@contextmanager
def running(made: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Its nodes up and settled, and commands pointed at it."""
    find_around(monkeypatch, Surroundings(made.adapters, node_answer_s=BUSY_S))
    monkeypatch.setenv("HALOG_CONFIG", str(made.path))
    try:
        for name in "ABC":
            made.start(name)
        yield made.settle()
    finally:
        for name in list(made.nodes):
            made.stop(name)


@pytest.fixture
def commands_faults() -> Faults:
    """What the requests of commands at sites meet."""
    return Faults()


@pytest.fixture
def halog(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command line in this process."""

    def run(*args: object) -> Ran:
        capsys.readouterr()
        code = frame.main([str(a) for a in args], AROUND["commands"])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run
