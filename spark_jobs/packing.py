"""Rows of a micro-batch as arrays, and what is found among them as one row (S1).

Of a stored object a job looks at its index key and its head: lsn (8), reference (24) and the id of the definition that
wrote it (8). A row that goes from an executor to the driver costs Spark four times what finding it does; so what is
found of a batch is packed: one value, an Arrow stream with a column each. Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.mover import Misplaced

OBJECT: Final = ord("k")
"""What the key of an object's row begins with."""
HEAD_BYTES: Final = 40
_REF_AT: Final = 8
TYPE_AT: Final = 32
_SCHEMA: Final = pa.schema(
    [
        ("reference", pa.binary(TYPE_AT - _REF_AT)), ("key", pa.binary()),
        ("target", pa.dictionary(pa.int32(), pa.string())), ("lsn", pa.int64()),
    ]
)  # fmt: skip

Bytes = npt.NDArray[np.uint8]


class Heads:
    """Of some objects, as a matrix of bytes."""

    def __init__(self, rows: Bytes) -> None:
        self.rows = rows

    @classmethod
    def of(cls, heads: Sequence[bytes]) -> Heads:
        """Of `HEAD_BYTES` each."""
        return cls(np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEAD_BYTES))

    @property
    def of_one_type(self) -> bool:
        """Were all written by one definition?"""
        ids = self.rows[:, TYPE_AT:]
        return len(ids) > 0 and bool((ids == ids[0]).all())

    @property
    def type_id(self) -> bytes:
        """The first one's."""
        return self.rows[0, TYPE_AT:].tobytes()

    def take(self, indices: Sequence[int]) -> Heads:
        """Those, in this order."""
        return Heads(self.rows[np.asarray(indices, np.int64)])

    def references(self) -> pa.Array:
        """As Arrow."""
        data = np.ascontiguousarray(self.rows[:, _REF_AT:TYPE_AT])
        return pa.Array.from_buffers(pa.binary(TYPE_AT - _REF_AT), len(data), [None, pa.py_buffer(data)])

    def lsns(self) -> pa.Array:
        """As Arrow."""
        data = np.ascontiguousarray(self.rows[:, :_REF_AT]).view(">i8").ravel()
        return pa.array(data.astype(np.int64))


def heads_of(keys: pa.Array, values: pa.Array) -> Heads | None:
    """Of rows of which each is an object that is there; None where one is not."""
    if not len(keys) or values.null_count:
        return None
    starts, data = _flat(values)
    key_starts, key_data = _flat(keys)
    if (np.diff(starts) != HEAD_BYTES).any() or (key_data[key_starts[:-1]] != OBJECT).any():
        return None
    return Heads(data[starts[0] : starts[-1]].reshape(-1, HEAD_BYTES))


def _flat(column: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Where each value begins, and all bytes."""
    _, starts, data = column.buffers()
    offsets = np.frombuffer(starts, np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(data, np.uint8)


def pack(keys: pa.Array, heads: Heads, targets: Sequence[str]) -> bytes:
    """Objects of one type and the partitions they belong to."""
    columns = [heads.references(), keys, pa.array(targets, pa.string()).dictionary_encode(), heads.lsns()]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(packed: pa.Buffer, type_name: str, rows: int) -> Iterator[list[Misplaced]]:
    """The same objects, so many at a time."""
    with pa.ipc.open_stream(packed) as reader:
        for whole in reader:
            for at in range(0, whole.num_rows, rows):
                some = whole.slice(at, rows)
                references, keys, targets, lsns = some.columns
                names = targets.dictionary.to_pylist()
                placed = [names[i] for i in targets.indices.to_pylist()]
                columns = references.to_pylist(), keys.to_pylist(), repeat(type_name), placed, lsns.to_pylist()
                yield list(map(Misplaced._make, zip(*columns)))
