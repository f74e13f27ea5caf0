"""This module has rows of a micro-batch as arrays, and packs what is found among them into one row (S1).

A job looks at an object's index key and its head: lsn (8), reference (24) and the id of the definition that wrote it
(8). Of what it finds it tells key, target and lsn. A row that goes from an executor to the driver costs Spark four
times what finding it does. So the findings of a batch are packed into one value, an Arrow stream with a column each.
Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.mover import Misplaced

OBJECT: Final = ord("k")
"""The first byte of the key of an object's row."""
HEAD_BYTES: Final = 40
_LSN_BYTES: Final = 8
TYPE_AT: Final = 32
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("target", pa.dictionary(pa.int32(), pa.string())),
        ("lsn", pa.int64()),
    ]
)

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


class Heads:
    """A `Heads` is a matrix of bytes: the heads of some objects."""

    def __init__(self, rows: Bytes) -> None:
        self.rows = rows

    @classmethod
    def of(cls, heads: Sequence[bytes]) -> Heads:
        """Make them from heads of `HEAD_BYTES` each."""
        return cls(np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEAD_BYTES))

    @property
    def of_one_type(self) -> bool:
        """Say whether one definition wrote all of them."""
        ids = self.rows[:, TYPE_AT:]
        return len(ids) > 0 and bool((ids == ids[0]).all())

    @property
    def type_id(self) -> bytes:
        """Return the type id of the first one."""
        return self.rows[0, TYPE_AT:].tobytes()

    def lsns(self, indices: Indices) -> pa.Array:
        """Return the lsns at these indices, as Arrow."""
        data = np.ascontiguousarray(self.rows[indices, :_LSN_BYTES]).view(">i8").ravel()
        return pa.array(data.astype(np.int64))


def heads_of(keys: pa.Array, values: pa.Array) -> Heads | None:
    """Return the heads of rows that are all objects that are there; None where one is not."""
    if not len(keys) or values.null_count:
        return None
    starts, data = _flat(values)
    key_starts, key_data = _flat(keys)
    if (np.diff(starts) != HEAD_BYTES).any() or (key_data[key_starts[:-1]] != OBJECT).any():
        return None
    return Heads(data[starts[0] : starts[-1]].reshape(-1, HEAD_BYTES))


def _flat(column: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return where each value begins, and all bytes."""
    _, starts, data = column.buffers()
    offsets = np.frombuffer(starts, np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(data, np.uint8)


def pack(keys: pa.Array, heads: Heads, mine: Indices, names: Sequence[str], targets: Indices) -> bytes:
    """Pack the objects of one type at the indices `mine`; `targets`: for each the index of its partition in `names`."""
    dictionary = pa.DictionaryArray.from_arrays(pa.array(targets.astype(np.int32)), pa.array(names, pa.string()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        columns = [keys.take(pa.array(mine)), dictionary, heads.lsns(mine)]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(packed: pa.Buffer, type_name: str, rows: int) -> Iterator[Misplaced]:
    """Yield the same objects, so many at a time."""
    with pa.ipc.open_stream(packed) as reader:
        for whole in reader:
            keys, targets, lsns = whole.columns
            names = targets.dictionary.to_pylist()
            placed = [names[i] for i in targets.indices.to_pylist()]
            yield from Misplaced(type_name, keys.to_pylist(), placed, lsns.to_pylist()).slices(rows)
