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
from tests.secure_zookeeper import SecureSite, digest
from tests.secured import SecuredSite, secured_site
from tests.workers import is_last

_SERVERS = pytest.StashKey[list[EmbeddedSite]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers are started and started again within tests: two JVMs take their time on a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[EmbeddedSite]:
    site = EmbeddedSite(tmp_path_factory.mktemp("contract-site"))
    request.session.stash.setdefault(_SERVERS, []).append(site)
    with site:
        yield site


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SecureSite]:
    """Servers of which ZooKeeper takes TLS, too."""
    made = SecureSite(tmp_path_factory.mktemp("secure-site"))
    request.session.stash.setdefault(_SERVERS, []).append(made.site)
    with made.site:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """They end with the last test of this directory: an idle broker is a thirtieth of a core, for all that follow."""
    yield
    for site in item.session.stash.get(_SERVERS, []):
        if is_last(item, nextitem):
            site.stop()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("contract-secured")) as made:
        request.session.stash.setdefault(_SERVERS, []).append(made.site)
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


@pytest.fixture(params=["memory", "zookeeper", pytest.param("secure", marks=pytest.mark.long)])
def coordinators(request: pytest.FixtureRequest) -> Iterator[CoordinatorRig]:
    """`secure`: by TLS, as a user with a password. tests/contract/test_zookeeper_access.py has the part of that which
    is quick."""
    rig: CoordinatorRig
    if request.param == "memory":
        rig = MemoryCoordinatorRig()
    elif request.param == "zookeeper":
        rig = ZkRig(request.getfixturevalue("servers"))
    else:
        rig = secure_rig(request.getfixturevalue("secure"))
    yield rig
    rig.end()


@pytest.fixture
def sealed(secure: SecureSite) -> Iterator[ZkRig]:
    rig = secure_rig(secure)
    yield rig
    rig.end()


def secure_rig(secure: SecureSite) -> ZkRig:
    return ZkRig(secure.site, secure.sealed, digest(tls=secure.certificates.files()))


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
