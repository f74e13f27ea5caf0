"""Objects and changes as DataFrames, beside what the nodes and a plain account say."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_jobs
from halog.errors import ConfigError, UnknownTypeError
from halog.schema.registry import DEFAULT
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait
from tests.integration.spark.traffic import log_bounds, traffic
from tests.integration.spark.world import Floatplane, Kind, Leg, Plane, Point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(480)

FULL: dict[str, Any] = {
    "tail": "N1",
    "miles": 1 << 62,
    "kind": Kind.PROP,
    "price": Decimal("-1234567890.12"),
    "photo": b"\0\xff",
    "load": -0.5,
    "ready": False,
    "built": dt.date(1903, 12, 17),
    "wakes": dt.time(23, 59, 59, 999_999),
    "seen": dt.datetime(2026, 2, 3, 4, 5, 6, 789_012, dt.UTC),
    "serial": uuid.UUID(int=1 << 100),
    "base": Point(1.5, "home"),
    "notes": {"a": ["x", "y"], "b": []},
    "stops": [Point(2.5), Point(3.5, "s")],
    "times": [dt.time(1, 2, 3)],
}


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.feature("S2", "X7")
def test_every_logical_type_arrives_as_it_was_written(spark: SparkSession, fleet: Cluster) -> None:
    """One object with every field set and one with the defaults; a subclass among its base's rows and by itself."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    node = fleet.client()
    with node.transaction() as tx:
        first = tx.create(Plane(**FULL))
        ref = tx.ref(first)
    with node.transaction() as tx:
        tx.create(Plane("N2"))
        tx.create(Floatplane("N3", miles=7, floats=4))
        tx.create(Leg("N1", 5, by=ref))
    found = {r["tail"]: r for r in rows(spark_jobs.objects(spark, fleet.toml, "Plane"))}
    one = found["N1"]
    assert one["seen"].astimezone(dt.UTC) == FULL["seen"]
    plain = {
        **FULL,
        "kind": "PROP",
        "wakes": dt.timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999),
        "seen": one["seen"],
        "serial": str(FULL["serial"]),
        "base": {"x": 1.5, "label": "home"},
        "stops": [{"x": 2.5, "label": None}, {"x": 3.5, "label": "s"}],
        "times": [dt.timedelta(hours=1, minutes=2, seconds=3)],
    }
    assert {k: v for k, v in one.items() if k[0] != "_"} == plain
    assert (bytes(one["_reference"]), one["_type"]) == (ref.raw, "Plane")
    assert found["N2"]["base"] is None
    assert found["N2"]["notes"] == {}
    assert (found["N3"]["_type"], found["N3"]["miles"]) == ("Floatplane", 7)
    (sea,) = rows(spark_jobs.objects(spark, fleet.toml, "Floatplane"))
    assert sea["floats"] == 4
    alone = rows(spark_jobs.objects(spark, fleet.toml, "Plane", subtypes=False))
    assert {r["tail"] for r in alone} == {"N1", "N2"}
    (flight,) = rows(spark_jobs.objects(spark, fleet.toml, "Leg"))
    assert bytes(flight["by"]["reference"]) == ref.raw
    joined = (
        spark_jobs.objects(spark, fleet.toml, "Leg")
        .alias("f")
        .join(spark_jobs.objects(spark, fleet.toml, "Plane").alias("a"), on=[_same("f.by.reference", "a._reference")])
    )
    assert [r["number"] for r in rows(joined.select("f.number"))] == [5]


def _same(left: str, right: str) -> Any:
    from pyspark.sql import functions as f

    return f.col(left) == f.col(right)


def stored(cluster: Cluster) -> dict[bytes, tuple[str, int, str]]:
    """Key → (partition, version, name of the type) of every aircraft, as the active nodes hold them."""
    info = DEFAULT.info(Plane)
    found = {}
    for table in cluster.tables():
        assert table.active is not None
        for one in cluster.stored(table.active.node, table.name):
            if one.key[:8] == info.family_id:
                found[one.ref] = (table.name, one.version, DEFAULT.info(one.value[:8]).name)
    return found


def seen(frame: DataFrame) -> dict[bytes, tuple[str, int, str]]:
    return {bytes(r["_reference"]): (r["_partition"], r["_version"], r["_type"]) for r in rows(frame)}


