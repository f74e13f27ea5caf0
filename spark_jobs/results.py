"""This module is what executors do with rows of `CLASSIFIED` for the node that merges: rows go in, records of
`restore.results` come out.

Nothing here knows Spark. A task has the rows of some partitions, each one's together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from halog.core.ids import digest
from restore.divergence import Place
from restore.replay import latest, name_of
from restore.results import FORMAT, BranchTransactions, DifferenceRow, Manifest, Pair, chunks_of, records_of
from spark_jobs.branching import INITIATING, SIDES, SOURCE, as_batches
from spark_jobs.history import History, HistoryState

RESULTS: Final = "place int, chunk binary, keys long, value binary"
RESULTS_SCHEMA: Final = pa.schema(
    [("place", pa.int32()), ("chunk", pa.binary()), ("keys", pa.int64()), ("value", pa.binary())]
)
"""A record: its place and chunk, and how many keys the chunk has, which stands in the chunk's first record only."""

ID_BYTES: Final = 16

_COLUMNS: Final = ("partition", "key", "kind", "base", "source", "initiating", "source_ids", "initiating_ids")


class Results:
    """`Results` takes rows of `CLASSIFIED`, and gives `RESULTS`. `places`: by name; `run`: of the job."""

    def __init__(self, places: Mapping[str, int], run: bytes) -> None:
        self.places = places
        self.run = run

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in _COLUMNS)))
        for name, some in itertools.groupby(rows, lambda row: row[0]):
            if name in self.places:
                for keys, chunk in chunks_of(told(row) for row in some):
                    yield from as_batches(RESULTS_SCHEMA, written(self.places[name], self.run, keys, chunk))


def told(row: tuple[Any, ...]) -> DifferenceRow:
    """Return a row in the form that travels."""
    _, key, kind, base, source, initiating, source_ids, initiating_ids = row
    return DifferenceRow(key, kind, _pair(base), _pair(source), _pair(initiating), source_ids, initiating_ids)


def _pair(state: Mapping[str, bytes | None] | None) -> Pair:
    if state is None:
        return None
    ref = state["ref"]
    assert ref is not None  # without a reference there is no struct
    return ref, state["value"]


def written(place: int, run: bytes, keys: int, chunk: bytes) -> list[tuple[int, bytes, int, bytes]]:
    """Return a chunk as rows of `RESULTS`."""
    name = digest(chunk)
    return [(place, name, 0 if i else keys, value) for i, value in enumerate(records_of(run, chunk))]


# --- the driver ---


class FollowedPartition(NamedTuple):
    """A `FollowedPartition` is one partition: how far each branch was followed, what happened in it, by side, and how
    transactions in doubt where the initiating one ends were decided."""

    ends: Mapping[int, HistoryState]
    happened: Mapping[int, Sequence[bytes]]
    decided: Mapping[bytes, bool]


def ids_of(happened: bytes) -> list[bytes]:
    """Return the ids in a row of `FOLDED` without a key."""
    return [bytes(happened[at : at + ID_BYTES]) for at in range(0, len(happened), ID_BYTES)]


def manifest(fork: Place, parted_at: bytes, followed: FollowedPartition, chunks: Mapping[bytes, int]) -> Manifest:
    """Return the manifest. `parted_at`: the hash of the record at the fork; `chunks`: by name, how many keys each
    has."""
    seen, closed = followed.ends[SOURCE].state, followed.ends[INITIATING].state
    ledger = History(followed.ends[INITIATING]).ledger
    known = {tx: d.commit for tx, d in ledger.decided.items()} | dict(followed.decided)
    late = [tx for tx, committed in followed.decided.items() if committed]
    ours, theirs = (tuple(latest(followed.happened[side])) for side in SIDES)
    settled = BranchTransactions(
        tuple(latest([*theirs, *late])), int.from_bytes(ledger.horizon, "big"), tuple(known.items())
    )
    return Manifest(
        FORMAT,
        name_of(closed),
        fork,
        parted_at,
        *seen.head,
        seen.hash,
        sum(chunks.values()),
        tuple(sorted(chunks)),
        BranchTransactions(ours),
        settled,
    )
