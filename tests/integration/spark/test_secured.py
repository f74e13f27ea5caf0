"""Spark reads a log behind TLS, by a password and by a certificate (O4, S2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spark_jobs
from tests.integration.cluster.harness import Cluster
from tests.integration.spark.conftest import MODULE
from tests.integration.spark.traffic import traffic
from tests.secured import MARK, SecuredSite, secured_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.mark.long
@pytest.mark.feature("O4", "S2")
def test_spark_reads_a_log_by_password_and_by_certificate(
    spark: SparkSession, secured: SecuredSite, tmp_path: Path
) -> None:
    """Executors read objects themselves; a stream comes by Spark's connector, which is Java."""
    with closing(Cluster(tmp_path, secured.site, nodes="A", partitions=1, sync=0, async_=0, module=MODULE)) as cluster:
        plain = cluster.toml.read_text()
        cluster.toml.write_text(secured.password_table(plain))
        cluster.start()
        cluster.whole()
        traffic(cluster, 20)
        by_certificate = tmp_path / "by-certificate.toml"
        by_certificate.write_text(secured.certificate_table(plain))
        found = []
        for number, toml in enumerate((cluster.toml, by_certificate)):
            objects = sorted(row.tail for row in spark_jobs.objects(spark, toml, "Plane").collect())
            stream = spark_jobs.changes_stream(spark, toml, "Plane")
            plan = stream._jdf.queryExecution().toString()
            assert MARK not in plan, "no plan shows the password"
            assert "PRIVATE KEY" not in plan
            query = (
                stream.writeStream.format("memory")
                .queryName(f"secured_{number}")
                .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            told = sorted((r.partition, r.lsn, r.op) for r in spark.table(f"secured_{number}").collect())
            found.append((objects, told))
        assert found[0] == found[1]
        assert all(len(part) > 5 for part in found[0])
        written = [path for path in tmp_path.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
        assert written == [], "no checkpoint has the password"
