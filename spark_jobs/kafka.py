"""This module has Spark's own Kafka source, for streams: which offsets to begin with, and what must never be relaxed.

`failOnDataLoss` stays true: rows that are gone would otherwise be passed over in silence. Transactions that are open or
were aborted are not shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from halog.adapters.kafka.access import KafkaAccess
from halog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → the first offset to read."""


def stream(spark: SparkSession, kafka: KafkaAccess, begin: Offsets, *, max_offsets: int | None = None) -> DataFrame:
    """Return the rows of these topic partitions from these offsets on, or from where the query's checkpoint stands.
    `max_offsets`: about how many in one micro-batch. ConfigError if the session lacks the connector."""
    from pyspark.errors import AnalysisException

    reader = (
        spark.readStream.format("kafka")
        .options(**kafka.spark())
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: sorted(offsets) for topic, offsets in begin.items()}))
        .option("startingOffsets", json.dumps({t: {str(p): o for p, o in at.items()} for t, at in begin.items()}))
    )
    if max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets)
    try:
        return reader.load()
    except AnalysisException as error:
        if "kafka" not in str(error):
            raise
        raise ConfigError(
            "this Spark session has no Kafka connector; make it with spark_jobs.session(), or add the files that "
            "spark_jobs.jars() names to spark.jars"
        ) from error
