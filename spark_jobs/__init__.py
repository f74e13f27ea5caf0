"""This package has Spark over halog's objects and logs: a reader for any Spark application (S2), and what rebalancing
must move (S1).

    spark = spark_jobs.session()
    spark_jobs.objects(spark, "halog.toml", "Flight")        every object, typed; also as of an lsn or a time
    spark_jobs.changes(spark, "halog.toml", "Flight")        every change that is still in the log, in order
    spark_jobs.changes_stream(spark, "halog.toml", "Flight") the same, going on with what comes
    spark_jobs.classified(spark, "halog.toml", "flights", …) what two sites that both went on contradict each other in

It is the only place that imports pyspark; importing this package does not. The pure core decides on the executors what
counts in a log (`halog.core.log.chain`, `halog.core.log.transactions`), never SQL: readers that followed rules of their
own would sooner or later see other objects than the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.merge import classified
    from spark_jobs.reader import changes, objects
    from spark_jobs.spark import jars, session
    from spark_jobs.streaming import changes_stream

__all__ = ["changes", "changes_stream", "classified", "jars", "objects", "session"]

# No name here may be a module's name: importing that module would put it in the name's place.
_PLACES = {
    "changes": "reader",
    "objects": "reader",
    "changes_stream": "streaming",
    "classified": "merge",
    "jars": "spark",
    "session": "spark",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
