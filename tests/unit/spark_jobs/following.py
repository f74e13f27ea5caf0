"""What the driver of a comparison does, without Spark, for tests of what its executors do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from halog.core.ids import digest
from halog.errors import LogError
from halog.ports import Entry
from restore.results import packed, records_of
from spark_jobs.branching import (
    FOLDED_SCHEMA,
    INITIATING,
    SIDES,
    Branch,
    BranchRelation,
    FoldBranch,
    Trace,
    TracedLog,
    as_batches,
    branch_of,
    parted,
    unpack_accepted,
)
from spark_jobs.classifying import Classify
from spark_jobs.history import HistoryState
from spark_jobs.in_doubt import Decide, decided_rows
from spark_jobs.results import FollowedPartition, Results, ids_of, manifest
from spark_jobs.snapshot import Place
from spark_jobs.waypoints import last_before, thinned

RUN = b"r" * 16


def pieces(things: Sequence[Any], cuts: list[int]) -> Iterator[Sequence[Any]]:
    bounds = [0, *sorted({c for c in cuts if c < len(things)}), len(things)]
    return (things[a:b] for a, b in itertools.pairwise(bounds) if a < b)


def rows(of: int, entries: list[Entry]) -> Iterator[pa.RecordBatch]:
    """As Spark gives them to executors."""
    names = ["side", "partition", "offset", "time_ms", "value"]
    columns: list[list[Any]] = [
        [of] * len(entries),
        [0] * len(entries),
        [e.offset for e in entries],
        [e.timestamp_ms for e in entries],
        [e.value for e in entries],
    ]
    if entries:
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=names)


class Job:
    """What the driver does, without Spark: micro-batches of so many records, carried from one to the next; from the
    logs' beginnings, or from where it is to `begin`."""

    def __init__(
        self,
        logs: Mapping[int, list[Entry]],
        of: Mapping[int, Place],
        size: int,
        begin: Mapping[int, HistoryState] | None = None,
    ) -> None:
        self.entries = logs
        self.of = of
        self.size = size
        self.places = {s: [(HistoryState(0, of[s].empty) if begin is None else begin[s]).pack()] for s in SIDES}
        self.before: dict[int, set[bytes]] = {}
        self.recovered: dict[int, list[Any]] = {s: [] for s in SIDES}
        self.gone: set[tuple[int, int, bytes]] = set()
        self.happened: dict[int, list[bytes]] = {s: [] for s in SIDES}
        self.decide: Decide | None = None
        """Of a job for who merges."""
        self.decided: dict[bytes, bool] = {}

    def run(self) -> tuple[BranchRelation, list[tuple[Any, ...]]]:
        for s in SIDES:
            for row in self._followed(s, Trace, BranchRelation(False, "", 0)):
                if row["recovered"] is not None:
                    self.recovered[s].append(unpack_accepted(row["recovered"]))
        traced = [TracedLog(HistoryState.unpack(self.places[s][-1]).state, self.recovered[s]) for s in SIDES]
        found = parted(traced, [self.of[s].site for s in SIDES])
        if not found.forked:
            return found, []
        places = {s: last_before(found.begin[s], self.places[s]) for s in SIDES}
        self.places = {s: [place] for s, place in places.items() if place is not None}
        if len(self.places) < len(SIDES):
            raise LogError("the histories parted before their snapshots")
        folded = [row for s in SIDES for row in self._followed(s, FoldBranch, found)]
        folded += self._late(found)
        told = {(row["side"], row["tx"]) for row in folded if row["tx"] is not None}
        some = {(row["side"], row["tx"]) for row in folded if row["tx"] is not None and row["key"] is not None}
        self.gone = {(0, s, tx) for s, tx in some if (1 - s, tx) in told}
        return found, [tuple(row.values()) for row in folded if row["key"] is not None]

    def _late(self, found: BranchRelation) -> list[dict[str, Any]]:
        """What was in doubt where the initiating branch ends."""
        if self.decide is None:
            return []
        of = self._branch(INITIATING, found)
        told = decided_rows({0: of}, self.decide)[0]
        self.decided = told.decided
        return [row for batch in as_batches(FOLDED_SCHEMA, told.rows) for row in batch.to_pylist()]

    def _branch(self, of: int, found: BranchRelation) -> Branch:
        entries = self.entries[of]
        end, at = entries[-1].offset + 1 if entries else 0, self.places[of][-1]
        return Branch(self.of[of], of, end, at, found.begin[of], found.fork, found.both[of], found.expected[of])

    def handed_on(
        self, found: BranchRelation, folded: list[tuple[Any, ...]], cuts: list[int]
    ) -> tuple[list[bytes], bytes]:
        """What a job leaves for who merges: values of records, and the manifest's name. In batches that end anywhere;
        some twice, some of others, and in no order."""
        ordered = sorted(folded, key=lambda row: (row[0], row[2], row[1], row[3]))
        batches = [b for some in pieces(ordered, cuts) for b in as_batches(FOLDED_SCHEMA, some)]
        classified = Classify(["p-0"], self.gone, three_way=True)(batches)
        rows = [row for batch in Results({"p-0": 0}, RUN)(classified) for row in batch.to_pylist()]
        chunks = {row["chunk"]: row["keys"] for row in rows if row["keys"]}
        ends = {s: HistoryState.unpack(self.places[s][-1]) for s in SIDES}
        (before,) = self.before[INITIATING]
        made = packed(manifest(found.fork, before, FollowedPartition(ends, self.happened, self.decided), chunks))
        values = [*(row["value"] for row in rows), *records_of(RUN, made)]
        return [*values[::-1], *records_of(b"another", b"thing"), b"no record", *values[:1]], digest(made)

    def _followed(self, of: int, work: Any, found: BranchRelation) -> Iterator[dict[str, Any]]:
        entries = self.entries[of]
        end = entries[-1].offset + 1 if entries else 0
        while (at := HistoryState.unpack(self.places[of][-1]).next_offset) < end:
            branch = self._branch(of, found)
            made = work({branch_of(0, of): branch})(rows(of, [e for e in entries if e.offset >= at][: self.size]))
            for row in (row for batch in made for row in batch.to_pylist()):
                if row["carried"] is None:
                    yield row
                else:
                    self.places[of] = [*thinned(self.places[of]), row["carried"]]
                    self.before.setdefault(of, set()).update({row.get("before")} - {None})
                    self.happened[of] += ids_of(row.get("ids") or b"")
