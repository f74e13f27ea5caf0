"""One suite per port, run against the memory reference and the real adapter; a rig per implementation makes the faults.

The servers are this suite's own: it pauses and restarts them, which another suite's tests need not expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from tests.contract.rigs import KafkaRig, LogRig, MemoryLogRig
from tests.contract.rigs_coordinator import CoordinatorRig, MemoryCoordinatorRig, ZkRig
from tests.contract.rigs_store import MemoryStoreRig, RocksRig, StoreRig
from tests.workers import is_last

_SERVERS = pytest.StashKey[EmbeddedSite]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers are started and started again within tests: two JVMs take their time on a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[EmbeddedSite]:
    site = request.session.stash[_SERVERS] = EmbeddedSite(tmp_path_factory.mktemp("contract-site"))
    with site:
        yield site


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """They end with the last test of this directory: an idle broker is a thirtieth of a core, for all that follow."""
    yield
    site = item.session.stash.get(_SERVERS, None)
    if site is not None and is_last(item, nextitem):
        site.stop()


@pytest.fixture(params=["memory", "kafka"])
def logs(request: pytest.FixtureRequest) -> Iterator[LogRig]:
    rig = MemoryLogRig() if request.param == "memory" else KafkaRig(request.getfixturevalue("servers"))
    yield rig
    rig.end()


@pytest.fixture
def kafka(servers: EmbeddedSite) -> Iterator[KafkaRig]:
    rig = KafkaRig(servers)
    yield rig
    rig.end()


@pytest.fixture(params=["memory", "zookeeper"])
def coordinators(request: pytest.FixtureRequest) -> Iterator[CoordinatorRig]:
    rig = MemoryCoordinatorRig() if request.param == "memory" else ZkRig(request.getfixturevalue("servers"))
    yield rig
    rig.end()


@pytest.fixture
def zookeeper(servers: EmbeddedSite) -> Iterator[ZkRig]:
    rig = ZkRig(servers)
    yield rig
    rig.end()


@pytest.fixture(params=["memory", "rocks"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreRig]:
    rig = MemoryStoreRig() if request.param == "memory" else RocksRig(tmp_path / "store")
    yield rig
    rig.end()
