"""`changes_stream` gives the changes of a type as they come (S2).

Kafka's rows go through the accepted history of their partition (`spark_jobs.history`). Spark keeps the state of that in
its checkpoint beside the offsets, so a restarted query goes on exactly where it stood. Rows of one partition are put in
offset order first: Spark's grouping loses it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from halog.config import Config
from halog.core.log.records import Change
from halog.errors import LogError
from halog.ports import Entry, TopicPartition
from halog.runtime.host.snapshotter import load
from halog.runtime.rpc.pages import pieces
from spark_jobs import kafka
from spark_jobs.columns import arrow_schema, batch
from spark_jobs.history import History, HistoryState, Step
from spark_jobs.reader import BATCH_BYTES, NO_OBJECTS, by_partition, partitions
from spark_jobs.rows import Changes, change_schema
from spark_jobs.site import Family, connect
from spark_jobs.snapshot import Place, Readable, start_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW: Final = (
    "place int, epoch long, lsn long, offset long, time_ms long, tx binary, op int, ref binary, key binary, "
    "value binary, replaced long, before binary"
)
_RAW_NAMES: Final = [column.split()[0] for column in RAW.split(", ")]

Begin = dict[tuple[str, int], tuple[int, bytes]]
"""(topic, partition) → the first offset to read, and what is known there (`HistoryState`)."""


def changes_stream(
    spark: SparkSession,
    config: str | Path | Config,
    type_name: str,
    *,
    subtypes: bool = True,
    max_offsets: int | None = None,
) -> DataFrame:
    """Return the columns of `changes`, as a streaming DataFrame, in log order within each partition (S2).

    A new query begins where the log can be judged forwards: at its beginning, or, where that was trimmed, at the last
    snapshot. A restarted query begins where its checkpoint stands. It ends with an error if the log was trimmed beyond
    that: hold it (`halog log hold`), or begin with a new checkpoint. It also ends when a value comes whose definition
    the columns cannot show: start it again, and the columns are those of the newest definition.
    """
    with connect(config) as site:
        family = site.family(type_name, subtypes=subtypes)
    columns = change_schema(family)
    begin = begin_of(spark, family)
    offsets: dict[str, dict[int, int]] = {}
    for (topic, index), (offset, _) in begin.items():
        offsets.setdefault(topic, {})[index] = offset
    rows = kafka.stream(spark, family.kafka, offsets, max_offsets=max_offsets)
    raw = (
        rows.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS time_ms", "value")
        .groupBy("topic", "partition")
        .applyInPandasWithState(
            _Follow(family.places, begin), RAW, "carried binary", "append", GroupStateTimeout.NoTimeout
        )
    )
    return raw.mapInArrow(_Decode(family, arrow_schema(columns)), columns)


def begin_of(spark: SparkSession, family: Family) -> Begin:
    """Return where each partition's log is to be read from, found out by the executors.

    It is one record before what is needed, so that every partition has one, and its state is in the checkpoint from the
    first micro-batch on.
    """
    found = by_partition(spark, family.places).mapInArrow(_Begin(family), "place long, first long, carried binary")
    places = family.places
    return {(places[r.place].log, places[r.place].index): (r.first, bytes(r.carried)) for r in found.collect()}


class _Begin:
    """This is what an executor does for `begin_of`."""

    def __init__(self, family: Family) -> None:
        self.family = family

    def __call__(self, indices: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = {place.name: i for i, place in enumerate(self.family.places)}
        for log, place in partitions(self.family, indices):
            first, carried = first_of(log, place)
            yield pa.RecordBatch.from_pylist(
                [{"place": numbers[place.name], "first": first, "carried": carried.pack()}]
            )


def first_of(log: Readable, place: Place) -> tuple[int, HistoryState]:
    """Return the first offset to read, and what is known of the history behind it."""
    at, state = TopicPartition(place.log, place.index), TopicPartition(place.state, place.index)
    begin = log.bounds(at)[0]
    if begin == 0:
        return 0, start_of(place, None)
    carried = start_of(place, load(log, place.name, at, state, place.empty, NO_OBJECTS))
    return max(begin, carried.next_offset - 1), carried


class _Follow:
    """This takes one partition's rows of a micro-batch through its history."""

    def __init__(self, places: Sequence[Place], begin: Begin) -> None:
        self.names = {(p.log, p.index): (i, p.name) for i, p in enumerate(places)}
        self.begin = begin

    def __call__(self, key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterable[pd.DataFrame]:
        topic, index = key
        place, name = self.names[topic, index]
        first, known = self.begin[topic, index]
        history = History(HistoryState.unpack(bytes(state.get[0]) if state.exists else known))
        rows = [row for frame in frames for row in zip(frame["offset"], frame["time_ms"], frame["value"])]
        rows.sort(key=lambda row: row[0])
        expected = history.next_offset if state.exists else first
        steps: list[Step] = []
        for offset, time_ms, value in rows:
            if offset != expected:
                raise LogError(
                    f"the log of {name} is to be read on at offset {expected}, and what comes is {offset}: it was "
                    "trimmed, or the query's checkpoint began elsewhere; begin with a new checkpoint"
                )
            expected = offset + 1
            step = history.read(Entry(TopicPartition(topic, index), int(offset), bytes(value), int(time_ms)))
            if step is not None:
                steps.append(step)
        state.update((history.carried().pack(),))
        made = [raw_row(place, step, change) for step in steps for change in step.changes]
        yield pd.DataFrame(made, columns=_RAW_NAMES, dtype=object)


def raw_row(place: int, step: Step, change: Change) -> tuple[Any, ...]:
    """Return a change as the columns of `RAW`."""
    return (
        place,
        step.epoch,
        step.lsn,
        step.offset,
        step.time_ms,
        step.tx,
        change.op,
        change.ref,
        change.key,
        change.value,
        change.replaced,
        change.before,
    )


class _Decode:
    """This turns raw changes into typed rows."""

    def __init__(self, family: Family, schema: pa.Schema) -> None:
        self.family = family
        self.schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made: dict[int, Changes] = {}
        for raw in batches:
            rows = zip(*(column.to_pylist() for column in raw.columns))
            for some in pieces(rows, _size_of, BATCH_BYTES):
                yield batch(self.schema, list(itertools.chain.from_iterable(self._rows(made, row) for row in some)))

    def _rows(self, made: dict[int, Changes], row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        place, epoch, lsn, offset, time_ms, tx, op, ref, key, value, replaced, before = row
        changes = made.get(place)
        if changes is None:
            changes = made[place] = Changes(self.family, self.family.places[place].name)
        change = Change(op, ref, key, value, replaced, before)
        return changes.rows(Step(lsn, epoch, offset, time_ms, tx, (change,)))


def _size_of(row: tuple[Any, ...]) -> int:
    """Return the bytes of its values, before and after."""
    return len(row[9] or b"") + len(row[11] or b"")
