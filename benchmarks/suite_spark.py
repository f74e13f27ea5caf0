"""Finding what belongs elsewhere among a million objects, beside the same Spark session reading and counting them.

Spark runs in this process's children, on all CPUs, with the broker and the node beside it. Objects are written by a
real node; the state topic holds all of them when the clock starts. A round is a count, then each way of finding.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, wait_until
from halog.config import PolicyConfig, load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
EACH_LOAD = 50_000
SNAPSHOT_MS = 1_000
"""The state topic is completed a second after the load."""
WRITTEN_S = 180.0
"""Until the state topic of a million objects is complete: half a minute on a calm machine."""

BUILT_IN, RING, CUSTOM = "one partition more", "another ring", "the application's mapper"
WAYS: dict[str, dict[str, Any]] = {
    BUILT_IN: {"partitions": PARTITIONS + 1},
    RING: {"ring_size": 131_072},
    CUSTOM: {"mapper": "benchmarks.model:by_last_digit"},
}
TARGETS = {BUILT_IN: 0.5, RING: 0.5, CUSTOM: 0.25}


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Objects looked at per second, for each way of mapping."""
    config = _cluster(scene, effort.found_objects)
    import spark_jobs

    spark = spark_jobs.session(modules=["benchmarks.model"])
    try:
        _round(spark, config, effort.found_objects)  # once for nothing: the JVM compiles what it runs often
        rounds = scene.calm.rounds(effort.restores, lambda i: _round(spark, config, effort.found_objects))
    finally:
        spark.stop()
    scene.end_all()
    counted = [found["count"] for found in rounds]
    return [
        row(
            f"finding what moves among {effort.found_objects:,} objects: {name}",
            "objects/s",
            [found[name] for found in rounds],
            counted,
            target=Target(TARGETS[name], "ratio", "higher"),
            client_in="Spark, beside reading and counting",
        )
        for name in WAYS
    ]


def _cluster(scene: Scene, count: int) -> Path:
    policy = PolicyConfig("zone", partitions=PARTITIONS, sync_replicas=0, local_sync="WRITE_NO_SYNC")
    config = scene.cluster("spark", "A", {"Kept": policy}, every_ms=SNAPSHOT_MS)
    node = scene.app(config, "A")
    node.ask("open")
    names = [f"kept-{i}" for i in range(PARTITIONS)]
    wait_until("A is active", lambda: all(node.ask("state")[n]["serving"] for n in names))
    for first in range(0, count, EACH_LOAD):
        node.ask("load", kind="Kept", first=first, count=min(EACH_LOAD, count - first))
    lsns = {name: node.ask("lsn", partition=name)["lsn"] for name in names}
    complete = "the state topic is complete"
    wait_until(complete, lambda: all(node.ask("marked", partition=n)["lsn"] >= lsns[n] for n in names), WRITTEN_S)
    return config


def _round(spark: SparkSession, config: Path, count: int) -> dict[str, float]:
    """Objects per second, of a count and of every way."""
    return {"count": _counted(spark, config, count), **{name: _found(spark, config, count, name) for name in WAYS}}


def _counted(spark: SparkSession, config: Path, count: int) -> float:
    own = load_config(config)
    topic = f"{own.cluster.name}.kept.state"
    begin = time.perf_counter()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", own.site.bootstrap or "")
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
        .count()
    )
    took = time.perf_counter() - begin
    if rows < count:
        raise RuntimeError(f"{topic} holds {rows} rows for {count} objects")
    return count / took


def _found(spark: SparkSession, config: Path, count: int, way: str) -> float:
    """A whole job: both topics, the holds, the mover that counts."""
    from spark_jobs.finder import Finder
    from spark_jobs.mover import DryRun
    from spark_jobs.rebalance import changed
    from spark_jobs.site import connect

    wanted = changed(load_config(config), "kept", **WAYS[way])
    with tempfile.TemporaryDirectory(prefix="halog-bench-") as checkpoint, connect(config) as site:
        begin = time.perf_counter()
        report = Finder(spark, site, wanted, "kept", DryRun(), Path(checkpoint)).run()
        took = time.perf_counter() - begin
    if report.rows < count or not report.counts.get("would_move"):
        raise RuntimeError(f"the finder looked at {report.rows} of {count} objects, and found {report.counts}")
    return count / took
