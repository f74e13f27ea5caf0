"""What a run of the demo is asked to do. Plain values; `halog.cli.cluster.demo` fills them in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DROP_COMMIT = "drop-commit"
"""Sabotage: one transaction is journalled as acknowledged and never committed."""

ALL_ROWS = 336_776
"""Every flight that left New York in 2013."""


@dataclass(frozen=True)
class Options:
    """One run."""

    rows: int = 20_000  # three weeks; two and a half minutes on 2 cores, with all that happens on the way
    partitions: int = 12  # divides evenly over 2, 3 and 4 nodes
    data_dir: Path | None = None  # None: a temporary one, removed at the end
    seed: int = 1  # decides at which rows the nodes are hurt; the same seed, the same rows
    sabotage: str = ""
