"""This module has pieces of what branches did, as DataFrames: which of them are on both, and all of them put together,
classified."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from spark_jobs.branching import INITIATING, SOURCE
from spark_jobs.classifying import CLASSIFIED, Classify, Gone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDS: Final = ("source_ids", "initiating_ids")
"""Columns of `CLASSIFIED` that only a merge needs."""


def on_both(folded: DataFrame) -> tuple[Gone, ...]:
    """Return, of the transactions that the other branch may have as well, those that it has: it decided the same vote,
    or a merge in it has brought them."""
    told = folded.where("tx IS NOT NULL")
    some = told.where("key IS NOT NULL").select("place", "side", "tx").distinct()
    there = told.selectExpr("place", f"{SOURCE + INITIATING} - side AS side", "tx")
    found = some.join(there, ["place", "side", "tx"], "left_semi").collect()
    return tuple((row.place, row.side, bytes(row.tx)) for row in found)


def classify_all(
    folded: DataFrame,
    names: Sequence[str],
    gone: Collection[Gone] = (),
    definitions: Sequence[str] = (),
    *,
    three_way: bool,
) -> DataFrame:
    """Put pieces of both branches together key by key, and classify them. `names`: of the partitions, by place; `gone`
    and `definitions` as `Classify` has them."""
    pieces = folded.where("key IS NOT NULL").drop("carried", "before").repartition("place", "key")
    ordered = pieces.sortWithinPartitions("place", "key", "side", "first")
    return ordered.mapInArrow(Classify(names, gone, definitions, three_way=three_way), CLASSIFIED)
