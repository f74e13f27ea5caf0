"""What executors do for the finder: rows of the state and log topics in, objects that belong elsewhere out.

Of the state topic a row is an object; which one of a key is the last is known at the end only, but all of them belong
to the same place. Of the log the accepted history decides (`spark_jobs.history`): its state comes with the task, and
goes back with its rows. A task has the rows of one topic partition, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from halog.core.directory import DIRECTORY, is_entry
from halog.errors import LogError
from halog.ports import Entry, TopicPartition
from halog.runtime.schemas import Definitions
from halog.schema import Definition
from spark_jobs.history import Carried, History, Step
from spark_jobs.placing import Mapping, Placer
from spark_jobs.site import ReadOnlyLog
from spark_jobs.snapshot import Place

FOUND, GONE, TOPIC, CARRIED, ROWS = range(5)
"""Kinds of rows: an object that belongs elsewhere; one that was deleted; a row of the state topic that is no object;
the history behind these rows; how many objects were looked at."""

COLUMNS: Final = "kind int, place int, key binary, value binary, type string, target string, lsn long"
SCHEMA: Final = pa.schema(
    [
        ("kind", pa.int32()), ("place", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
        ("type", pa.string()), ("target", pa.string()), ("lsn", pa.int64()),
    ]
)  # fmt: skip
BATCH = 20_000
"""Rows sent back at once: 2 MB."""
SLICE: Final = 50_000
"""Found objects that are Python objects at the same time: 20 MB."""

STATE_COLUMNS: Final = ("partition", "key", "IF(substring(key, 1, 1) = X'6B', substring(value, 1, 40), value) AS value")
"""Of an object only lsn, reference and type id are sent to Python; of a marker and a ledger everything."""
STATE_ROWS: Final = "substring(key, 1, 1) != X'74'"
"""Transaction ids are not looked at."""
LOG_COLUMNS: Final = ("partition", "offset", "value")

Row = tuple[int, int, bytes | None, bytes | None, str | None, str | None, int]


class Task(msgspec.Struct, frozen=True):
    """What every executor is given."""

    mapping: Mapping
    stored: dict[bytes, str]
    """Type id → definition, as far as known when the job began."""
    places: dict[int, Place]
    """By the index of their topic partition."""
    bootstrap: str
    schemas: str
    """Topic."""

    def stored_as(self, type_id: bytes) -> Definition:
        """What wrote an object; looked up in the schemas topic if it is newer than the job."""
        text = self.stored.get(type_id)
        if text is not None:
            return Definition.parse(text)
        log = ReadOnlyLog(self.bootstrap)
        try:
            return Definitions(log, self.schemas).find(type_id)
        finally:
            log.close()


class FindInState:
    """For rows of `STATE_COLUMNS`."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placer = Placer(self.task.mapping, self.task.stored_as)
        here: dict[int, _Here] = {}
        for raw in batches:
            for index, keys, values in _runs(raw):
                at = here.get(index)
                if at is None:
                    at = here[index] = _Here(index, self.task.places[index].name, placer)
                yield from at.stored(keys, values)
        for at in here.values():
            yield from at.told()


def _runs(raw: pa.RecordBatch) -> Iterator[tuple[int, list[bytes], list[bytes | None]]]:
    """The rows of a batch by partition. A task has one, so that this is the whole batch."""
    keys, values = raw.column(1).to_pylist(), raw.column(2).to_pylist()
    indices = raw.column(0).unique().to_pylist()
    if len(indices) == 1:
        yield indices[0], keys, values
        return
    at = raw.column(0).to_pylist()
    for index in indices:
        mine = [i for i, other in enumerate(at) if other == index]
        yield index, [keys[i] for i in mine], [values[i] for i in mine]


