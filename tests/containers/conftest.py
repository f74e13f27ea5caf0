"""The cluster suite's clusters on the container site, whatever `--site` says: what only three servers can show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.site import COUNT, ContainerSite
from tests.integration.cluster import conftest as clusters

cluster = clusters.cluster
make = clusters.make
pytest_runtest_makereport = clusters.pytest_runtest_makereport


@pytest.fixture(scope="session")
def site(container_site: ContainerSite) -> ContainerSite:
    """Three brokers, three ZooKeeper servers."""
    return container_site


@pytest.fixture(scope="module")
def shared(site: ContainerSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Shared]:
    """Gone before the cluster suite begins its own: six nodes that look for three lost brokers starve them."""
    kept = clusters.Shared(site, tmp_path_factory)
    try:
        yield kept
    finally:
        kept.drop()


@pytest.fixture
def mended(site: ContainerSite) -> Iterator[None]:
    """Whatever a test did to the servers, all run afterwards."""
    assert len(site.members) == 2 * COUNT
    yield
    for server in ("zookeeper", "kafka"):
        site.resume(server)
        site.start_server(server)
