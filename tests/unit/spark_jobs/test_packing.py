"""Rows of a micro-batch as arrays: the same objects come out that went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from spark_jobs.mover import Misplaced
from spark_jobs.packing import HEAD_BYTES, Heads, heads_of, pack, unpacked

pytestmark = pytest.mark.feature("S1")

HEADS = st.tuples(st.integers(0, 2**63 - 1), st.binary(min_size=24, max_size=24), st.binary(min_size=8, max_size=8))
NAMES = ["p-0", "p-1", "ä"]
OBJECTS = st.lists(st.tuples(st.binary(max_size=20), HEADS, st.sampled_from(NAMES)), min_size=1, max_size=30)


def head(lsn: int, reference: bytes, type_id: bytes) -> bytes:
    return lsn.to_bytes(8, "big") + reference + type_id


@given(OBJECTS, st.integers(1, 40), st.integers(0, 3))
def test_what_is_packed_is_unpacked(
    objects: list[tuple[bytes, tuple[int, bytes, bytes], str]], rows: int, skip: int
) -> None:
    """Of a batch that is a slice of a larger one, as Arrow's are."""
    keys = pa.array([b"k" + key for key, _, _ in objects], pa.binary()).slice(skip)
    heads = pa.array([head(*its) for _, its, _ in objects], pa.binary()).slice(skip)
    mine = objects[skip:]
    found = heads_of(keys, heads)
    if not mine:
        assert found is None
        return
    assert found is not None
    types = {its[2] for _, its, _ in mine}
    assert found.of_one_type is (len(types) == 1)
    assert found.type_id == mine[0][1][2]
    targets = np.array([NAMES.index(target) for _, _, target in mine])
    packed = pack(pa.array([key for key, _, _ in mine], pa.binary()), found, np.arange(len(mine)), NAMES, targets)
    chunks = list(unpacked(pa.py_buffer(packed), "Order", rows))
    assert all(0 < len(chunk) <= rows and chunk.type_name == "Order" for chunk in chunks)
    assert [one for chunk in chunks for one in zip(chunk.keys, chunk.targets, chunk.lsns, strict=True)] == [
        (key, target, its[0]) for key, its, target in mine
    ]


def test_only_the_rows_that_are_taken_are_packed() -> None:
    heads = Heads.of([head(i, bytes([i]) * 24, b"t" * 8) for i in range(5)])
    keys = pa.array([b"%d" % i for i in range(5)], pa.binary())
    packed = pack(keys, heads, np.array([1, 4]), ["p-0", "p-1"], np.array([1, 0]))
    assert list(unpacked(pa.py_buffer(packed), "T", 10)) == [Misplaced("T", [b"1", b"4"], ["p-1", "p-0"], [1, 4])]


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([], []),
        ([b"k1", b"k2"], [b"x" * HEAD_BYTES, None]),
        ([b"k1", b"m"], [b"x" * HEAD_BYTES, b"x" * HEAD_BYTES]),
        ([b"k1", b"l1"], [b"x" * HEAD_BYTES, b"x" * (HEAD_BYTES + 1)]),
    ],
)
def test_rows_that_are_not_all_objects_are_not_looked_at_as_arrays(
    keys: list[bytes], values: list[bytes | None]
) -> None:
    assert heads_of(pa.array(keys, pa.binary()), pa.array(values, pa.binary())) is None
