"""This module is what executors do for the finder: rows of the state and log topics go in, objects that belong
elsewhere come out.

In the state topic a row is an object. Which row of a key is the last one is known only at the end, but all of them
belong to the same place. In the log the accepted history decides (`spark_jobs.history`): its state comes with the task,
and goes back with its rows. A task has the rows of one topic partition, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halog.adapters.kafka.access import KafkaAccess
from halog.core.keys.directory import DIRECTORY, is_entry
from halog.errors import LogError
from halog.ports import Entry, TopicPartition
from halog.schema import Definition
from spark_jobs.history import History, HistoryState, Step
from spark_jobs.mover import Misplaced
from spark_jobs.packing import HEAD_BYTES, OBJECT, TYPE_AT, Heads, heads_of, pack, unpacked
from spark_jobs.placing import LONGEST, PlacementBasis, Placer
from spark_jobs.site import stored_as
from spark_jobs.snapshot import Place

FOUND, GONE, TOPIC, CARRIED, ROWS = range(5)
"""Kinds of rows. FOUND: objects of one type that belong elsewhere, packed (`spark_jobs.packing`), and how many. GONE:
an object that was deleted. TOPIC: a row of the state topic that is no object. CARRIED: the history behind these rows.
ROWS: how many objects were looked at."""

COLUMNS: Final = "kind int, place int, key binary, value binary, type string, target string, lsn long"
SCHEMA: Final = pa.schema(
    [
        ("kind", pa.int32()),
        ("place", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("type", pa.string()),
        ("target", pa.string()),
        ("lsn", pa.int64()),
    ]
)
BATCH = 20_000
"""How many rows are sent back at once: 2 MB."""
SLICE: Final = 50_000
"""How many keys are Python objects at the same time."""

STATE_COLUMNS: Final = ("partition", "key", "IF(substring(key, 1, 1) = X'6B', substring(value, 1, 40), value) AS value")
"""Only lsn, reference and type id of an object are sent to Python; of a marker and a ledger everything is."""
STATE_ROWS: Final = "substring(key, 1, 1) != X'74'"
"""Leaves out transaction ids, which are not looked at."""
LOG_COLUMNS: Final = ("partition", "offset", "value")

Row = tuple[int, int, bytes | None, bytes | None, str | None, str | None, int]


class Task(msgspec.Struct, frozen=True):
    """A `Task` is what every executor is given."""

    mapping: PlacementBasis
    stored: dict[bytes, str]
    """Type id → definition, as far as known when the job began."""
    places: dict[int, Place]
    """The partitions, by the index of their topic partition."""
    kafka: KafkaAccess
    schemas: str
    """The schemas topic."""

    def stored_as(self, type_id: bytes) -> Definition:
        """Return the definition that wrote an object; it is looked up in the schemas topic if it is newer than the
        job."""
        return stored_as(type_id, self.stored, self.kafka, self.schemas)


class FindInState:
    """`FindInState` takes rows of `STATE_COLUMNS`."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placer = Placer(self.task.mapping, self.task.stored_as)
        here: dict[int, _PartitionFindings] = {}
        for raw in batches:
            for index, rows in _runs(raw):
                at = here.get(index)
                if at is None:
                    at = here[index] = _PartitionFindings(index, self.task.places[index].name, placer)
                yield from at.stored(rows.column(1), rows.column(2))
        for at in here.values():
            yield from at.told()


