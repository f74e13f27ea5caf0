"""The example job runs on a cluster with some history, and its plot shows all of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import spark_jobs
from examples import activity
from tests.integration.cluster.harness import Cluster
from tests.integration.spark.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(480)


@pytest.mark.feature("S2")
def test_the_plot_shows_every_change(
    spark: SparkSession, fleet: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic(fleet, 40)
    out = tmp_path / "activity.svg"
    activity.main(["--config", str(fleet.toml), "--type", "Plane", "--out", str(out), "--spark-master", "local[2]"])
    shown: Counter[str] = Counter()
    for title in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}title"):
        found = re.fullmatch(r"20.* UTC: ([\d,]+) (\w+)s", title.text or "")
        assert found is not None
        shown[found[2]] += int(found[1].replace(",", ""))
    told = spark_jobs.changes(spark, fleet.toml, "Plane").groupBy("op").count().collect()
    assert shown == {row["op"]: row["count"] for row in told}
    assert {"create", "update", "delete"} == set(shown)
    assert f"{sum(shown.values()):,} changes in" in capsys.readouterr().out
