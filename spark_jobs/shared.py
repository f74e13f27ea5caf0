"""This module checks a job's directory, which executors write and the driver reads: on a cluster it is on a file system
that all of them share.

Where they do not share it, Spark says nothing: each executor writes to a disk of its own, and the driver finds less, or
nothing. A merge must not go by less than what was found, so that is tried before anything is read.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from halog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIED: Final = "tried"
"""The directory below it that is written as a trial."""
LEAST: Final = 32
"""At least so many pieces are written, or four for each core: every executor has some."""


def check(spark: SparkSession, directory: Path) -> None:
    """Check that all that executors write there is there. ConfigError."""
    if is_local(spark):
        return
    there, pieces = directory / TRIED, max(LEAST, 4 * spark.sparkContext.defaultParallelism)
    try:
        spark.range(0, pieces, numPartitions=pieces).write.mode("overwrite").parquet(str(there))
        here = spark.read.schema("id long").parquet(str(there)).count()
    finally:
        shutil.rmtree(there, ignore_errors=True)
    if here != pieces:
        raise ConfigError(
            f"of {pieces} pieces that Spark's executors have written to {directory} {here} are there: on a cluster it "
            "must be on a file system that driver and executors share; name one with --checkpoint"
        )


def is_local(spark: SparkSession) -> bool:
    """Say whether executors run in the driver's own process."""
    return (spark.sparkContext.master or "").startswith("local")