class _Here:
    """What was seen of one partition. What belongs elsewhere leaves at once, in columns; a key may leave twice, and is
    told as gone at the end if it was deleted last."""

    def __init__(self, index: int, name: str, placer: Placer) -> None:
        self._index, self._name, self._placer = index, name, placer
        self._gone: set[bytes] = set()
        self._written: dict[bytes, bytes] = {}
        """Of the log: index key → head."""
        self._topic: dict[bytes, bytes | None] = {}
        self._count = 0

    def stored(self, keys: list[bytes], values: list[bytes | None]) -> Iterator[pa.RecordBatch]:
        """Rows of the state topic."""
        if None in values or any(key[0] != _OBJECT for key in keys):
            keys, values = self._without_others(keys, values)
        heads: list[bytes] = values  # type: ignore[assignment]
        type_ids = {head[32:40] for head in heads}
        self._count += len(heads)
        if DIRECTORY in type_ids:
            self._count -= sum(head[32:40] == DIRECTORY for head in heads)
        indexed = [key[1:] for key in keys]
        if self._gone:
            self._gone.difference_update(indexed)
        if len(type_ids) == 1:
            yield self._elsewhere(type_ids.pop(), indexed, heads)
        else:
            yield from self._by_type(dict(zip(indexed, heads)))

    def _by_type(self, last: dict[bytes, bytes]) -> Iterator[pa.RecordBatch]:
        """Objects of several types. Of a key that has had several only the last one counts: told type by type, an
        older instance could come behind a newer one."""
        sorted_: dict[bytes, list[bytes]] = {}
        for key, head in last.items():
            sorted_.setdefault(head[32:40], []).append(key)
        for type_id, keys in sorted_.items():
            yield self._elsewhere(type_id, keys, [last[key] for key in keys])

    def _without_others(self, keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
        """The rows that are objects, the last one of each key; what else there is is noted."""
        last: dict[bytes, bytes | None] = {}
        for key, value in zip(keys, values):
            if key[0] == _OBJECT:
                last[key] = value
            else:
                self._topic[key] = value
        self._gone.update([key[1:] for key, value in last.items() if value is None])
        here = [(key, value) for key, value in last.items() if value is not None]
        return [key for key, _ in here], [value for _, value in here]

    def _elsewhere(self, type_id: bytes, keys: list[bytes], heads: list[bytes]) -> pa.RecordBatch:
        """Those of one type that belong elsewhere. A head is lsn (8), reference (24) and type id (8)."""
        name = self._name
        if self._placer.stays(type_id, name):
            return pa.RecordBatch.from_pylist([], schema=SCHEMA)
        type_name, place = self._placer.of(type_id)
        targets = list(map(place, keys))
        mine = [i for i, target in enumerate(targets) if target != name]
        n, number = len(mine), int.from_bytes
        columns = [
            pa.repeat(pa.scalar(FOUND, pa.int32()), n),
            pa.repeat(pa.scalar(self._index, pa.int32()), n),
            pa.array([keys[i] for i in mine], pa.binary()),
            pa.array([heads[i][8:32] for i in mine], pa.binary()),
            pa.repeat(pa.scalar(type_name, pa.string()), n),
            pa.array([targets[i] for i in mine], pa.string()),
            pa.array([number(heads[i][:8], "big") for i in mine], pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def stepped(self, step: Step) -> None:
        """An accepted record of the log: most have one object, so they are placed together, at the end."""
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
        """What is to be told at the end."""
        index = self._index
        yield from self._by_type(self._written)
        yield from _told([(ROWS, index, None, None, None, None, self._count)])
        yield from _told([(TOPIC, index, key, value, None, None, 0) for key, value in self._topic.items()])
        yield from _told([(GONE, index, key, None, None, None, 0) for key in self._gone])


_OBJECT = ord("k")


class FindInLog:
    """For rows of `LOG_COLUMNS`, from what is known of each partition's history."""

    def __init__(self, task: Task, carried: dict[int, bytes]) -> None:
        self.task, self.carried = task, carried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placer = Placer(self.task.mapping, self.task.stored_as)
        here: dict[int, _Followed] = {}
        for raw in batches:
            for index, offset, value in zip(*(column.to_pylist() for column in raw.columns)):
                at = here.get(index)
                if at is None:
                    history = History(Carried.unpack(self.carried[index]))
                    at = here[index] = _Followed(history, _Here(index, self.task.places[index].name, placer))
                at.read(self.task.places[index], offset, value)
        for index, at in here.items():
            yield from at.here.told()
            yield from _told([(CARRIED, index, None, at.history.carried().pack(), None, None, 0)])


class _Followed(NamedTuple):
    history: History
    here: _Here

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


class Told:
    """What executors gave back, by kind and partition."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def column(self, kind: int, name: str) -> list[Any]:
        """One column of the rows of a kind."""
        found: list[Any] = self._table.filter(pc.field("kind") == kind).column(name).to_pylist()
        return found

    def slices(self, kind: int, place: int, rows: int = SLICE) -> Iterator[pa.Table]:
        """The rows of a kind and partition, some at a time: as Python objects they are ten times as large."""
        found = self._table.filter((pc.field("kind") == kind) & (pc.field("place") == place))
        for at in range(0, found.num_rows, rows):
            yield found.slice(at, rows)
