"""Classifying what two branches of a fork contradict each other in, beside plain Spark's full outer join of them.

Spark runs in this process's children, on all CPUs, with both sites' brokers beside it. *Classified*: from what the job
has on disk when it has read both logs, the pieces are put together and each key is classified; beside it the same rows
of the same files, those of one branch joined with those of the other one by key. *The whole job*: both logs are
followed twice, folded, and classified; beside it a plain Spark program that reads the same changes from a raw topic at
each site, where every row has its object's key already, and joins them. A round is each of these, one after the other.

*The command*: `halog restore --spark` of two sites with a node each, from its process's beginning to its end, when the
initiating site follows: Python and Spark start, branches are closed, the job runs, the source merges. Beside it the
same command without `--spark`, of a fork that is as large.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.forked import INITIATING, PARTITIONS, RAW, SOURCE, Forked, share
from benchmarks.processes import Child
from benchmarks.scene import Scene, wait_until
from benchmarks.suite_sites import KIND, level, promote, site_config
from halog.demo.split.sites import NAMES, SplitSites
from halog.demo.split.steps import EAST, WEST
from halog.embedded.progress import LogProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLASSIFIED, WHOLE = "classified", "the whole job"
JOINED, READ_AND_JOINED = "joined", "read and joined"
TARGET: Final = Target(0.5, "ratio", "higher")
RESTORED_S: Final = 900.0
"""Spark starts and merges the largest effort's fork in less than a minute: what takes fifteen hangs, and the benchmark
would with it."""


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Objects per second, of each way and what stands beside it; seconds, of the command."""
    scene.end_all()
    return [*_job(scene, effort), _command(scene, effort)]


def _job(scene: Scene, effort: Effort) -> list[Row]:
    count = effort.found_objects
    import spark_jobs

    forked = Forked(scene.directory / "forked", count)
    try:
        spark = spark_jobs.session()
        try:
            _round(spark, forked)  # once for nothing: the JVM compiles what it runs often
            rounds = scene.calm.rounds(effort.restores, lambda i: _round(spark, forked))
        finally:
            spark.stop()
    finally:
        forked.close()
    return [
        row(
            f"two branches that touched {count:,} objects: {name}",
            "objects/s",
            [found[name] for found in rounds],
            [found[beside] for found in rounds],
            target=target,
            client_in=f"Spark, beside {beside}",
        )
        for name, beside, target in ((CLASSIFIED, JOINED, TARGET), (WHOLE, READ_AND_JOINED, Target()))
    ]


def _round(spark: SparkSession, forked: Forked) -> dict[str, float]:
    from spark_jobs.comparison import FOLDED_DIRECTORY, Comparison
    from spark_jobs.pieces import classify_all

    names = [f"merge-{i}" for i in range(PARTITIONS)]
    with tempfile.TemporaryDirectory(prefix="halog-bench-") as directory, forked.site() as site:

        def whole() -> DataFrame:
            comparison = Comparison(spark, site, "merge", SOURCE, Path(directory))
            comparison.run()
            return comparison.rows()

        found = {READ_AND_JOINED: _rate(forked, lambda: _read_and_joined(spark, forked)), WHOLE: _rate(forked, whole)}
        folded = spark.read.parquet(*(str(d) for d in Path(directory, FOLDED_DIRECTORY).iterdir()))
        found[JOINED] = _rate(forked, lambda: _joined(folded))
        found[CLASSIFIED] = _rate(forked, lambda: classify_all(folded, names, three_way=True))
    return found


def _joined(folded: DataFrame) -> DataFrame:
    rows = folded.where("key IS NOT NULL").drop("carried")
    source, initiating = rows.where("side = 0"), rows.where("side = 1")
    return source.join(initiating, ["place", "key"], "full_outer")


def _read_and_joined(spark: SparkSession, forked: Forked) -> DataFrame:
    sides = [
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", forked.bootstrap[name])
        .option("subscribe", RAW)
        .load()
        .selectExpr("key", f"value AS {name}", f"offset AS {name}_offset", f"timestamp AS {name}_time")
        for name in (SOURCE, INITIATING)
    ]
    return sides[0].join(sides[1], "key", "full_outer")


def _rate(forked: Forked, made: Callable[[], DataFrame]) -> float:
    """Objects per second, until every row was there; every column of it, and kept nowhere."""
    from pyspark.sql import Observation, functions as f

    begin, seen = time.perf_counter(), Observation()
    made().observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    took = time.perf_counter() - begin
    if seen.get["rows"] != forked.count:
        raise RuntimeError(f"{seen.get['rows']} rows for {forked.count} objects")
    return forked.count / took


# --- the command ---


def _command(scene: Scene, effort: Effort) -> Row:
    """Seconds: both sites have the same objects, and each changes three fifths of them."""
    count = effort.touched_objects * 5 // 3
    sites = SplitSites(scene.directory / "merge", LogProgress())

    def measure(i: int) -> tuple[float, float]:
        configs = {site: site_config(scene, sites, site, f"merge{i}") for site in NAMES}
        apps = {site: scene.app(configs[site], f"{site}-1") for site in NAMES}
        for app in apps.values():
            app.ask("open")
        wait_until("west serves", lambda: all(t["serving"] for t in apps[WEST].ask("state").values()))
        apps[WEST].ask("load", kind=KIND, first=0, count=count)
        took = []
        for serves, more in ((WEST, []), (EAST, ["--spark"])):  # west is the initiating site both times
            _part(sites, configs, apps, serves, count)
            took.append(_restored(configs[WEST], *more))
        for app in apps.values():
            scene.end(app)
        return took[0], took[1]

    try:
        sites.start()
        plain, by_spark = zip(*scene.calm.rounds(effort.restores, measure), strict=True)
    finally:
        scene.end_all()
        sites.stop()
    name = f"halog restore --spark, {effort.touched_objects:,} objects touched at each site (beside: without --spark)"
    return row(name, "s", by_spark, plain, client_in="the operator's command")


def _part(sites: SplitSites, configs: dict[str, Path], apps: dict[str, Child], serves: str, count: int) -> None:
    """`serves`: the site that does, so that the other one is to go on alone."""
    level(apps)
    sites.cut()
    promote(configs[EAST if serves == WEST else WEST], may_fork=True)
    for site in NAMES:
        mine = share(site, count)
        apps[site].ask("change", kind=KIND, first=mine.start, count=len(mine))
    sites.heal()


def _restored(config: Path, *more: str) -> float:
    """Seconds of the whole process."""
    argv = [sys.executable, "-m", "halog.cli.main", "restore", "--source", EAST, "--config", str(config), *more]
    begin = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=RESTORED_S)
    took = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"not restored: {done.stderr[-2_000:]}")
    return took
