"""This module holds what a run of the demo is asked to do. `halog.cli.cluster.demo` fills in the plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DROP_COMMIT = "drop-commit"
"""This sabotage notes one transaction as acknowledged and never commits it."""

ALL_ROWS = 336_776
"""Every flight that left New York in 2013."""


@dataclass(frozen=True)
class Options:
    """Describes one run."""

    rows: int = 20_000  # three weeks; two and a half minutes on 2 cores, with all that happens on the way
    partitions: int = 12  # divides evenly over 2, 3 and 4 nodes
    data_dir: Path | None = None  # None: a temporary one, removed at the end
    seed: int = 1  # decides at which rows the nodes are hurt; the same seed, the same rows
    sabotage: str = ""
