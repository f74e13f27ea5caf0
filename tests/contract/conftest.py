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
from tests.secured import SecuredSite, secured_site
from tests.workers import is_last

_SERVERS = pytest.StashKey[EmbeddedSite]()
_SECURED = pytest.StashKey[EmbeddedSite]()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[EmbeddedSite]:
    site = request.session.stash[_SERVERS] = EmbeddedSite(tmp_path_factory.mktemp("contract-site"))
    with site:
        yield site


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """They end with the last test of this directory: an idle broker is a thirtieth of a core, for all that follow."""
    yield
    if is_last(item, nextitem):
        for key in (_SERVERS, _SECURED):
            site = item.session.stash.get(key, None)
            if site is not None:
                site.stop()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("contract-secured")) as made:
        request.session.stash[_SECURED] = made.site
        yield made


def _log_rig(kind: str, request: pytest.FixtureRequest) -> LogRig:
    if kind == "memory":
        return MemoryLogRig()
    if kind == "kafka":
        return KafkaRig(request.getfixturevalue("servers"))
    secured: SecuredSite = request.getfixturevalue("secured")
    return KafkaRig(secured.site, secured.by_password() if kind == "kafka by password" else secured.by_certificate())


BY_TLS = ("kafka by password", "kafka by certificate")


@pytest.fixture(params=["memory", "kafka", *(pytest.param(kind, marks=pytest.mark.long) for kind in BY_TLS)])
def logs(request: pytest.FixtureRequest) -> Iterator[LogRig]:
    rig = _log_rig(request.param, request)
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
