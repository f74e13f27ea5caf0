"""A job whose executors write to another disk than its driver reads says so before it reads anything (S1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from halog.errors import ConfigError
from spark_jobs import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.feature("S1")


@pytest.fixture
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "is_local", lambda spark: False)


def test_a_directory_that_all_share_is_taken(spark: SparkSession, on_a_cluster: None, tmp_path: Path) -> None:
    shared.check(spark, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [1, shared.LEAST])
def test_what_lies_on_another_disk_is_missed(
    spark: SparkSession, on_a_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """Of all executors, or of one of them."""
    writer: Any = type(spark.range(1).write)
    parquet = writer.parquet

    def elsewhere(self: Any, path: str) -> None:
        parquet(self, path)
        for part in sorted(Path(path).glob("part-*"))[:missing]:
            part.unlink()

    monkeypatch.setattr(writer, "parquet", elsewhere)
    with pytest.raises(ConfigError, match=f"of 32 pieces .* {32 - missing} are there: .* --checkpoint"):
        shared.check(spark, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_in_one_process_nothing_is_tried(spark: SparkSession, tmp_path: Path) -> None:
    shared.check(spark, tmp_path / "not there")
    assert not (tmp_path / "not there").exists()
