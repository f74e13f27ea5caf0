"""The demo's result: one document, exactly these keys."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Copies:
    """`objects` are distinct objects, each held by every copy; `mismatches` those that differ between two copies."""

    partitions: int = 0
    objects: int = 0
    mismatches: int = 0
    misplaced: int = 0
    """Objects in another partition than the mapper says, asked in plain Python."""


@dataclass(frozen=True)
class Spread:
    """Milliseconds of `count` partitions: from a fault to the first newly begun acknowledged write, or of a write."""

    median: float | None = None
    worst: float | None = None
    count: int = 0

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Of one value per partition."""
        ms = sorted(values)
        return Spread(round(statistics.median(ms), 1), round(ms[-1], 1), len(ms)) if ms else Spread()


@dataclass(frozen=True)
class Change:
    """What was changed on purpose while the client went on. `at_s`: seconds after the demo's beginning; `seconds`: how
    long it took; `partitions`: that moved to other nodes; `objects`: that moved to other partitions; `pause_ms`: the
    slowest write of each partition meanwhile."""

    at_s: float | None = None
    seconds: float | None = None
    partitions: int = 0
    objects: int = 0
    pause_ms: Spread = field(default_factory=Spread)


@dataclass(frozen=True)
class RowCounts:
    """Rows replayed, by what became of the flight; `no_tail` counts across the others."""

    landed: int = 0
    cancelled: int = 0
    diverted: int = 0
    no_tail: int = 0


@dataclass(frozen=True)
class Result:
    """What came out. Times are whole milliseconds but for the spreads; `throughput` is acknowledged transactions a
    second while the client ran, faults included."""

    ok: bool = False
    transactions: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    copies_equal: bool = False
    copies: Copies = field(default_factory=Copies)
    failover_ms: Spread = field(default_factory=Spread)
    frozen_ms: Spread = field(default_factory=Spread)
    restart_ms: int | None = None
    catch_up_ms: int | None = None
    join: Change = field(default_factory=Change)
    rebalance: Change = field(default_factory=Change)
    leave: Change = field(default_factory=Change)
    throughput: float = 0.0
    rows: RowCounts = field(default_factory=RowCounts)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As printed by `--format json`."""
        return asdict(self)
