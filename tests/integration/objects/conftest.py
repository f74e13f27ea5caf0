"""A cluster of two nodes and any number of clients; a test may be one of the nodes itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from halog.runtime.node.open import RunningNode
from tests.integration.cluster.harness import Cluster
from tests.integration.site import Site

SHOP = "tests.integration.objects.shop"
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def cluster(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(
        tmp_path_factory.mktemp("objects"),
        site,
        nodes="AB",
        partitions=4,
        async_=0,
        module="tests.integration.objects.shop",
    )
    try:
        made.start()
        made.whole()
        yield made
    finally:
        made.close()


@pytest.fixture
def node(cluster: Cluster) -> RunningNode:
    """A client: a node in no zone."""
    return cluster.client()


@pytest.fixture
def name() -> str:
    """A key nobody else uses."""
    return f"shelf{next(_NAMES)}"
