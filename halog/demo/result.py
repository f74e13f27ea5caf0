"""This module holds the demo's result: one document, exactly these keys."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class CopyCheck:
    """Holds what comparing copies found. `objects`: distinct objects, each held by every copy; `mismatches`: those that
    differ."""

    partitions: int = 0
    objects: int = 0
    mismatches: int = 0
    misplaced: int = 0
    """Objects in another partition than the mapper says, asked in plain Python."""


@dataclass(frozen=True)
class Latencies:
    """Holds milliseconds of `count` partitions: from a fault to the first newly begun acknowledged write, or of a
    write."""

    median: float | None = None
    worst: float | None = None
    count: int = 0

    @staticmethod
    def of(values: Iterable[float]) -> Latencies:
        """Return the latencies of one value per partition."""
        ms = sorted(values)
        return Latencies(round(statistics.median(ms), 1), round(ms[-1], 1), len(ms)) if ms else Latencies()


@dataclass(frozen=True)
class PlannedChange:
    """Holds a change that was made on purpose while the client went on. `at_s`: seconds after the demo's beginning;
    `seconds`: how long it took; `partitions`: how many moved to other nodes; `objects`: how many moved to other
    partitions; `pause_ms`: the slowest write of each partition meanwhile."""

    at_s: float | None = None
    seconds: float | None = None
    partitions: int = 0
    objects: int = 0
    pause_ms: Latencies = field(default_factory=Latencies)


@dataclass(frozen=True)
class RowCounts:
    """Counts rows replayed, by what became of the flight; `no_tail` counts across the others."""

    landed: int = 0
    cancelled: int = 0
    diverted: int = 0
    no_tail: int = 0


@dataclass(frozen=True)
class Result:
    """Holds what came out. Times are whole milliseconds except for the latencies; `throughput` is acknowledged
    transactions a second while the client ran, faults included."""

    ok: bool = False
    transactions: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    copies_equal: bool = False
    copies: CopyCheck = field(default_factory=CopyCheck)
    failover_ms: Latencies = field(default_factory=Latencies)
    frozen_ms: Latencies = field(default_factory=Latencies)
    restart_ms: int | None = None
    catch_up_ms: int | None = None
    join: PlannedChange = field(default_factory=PlannedChange)
    rebalance: PlannedChange = field(default_factory=PlannedChange)
    leave: PlannedChange = field(default_factory=PlannedChange)
    throughput: float = 0.0
    rows: RowCounts = field(default_factory=RowCounts)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--format json` prints."""
        return asdict(self)
