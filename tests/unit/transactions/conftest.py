from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.transactions import model


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(partitions=1)


@pytest.fixture(params=["active here", "active elsewhere"])
def node(request: pytest.FixtureRequest, cluster: MemoryCluster) -> Iterator[MemoryNode]:
    """A node on a cluster of one partition; every test runs with methods run here and with methods run elsewhere."""
    remote = request.param == "active elsewhere"
    with MemoryNode(cluster, model.REGISTRY, remote=remote, application_modules=[model.__name__]) as node:
        yield node


@pytest.fixture
def here(cluster: MemoryCluster) -> Iterator[MemoryNode]:
    with MemoryNode(cluster, model.REGISTRY) as node:
        yield node


@pytest.fixture
def spread() -> Iterator[MemoryNode]:
    """A node on a cluster of many partitions."""
    with MemoryNode(MemoryCluster(partitions=12), model.REGISTRY) as node:
        yield node
