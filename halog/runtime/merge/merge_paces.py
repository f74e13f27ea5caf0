"""Says how often a node looks for restores, and how long each of their steps may take.

A node goes by `PACES`. Whoever cannot wait for them gives others to `halog.testing.cluster.Cluster`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class MergePaces(NamedTuple):
    """Holds the paces of the restores on one node. Those that end with `_s` are in seconds."""

    look_s: float = 0.3
    """It is looked this often whether a restore is asked for."""
    at_once: int = 4
    """So many partitions are merged at the same time: while one waits for its log, another one compares."""
    close_s: float = 30.0
    """The other site has so long to close its branch: its nodes end their epochs, and fence their log."""
    stale_s: float = 15 * 60.0
    """Nobody waits any more for a restore that was asked for so long ago: the partition was served elsewhere, or
    nowhere."""
    settle_s: float = 30.0
    """Transactions over several partitions have so long to be decided and confirmed, in attempts of two seconds."""
    slow_s: float = 30.0
    """All triggers of one partition, which serves nobody meanwhile, have so long: 10,000 conflicts at 3 ms each."""
    hangs_s: float = 40.0
    """A trigger that was asked before `slow_s` was over must answer within this time."""


PACES: Final = MergePaces()
