"""Clusters that Spark reads, one for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cluster.harness import Cluster
from tests.integration.site import Site

MODULE = "tests.integration.spark.world"


@pytest.fixture(scope="module")
def fleet(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, three partitions; nothing is trimmed."""
    made = Cluster(tmp_path_factory.mktemp("fleet"), site, nodes="AB", partitions=3, async_=0, module=MODULE)
    try:
        made.start()
        made.whole()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def short(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, two partitions; a snapshot every 60 records, and 25 records of log behind it."""
    directory = tmp_path_factory.mktemp("short")
    made = Cluster(directory, site, nodes="AB", partitions=2, async_=0, module=MODULE, every=60, keep=25)
    try:
        made.start()
        made.whole()
        yield made
    finally:
        made.close()
