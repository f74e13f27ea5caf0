"""How long and how often to measure: the whole run, and a quick look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Durations in seconds; medians are over `runs`."""

    runs: int = 5  # a median that two bad runs cannot move
    runs_of_many: int = 9  # of many clients: their ratios scatter by a third, both sides want both CPUs
    seconds: float = 1.5  # 1,500 commits and more: the p99 stands on 15
    read_seconds: float = 1.0  # 200,000 reads
    load_objects: int = 60_000  # two seconds' worth
    restore_objects: int = 100_000
    restores: int = 3  # each takes four seconds
    found_objects: int = 1_000_000  # what Spark looks through: its seconds of beginning weigh little
    moved_objects: int = 20_000  # they move for longer than the commits beside them are counted
    touched_objects: int = 20_000  # at each of two sites, a transaction for each of them: a quarter of a minute
    missed: int = 10_000  # records a node misses while it is away: some seconds of full load
    kills: int = 20
    pauses: int = 5
    transfers: int = 100  # the target is a p99
    patience: int = 3  # rounds for each that counts, while the host takes the CPUs away (`calm`): an hour at worst
    quick: bool = False


FULL = Effort()
QUICK = Effort(
    runs=2,
    runs_of_many=2,
    seconds=0.7,
    read_seconds=0.5,
    load_objects=30_000,
    restore_objects=100_000,
    restores=1,
    found_objects=100_000,
    touched_objects=5_000,
    missed=5_000,
    kills=3,
    pauses=1,
    transfers=5,
    patience=1,
    quick=True,
)
