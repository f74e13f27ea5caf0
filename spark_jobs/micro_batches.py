"""This module runs one streaming query over everything there is now, a micro-batch at a time, each of them done once.

Spark repeats the last micro-batch of a query that ended before Spark had noted its end, with the same rows and the same
number. So a job that notes the number together with what it did recognises it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from halog import errors
from halog.errors import HalogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Take = Callable[["DataFrame", int], None]
"""Does a micro-batch, and notes its number."""


def drain(stream: DataFrame, checkpoint: Path, done: int, take: Take) -> None:
    """Take everything there is now, from where the query's checkpoint stands. `done`: the last micro-batch that is
    done. An error that ends a micro-batch is raised as it was, even where an executor raised it."""
    from pyspark.errors import PySparkException

    failed: list[BaseException] = []

    def each(frame: DataFrame, number: int) -> None:
        if number <= done:
            return  # done before; the job ended before Spark noted that
        try:
            take(frame, number)
        except BaseException as error:
            failed.append(told_by_executor(error) or error)
            raise

    query = (
        stream.writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise failed[0] if failed else error from None  # Spark's own shows it as text
    finally:
        query.stop()


def told_by_executor(error: BaseException) -> HalogError | None:
    """Return the error of ours that Spark's shows in its text, if it shows one."""
    for name, said in re.findall(r"halog\.errors\.(\w+): (.+)", str(error)):
        cls = getattr(errors, name, None)
        if isinstance(cls, type) and issubclass(cls, HalogError):
            return cls(said.strip())
    return None