def _runs(raw: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a batch by partition. A task has one partition, so this is the whole batch."""
    indices = raw.column(0).unique().to_pylist()
    if len(indices) == 1:
        yield indices[0], raw
        return
    for index in indices:
        yield index, raw.filter(pc.equal(raw.column(0), index))


class _PartitionFindings:
    """This collects what was seen of one partition.

    What belongs elsewhere leaves at once, in columns. A key may leave twice, and is told as gone at the end if it was
    deleted last.
    """

    def __init__(self, index: int, name: str, placer: Placer) -> None:
        self._index = index
        self._name = name
        self._placer = placer
        self._gone: set[bytes] = set()
        self._written: dict[bytes, bytes] = {}
        """What the log wrote: index key → head."""
        self._topic: dict[bytes, bytes | None] = {}
        self._count = 0

    def stored(self, keys: pa.Array, values: pa.Array) -> Iterator[pa.RecordBatch]:
        """Take rows of the state topic. Nearly always they are objects of one type, and are looked at as arrays."""
        heads = heads_of(keys, values)
        if heads is None or not heads.of_one_type:
            yield from self._stored(keys.to_pylist(), values.to_pylist())
            return
        indexed = pc.binary_slice(keys, 1, LONGEST)
        if self._gone:
            self._gone.difference_update(indexed.to_pylist())
        self._count += 0 if heads.type_id == DIRECTORY else len(keys)
        yield from self._elsewhere(heads.type_id, indexed, heads)

    def _stored(self, keys: list[bytes], values: list[bytes | None]) -> Iterator[pa.RecordBatch]:
        last = self._objects(keys, values)
        self._gone.difference_update(last)
        self._count += sum(head[TYPE_AT:HEAD_BYTES] != DIRECTORY for head in last.values())
        yield from self._by_type(last)

    def _by_type(self, last: dict[bytes, bytes]) -> Iterator[pa.RecordBatch]:
        """Yield objects of several types. If a key has had several types only the last one counts: told type by type,
        an older instance could come behind a newer one."""
        sorted_: dict[bytes, list[bytes]] = {}
        for key, head in last.items():
            sorted_.setdefault(head[TYPE_AT:HEAD_BYTES], []).append(key)
        for type_id, keys in sorted_.items():
            yield from self._elsewhere(type_id, pa.array(keys, pa.binary()), Heads.of([last[key] for key in keys]))

    def _objects(self, keys: list[bytes], values: list[bytes | None]) -> dict[bytes, bytes]:
        """Return index key → head, the last one of each; note the other rows."""
        last: dict[bytes, bytes | None] = {}
        for key, value in zip(keys, values):
            if key[0] == OBJECT:
                last[key[1:]] = value
            else:
                self._topic[key] = value
        self._gone.update([key for key, value in last.items() if value is None])
        return {key: value for key, value in last.items() if value is not None}

    def _elsewhere(self, type_id: bytes, keys: pa.Array, heads: Heads) -> Iterator[pa.RecordBatch]:
        """Yield the objects of one type that belong elsewhere, if there are any."""
        name = self._name
        if self._placer.stays(type_id, name):
            return
        way = self._placer.of(type_id)
        targets = way.places(keys)
        mine = np.flatnonzero(targets != way.place_of(name))
        if len(mine):
            packed = pack(keys, heads, mine, way.names, targets[mine])
            yield from _told([(FOUND, self._index, None, packed, way.type_name, None, len(mine))])

    def stepped(self, step: Step) -> None:
        """Take an accepted record of the log. Most have one object, so they are placed together, at the end."""
        lsn = step.lsn.to_bytes(8, "big")
        for change in step.changes:
            if change.value is None:
                self._gone.add(change.key)
                self._written.pop(change.key, None)
            else:
                self._count += not is_entry(change.key)
                self._gone.discard(change.key)
                self._written[change.key] = lsn + change.ref + change.value[:8]

    def told(self) -> Iterator[pa.RecordBatch]:
        """Yield what is to be told at the end."""
        index = self._index
        yield from self._by_type(self._written)
        yield from _told([(ROWS, index, None, None, None, None, self._count)])
        yield from _told([(TOPIC, index, key, value, None, None, 0) for key, value in self._topic.items()])
        yield from _told([(GONE, index, key, None, None, None, 0) for key in self._gone])


class FindInLog:
    """`FindInLog` takes rows of `LOG_COLUMNS`, and goes on from what is known of each partition's history."""

    def __init__(self, task: Task, carried: dict[int, bytes]) -> None:
        self.task = task
        self.carried = carried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placer = Placer(self.task.mapping, self.task.stored_as)
        here: dict[int, _Followed] = {}
        for raw in batches:
            for index, offset, value in zip(*(column.to_pylist() for column in raw.columns)):
                at = here.get(index)
                if at is None:
                    history = History(HistoryState.unpack(self.carried[index]))
                    at = here[index] = _Followed(
                        history, _PartitionFindings(index, self.task.places[index].name, placer)
                    )
                at.read(self.task.places[index], offset, value)
        for index, at in here.items():
            yield from at.here.told()
            yield from _told([(CARRIED, index, None, at.history.carried().pack(), None, None, 0)])


class _Followed(NamedTuple):
    history: History
    here: _PartitionFindings

    def read(self, place: Place, offset: int, value: bytes) -> None:
        if offset != self.history.next_offset:
            raise LogError(
                f"the log of {place.name} is to be read on at offset {self.history.next_offset}, and what comes is "
                f"{offset}; begin with another checkpoint directory"
            )
        step = self.history.read(Entry(TopicPartition(place.log, place.index), offset, value, 0))
        if step is not None:
            self.here.stepped(step)


def _told(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), BATCH):
        columns = zip(*rows[at : at + BATCH])
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class ExecutorFindings:
    """An `ExecutorFindings` is what executors gave back, by kind and partition."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def column(self, kind: int, name: str) -> list[Any]:
        """Return one column of the rows of a kind."""
        found: list[Any] = self._table.filter(pc.field("kind") == kind).column(name).to_pylist()
        return found

    def found(self, place: int, rows: int) -> Iterator[Misplaced]:
        """Yield what belongs elsewhere of a partition, so many objects at a time."""
        mine = self._of(FOUND, place)
        for packed, type_name in zip(mine.column("value"), mine.column("type")):
            yield from unpacked(packed.as_buffer(), type_name.as_py(), rows)

    def slices(self, kind: int, place: int, rows: int = SLICE) -> Iterator[pa.Table]:
        """Yield the rows of a kind and partition, some at a time: as Python objects they are ten times as large."""
        found = self._of(kind, place)
        for at in range(0, found.num_rows, rows):
            yield found.slice(at, rows)

    def _of(self, kind: int, place: int) -> pa.Table:
        return self._table.filter((pc.field("kind") == kind) & (pc.field("place") == place))
