"""This module shows what a cluster holds and what happened to it, as typed DataFrames: `objects` and `changes` (S2).

They are lazy like any DataFrame. The topics are read when an action runs, one task for each partition, by the code a
node restores a copy with. So a query that is run again sees what is there then; what it shows of one partition is that
partition at one moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from halog.config import Config
from halog.errors import ConfigError, LogError
from halog.ports import TopicPartition
from halog.runtime.host.snapshotter import load
from halog.runtime.rpc.pages import pieces, size_of
from spark_jobs.columns import arrow_schema, batch
from spark_jobs.history import History, Step, steps_before
from spark_jobs.rows import Changes, Values, change_schema, object_rows, object_schema
from spark_jobs.site import Family, ReadOnlyLog, connect
from spark_jobs.snapshot import ATTEMPTS, NOW, Moment, Place, Readable, Trimmed, entries, objects_at, start_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH, BATCH_BYTES = 2_000, 16_000_000
"""Rows handed to Spark at once: half a megabyte of objects of 200 bytes. The bytes of what they are made of are
limited, too: Arrow takes 2 GB in a column."""
NO_OBJECTS = b"?" * 9
"""A prefix that hardly any key has: only the marker and what goes with it are wanted of the state topic."""


def objects(
    spark: SparkSession,
    config: str | Path | Config,
    type_name: str,
    *,
    as_of_lsn: Mapping[str, int] | None = None,
    as_of_time: dt.datetime | None = None,
    subtypes: bool = True,
) -> DataFrame:
    """Return every object of a type and, unless `subtypes` is False, of those derived from it (S2).

    Columns: the fields of the type's newest definition (`spark_jobs.columns` says as what), then `_type`, `_partition`,
    `_reference` (24 bytes), `_version` (the lsn that last changed the object) and `_lsn` (that of its partition's
    moment). The moment is now, or for each partition the lsn that `as_of_lsn` gives for it by name, or a time: with
    everything the broker had by then. One moment of several partitions may lie within a transaction over them.

    UnknownTypeError, ConfigError at once; RefusedError, when it is run, for a moment before what the log keeps.
    """
    if as_of_time is not None and as_of_lsn is not None:
        raise ConfigError("give as_of_lsn or as_of_time, not both")
    with connect(config) as site:
        family = site.family(type_name, subtypes=subtypes)
    columns = object_schema(family)
    work = _Objects(family, _moments(family, as_of_lsn, as_of_time), arrow_schema(columns))
    return by_partition(spark, family.places).mapInArrow(work, columns)


def changes(spark: SparkSession, config: str | Path | Config, type_name: str, *, subtypes: bool = True) -> DataFrame:
    """Return every change of a type's objects that the logs still hold, in log order within each partition (S2).

    Columns: `partition`, `epoch`, `lsn`, `offset`, `time` (the broker's), `tx` (16 bytes), `op` (create, update,
    delete), `type`, `reference`, `replaced` (the version before), `key`, `before` and `after` (structs of the newest
    definition's fields; `before` only where the policy keeps before-images). A transaction's changes have one `tx`;
    those of one over several partitions stand where it was decided.
    """
    with connect(config) as site:
        family = site.family(type_name, subtypes=subtypes)
    columns = change_schema(family)
    return by_partition(spark, family.places).mapInArrow(_Logged(family, arrow_schema(columns)), columns)


def by_partition(spark: SparkSession, places: Sequence[Place]) -> DataFrame:
    """Return one row, in a Spark partition of its own, for each of halog's partitions."""
    return spark.range(0, len(places), 1, len(places))


def _moments(family: Family, lsns: Mapping[str, int] | None, time: dt.datetime | None) -> dict[str, Moment]:
    names = [place.name for place in family.places]
    if time is not None:
        if time.utcoffset() is None:
            raise ConfigError(f"as_of_time={time}: has no time zone, so it is another moment on another machine")
        moment = Moment(time_ms=int(time.timestamp() * 1000))
        return dict.fromkeys(names, moment)
    if lsns is None:
        return dict.fromkeys(names, NOW)
    if odd := sorted(lsns.keys() ^ set(names)):
        what = "is given no lsn" if odd[0] in names else f"has no objects of {family.name}"
        raise ConfigError(f"as_of_lsn: partition {odd[0]} {what}; the type's partitions are {', '.join(names)}")
    if wrong := [name for name, lsn in lsns.items() if lsn < 0]:
        raise ConfigError(f"as_of_lsn: {lsns[wrong[0]]} for {wrong[0]}: lsns begin at 1; 0 is the empty beginning")
    return {name: Moment(lsn=lsn) for name, lsn in lsns.items()}


class _Objects:
    """This is what an executor does for `objects`."""

    def __init__(self, family: Family, moments: dict[str, Moment], schema: pa.Schema) -> None:
        self.family = family
        self.moments = moments
        self.schema = schema

    def __call__(self, indices: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        values = Values(self.family)
        for log, place in partitions(self.family, indices):
            at = objects_at(log, place, self.family.family_id, self.moments[place.name])
            for some in pieces(at.found.values(), size_of, BATCH_BYTES, BATCH):
                if rows := list(object_rows(values, place.name, at.lsn, some)):
                    yield batch(self.schema, rows)


class _Logged:
    """This is what an executor does for `changes`."""

    def __init__(self, family: Family, schema: pa.Schema) -> None:
        self.family = family
        self.schema = schema

    def __call__(self, indices: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for log, place in partitions(self.family, indices):
            made = Changes(self.family, place.name)
            for some in pieces(logged(log, place), step_size, BATCH_BYTES, BATCH):
                if rows := [row for step in some for row in made.rows(step)]:
                    yield batch(self.schema, rows)


def logged(log: Readable, place: Place) -> Iterator[Step]:
    """Yield what the log of a partition still holds, up to where it ends now. LogError if it is trimmed meanwhile."""
    at = TopicPartition(place.log, place.index)
    earlier, history = _kept(log, place)
    yield from earlier
    try:
        for entry in entries(log, at, history.next_offset, log.bounds(at)[1]):
            later = history.read(entry)
            if later is not None:
                yield later
    except Trimmed:
        raise LogError(f"the log of {place.name} was trimmed while it was read; hold it (`halog log hold`)") from None


def _kept(log: Readable, place: Place) -> tuple[list[Step], History]:
    """Return what the log still has in front of the snapshot's marker, if its beginning was trimmed, and how it goes
    on."""
    at, state = TopicPartition(place.log, place.index), TopicPartition(place.state, place.index)
    for _ in range(ATTEMPTS):
        begin = log.bounds(at)[0]
        if begin == 0:
            return [], History(start_of(place, None))
        history = History(start_of(place, load(log, place.name, at, state, place.empty, NO_OBJECTS)))
        try:
            return steps_before(entries(log, at, begin, history.next_offset), history.state), history
        except Trimmed:
            continue
    raise LogError(f"the log of {place.name} is trimmed faster than it is read; hold it (`halog log hold`)")


def partitions(family: Family, indices: Iterable[pa.RecordBatch]) -> Iterator[tuple[Readable, Place]]:
    """Yield, on an executor, the partitions that rows of `by_partition` name, each with a log to read it from."""
    log = ReadOnlyLog(family.kafka)
    try:
        for rows in indices:
            for index in rows.column(0).to_pylist():
                yield log, family.places[index]
    finally:
        log.close()


def step_size(step: Step) -> int:
    """Return the bytes of what its rows are made of."""
    return sum(len(c.key) + len(c.value or b"") + len(c.before or b"") for c in step.changes)