def folded(changes: list[dict[str, Any]]) -> dict[bytes, tuple[str, int, str]]:
    """What the changes lead to; each one fits what was there."""
    now: dict[tuple[str, str], dict[str, Any]] = {}
    for row in changes:
        key = (row["partition"], row["key"]["tail"])
        before = now.pop(key, None)
        assert row["replaced"] == (before and before["lsn"])
        assert row["before"] == (before and before["after"])
        if row["op"] != "delete":
            now[key] = row
    return {bytes(r["reference"]): (r["partition"], r["lsn"], r["type"]) for r in now.values()}


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Partition by partition; within one as they came."""
    return sorted(changes, key=lambda r: r["partition"])


def follow(spark: SparkSession, cluster: Cluster, checkpoint: Path) -> list[dict[str, Any]]:
    """What a streaming query with this checkpoint delivers up to now."""
    stream = spark_jobs.changes_stream(spark, cluster.toml, "Plane", max_offsets=40)
    found: list[dict[str, Any]] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: found.extend(rows(frame)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


@pytest.mark.feature("S2", "D4")
def test_objects_and_changes_through_a_failover_and_over_partitions(
    spark: SparkSession, fleet: Cluster, tmp_path: Path
) -> None:
    """What the frames show is what the nodes hold; the changes of the log lead there, each fitting what was; a stream
    tells the same ones, and goes on behind its checkpoint with what came since."""
    traffic(fleet, 60)
    fleet.kill("A")
    traffic(fleet, 30, 60)
    fleet.start("A")
    fleet.whole()
    assert seen(spark_jobs.objects(spark, fleet.toml, "Plane")) == stored(fleet)
    told = in_order(rows(spark_jobs.changes(spark, fleet.toml, "Plane")))
    assert folded(told) == stored(fleet)
    assert len({(r["partition"], r["epoch"]) for r in told}) > 3, "there was a failover"
    streamed = follow(spark, fleet, tmp_path / "checkpoint")
    assert in_order(streamed) == told
    traffic(fleet, 20, 90)
    all_told = in_order(rows(spark_jobs.changes(spark, fleet.toml, "Plane")))
    more = follow(spark, fleet, tmp_path / "checkpoint")
    assert len(more) > 15
    assert in_order(streamed + more) == all_told
    lsns = {r["_partition"]: r["_lsn"] for r in rows(spark_jobs.objects(spark, fleet.toml, "Plane"))}
    half = {name: lsn // 2 for name, lsn in lsns.items()}
    past = [r for r in told if r["lsn"] <= half[r["partition"]]]
    assert seen(spark_jobs.objects(spark, fleet.toml, "Plane", as_of_lsn=half)) == folded(past)
    moment = told[len(told) // 2]["time"]
    past = [r for r in told if r["time"] <= moment]
    at = spark_jobs.objects(spark, fleet.toml, "Plane", as_of_time=moment.replace(tzinfo=dt.UTC))
    assert seen(at) == folded(past)


@pytest.mark.long
@pytest.mark.feature("S2")
def test_a_trimmed_log(spark: SparkSession, short: Cluster, tmp_path: Path) -> None:
    """The objects are whole all the same; changes are those still kept; a stream begins at the snapshot, and says so
    when the log was trimmed beyond its checkpoint; a moment that is not kept is refused by name."""
    from pyspark.errors import PythonException, StreamingQueryException

    traffic(short, 200)
    wait(lambda: all(begin > 0 for begin, _ in log_bounds(short)), "both logs are trimmed", 120)
    assert seen(spark_jobs.objects(spark, short.toml, "Plane")) == stored(short)
    kept = in_order(rows(spark_jobs.changes(spark, short.toml, "Plane")))
    last = {r["partition"]: r["lsn"] for r in kept}
    streamed = follow(spark, short, tmp_path / "checkpoint")
    traffic(short, 6, 200)
    streamed = in_order(streamed + follow(spark, short, tmp_path / "checkpoint"))
    kept = in_order([*kept, *(r for r in streamed if r["lsn"] > last[r["partition"]])])
    assert len(streamed) >= 6
    for name in ("p-0", "p-1"):
        mine = [r for r in kept if r["partition"] == name]
        theirs = [r for r in streamed if r["partition"] == name]
        assert theirs == mine[len(mine) - len(theirs) :]
    with pytest.raises(PythonException, match=r"lsn 1 is not kept any more in p-\d: the earliest is lsn \d+"):
        rows(spark_jobs.objects(spark, short.toml, "Plane", as_of_lsn={"p-0": 1, "p-1": 1}))
    ends = [end for _, end in log_bounds(short)]
    traffic(short, 300, 206)
    wait(lambda: all(now[0] > end for now, end in zip(log_bounds(short), ends)), "trimmed beyond the checkpoint", 120)
    with pytest.raises(StreamingQueryException, match=r"(?i)data.*loss|out of range|missed|were lost"):
        follow(spark, short, tmp_path / "checkpoint")


@pytest.mark.feature("S2")
def test_what_cannot_be_asked_for_is_refused_by_name(spark: SparkSession, fleet: Cluster) -> None:
    with pytest.raises(UnknownTypeError, match="Plane"):
        spark_jobs.objects(spark, fleet.toml, "Plan")
    with pytest.raises(ConfigError, match="partition p-1 is given no lsn"):
        spark_jobs.objects(spark, fleet.toml, "Leg", as_of_lsn={"p-0": 3, "p-2": 1})
    with pytest.raises(ConfigError, match="partition q has no objects of Leg"):
        spark_jobs.objects(spark, fleet.toml, "Leg", as_of_lsn={"p-0": 3, "p-2": 1, "p-1": 1, "q": 1})
    with pytest.raises(ConfigError, match="has no time zone"):
        spark_jobs.objects(spark, fleet.toml, "Leg", as_of_time=dt.datetime(2026, 1, 1))  # noqa: DTZ001
