"""`python -m tests.mutants.run`: break the core in every known way and see that the simulation, or a model, notices.

Each mutant gets a process of its own and at most 2,000 seeds; one of a rule that only some histories need, 2,000 of
those. That it cannot run, by a name or an argument that does not exist, is no promise that was broken. The last line is
`caught N of N`; one survivor is exit 1: then the simulation is too kind, and it is the simulation that has to change.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.mutants import (  # noqa: F401 - they register themselves
    asked,
    first_traces,
    late,
    later,
    leases,
    listing,
    lives,
    living,
    merges,
    moves,
    mutants,
    outages,
    parted,
    policies,
    pushed_store,
    reads,
    remaps,
    shown,
    sites,
    state_hashes,
    stills,
    stopping,
    sync_sites,
    takeovers,
    traces,
    unlogged,
    votes,
    zones,
)
from tests.mutants.registry import MUTANTS

BLUNDERS = ("TypeError", "AttributeError", "NameError", "UnboundLocalError")
"""What the mutant fails of, where it was written for code that is another one by now."""


class Verdict(NamedTuple):
    """How long one mutant lived."""

    place: int
    seeds: int
    failure: str
    seconds: float
    blunder: str = ""
    """Of a seed that shows nothing."""


def hunt(place: int) -> Verdict:
    """Run seeds against a mutant until one fails. Runs in a process of its own."""
    mutant = MUTANTS[place]
    mutant.break_it()
    began, blunder = time.monotonic(), ""
    for played, seed in enumerate(mutant.seeds, 1):
        failure = mutant.play(seed)
        if any(name in failure for name in BLUNDERS):
            blunder = blunder or failure
        elif failure:
            return Verdict(place, played, failure, time.monotonic() - began)
    return Verdict(place, len(mutant.seeds), "", time.monotonic() - began, blunder)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="only mutants whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(argv)
    places = [i for i, m in enumerate(MUTANTS) if args.name in m.name]
    verdicts: list[Verdict] = []
    with (
        Progress(console=Console(stderr=True), transient=True) as progress,
        multiprocessing.get_context("fork").Pool(args.processes, maxtasksperchild=1) as pool,
    ):
        bar = progress.add_task("mutants", total=len(places))
        for verdict in pool.imap_unordered(hunt, places, chunksize=1):
            verdicts.append(verdict)
            progress.advance(bar)
    return report(sorted(verdicts))


def report(verdicts: list[Verdict]) -> int:
    table = Table("mutant", "rule", "seeds", "seconds", "found by")
    for v in verdicts:
        m = MUTANTS[v.place]
        table.add_row(m.name, m.rule, str(v.seeds), f"{v.seconds:.1f}", v.failure[:90] or f"SURVIVED {v.blunder[:80]}")
    Console(width=180).print(table)
    caught = sum(bool(v.failure) for v in verdicts)
    print(f"caught {caught} of {len(verdicts)}")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
