"""One Spark session for the whole run: a second and a third one would cost ten seconds each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.cluster.harness import Cluster
from tests.integration.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.integration.spark.world"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """On this machine, two tasks at a time."""
    import spark_jobs

    made = spark_jobs.session("local[2]", "halog-tests", settings={"spark.sql.shuffle.partitions": "2"})
    try:
        yield made
    finally:
        made.stop()


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
