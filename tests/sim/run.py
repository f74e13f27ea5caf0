"""`python -m tests.sim.run --seeds N [--start S] [--also KIND:N] [--seed S -v]`: seeds, and the first broken promise.

Progress goes to stderr; the last line of stdout is one JSON document. A failing seed prints the line that replays it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

from tests.sim import (
    ballots,
    bank,
    goods,
    lasting,
    late,
    leases,
    lives,
    market,
    moves,
    outages,
    parted,
    patient,
    pushed_store,
    rough,
    shop,
    silences,
    stalls,
    stills,
    stopping,
    upgrading,
    zones,
)
from tests.sim.abroad import pair, story
from tests.sim.away import log_away
from tests.sim.faults import FAULTS, regroup
from tests.sim.world import World, is_away, is_grouped, is_less

OWN_RANGES = {
    "moves": moves.SEEDS,
    "banks": bank.SEEDS,
    "shops": shop.SEEDS,
    "lives": lives.SEEDS,
    "markets": market.SEEDS,
    "sites": pair.SEEDS,
    "late": late.SEEDS,
    "pushed": pushed_store.SEEDS,
    "rough": rough.SEEDS,
    "outages": outages.SEEDS,
    "twice": outages.TWICE,
    "parted": parted.SEEDS,
    "silences": silences.SEEDS,
    "stills": stills.SEEDS,
    "patient": patient.SEEDS,
    "stopping": stopping.SEEDS,
    "lasting": lasting.SEEDS,
    "upgrading": upgrading.SEEDS,
}
"""Histories of other kinds than those that seeds from 0 on play, and those of which there are few among these."""

FAULT_PHASE_MS = (200.0, 900.0)
LIVENESS_MS = 3_000.0
"""After healing: a few deadlines of every kind (see world.SETTINGS), one after the other."""


class Outcome(NamedTuple):
    """How a seed went."""

    seed: int
    failure: str
    counts: Counter[str]
    events: int
    lines: list[str]


def make_world(seed: int, *, verbose: bool = False) -> World:
    """A world of this seed: how many nodes and sync replicas, which faults, how unkind."""
    rng = random.Random(seed * 7919 + 1)
    names = ("A", "B", "C", "D")[: rng.choice((2, 3, 3, 3, 4))]
    keep = rng.choice((50_000, 50_000, 50_000, 5))
    world = World(
        seed,
        names=names,
        sync_replicas=rough.sync_replicas(seed, rng.choice((0, 1, 1, 2))),
        clients=rng.choice((1, 2, 4)),
        quota=30,
        keep=keep,
        calm=rng.random() < 0.3 or outages.is_calm(seed),
        verbose=verbose,
    )
    for n in names:
        world.engine.at(rng.choice((0.0, 0.0, 300.0)) * rng.random(), world.start, n)
    for c in world.clients:
        world.engine.at(30.0 + 60.0 * rng.random(), c.begin)
    kinds = stopping.played(seed, rng.sample(FAULTS, rng.randint(1, 5)))
    length = rng.uniform(*FAULT_PHASE_MS)
    for _ in range(rng.randint(1, 6) if not outages.is_calm(seed) else 0):
        world.engine.at(60.0 + rng.random() * (length - 60.0), rng.choice(kinds), world)
    if is_grouped(seed) and not (parted.given(seed) or silences.given(seed) or seed in outages.TWICE):
        for _ in range(world.operator.randint(0, 4)):
            world.engine.at(60.0 + world.operator.random() * (length - 60.0), regroup, world)
    if is_away(seed) or is_less(seed):
        world.engine.at(60.0 + world.operator.random() * (length - 60.0), log_away, world)
    if world.leased:
        length += leases.prepare(world, length)
    length += late.prepare(world, length)
    stopping.prepare(world, length)
    length += rough.prepare(world, length)
    length += world.outages.prepare(length)
    length += world.parted.prepare(length)
    length += world.silences.prepare(length)
    length += world.upgrade.prepare(length)
    if lasting.given(seed):
        length += lasting.prepare(world, length)
    if zones.given(seed):
        zones.prepare(world, length)
    lives.prepare(world, length)
    world.shown.prepare()
    world.stills.prepare()
    world.engine.at(length, _end_faults, world)
    world.fault_phase_ms = length
    return world


def _end_faults(world: World) -> None:
    world.heal()
    for c in world.clients:
        c.quota = 1
        c.begin()


KINDS: tuple[tuple[str, Any, Callable[[Any], None]], ...] = (
    ("bank", bank, ballots.finish),
    ("shop", shop, goods.finish),
    ("market", market, stalls.finish),
    ("patient", patient, ballots.finish),
)
"""Histories over several partitions: what makes them, and what judges them."""


def run_bank(seed: int, *, verbose: bool = False) -> Outcome:
    """Play a history over several partitions to its end."""
    name, module, finish = next(kind for kind in KINDS if seed in kind[1].SEEDS)
    made = module.make(seed, verbose=verbose)

    def play() -> None:
        made.engine.run(made.length)
        made.settle()
        finish(made)

    return _played(name, made, play, verbose=verbose)


def run_sites(seed: int, *, verbose: bool = False) -> Outcome:
    """Play a history of two sites to its end."""
    made = story.Story(seed, verbose=verbose)
    return _played("sites", made.pair, made.play, verbose=verbose)


def _played(name: str, made: Any, play: Callable[[], None], *, verbose: bool) -> Outcome:
    failure = ""
    try:
        play()
    except Exception as e:
        failure = f"{type(e).__name__}: {e}"
        if verbose:
            made.engine.lines.append(repr(e))
    counts = Counter({f"{name}: {what}": n for what, n in made.cover.counts.items()})
    return Outcome(made.seed, failure, counts, made.engine.events, made.engine.lines)


def run_seed(seed: int, *, verbose: bool = False) -> Outcome:
    """Play one seed to its end."""
    if any(seed in module.SEEDS for _, module, _ in KINDS):
        return run_bank(seed, verbose=verbose)
    if seed in pair.SEEDS:
        return run_sites(seed, verbose=verbose)
    world = make_world(seed, verbose=verbose)
    failure = ""
    try:
        with rough.tails(world), world.upgrade.versions():
            world.run(world.fault_phase_ms)
            world.settle(LIVENESS_MS)
            world.checks.finish()
    except Exception as e:  # any exception of the core is a finding
        if verbose:
            world.engine.lines.append(repr(e))
        failure = f"{type(e).__name__}: {e}"
        if verbose and not isinstance(e, AssertionError):
            raise
    return Outcome(seed, failure, world.cover.counts, world.engine.events, world.engine.lines)


def run_seeds(seeds: Iterable[int], processes: int = 1) -> Iterator[Outcome]:
    """Each seed's outcome; with several processes in any order."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=20)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument(
        "--also",
        metavar="KIND:N",
        action="append",
        default=[],
        type=_kind_and_count,
        help=f"and so many of a kind that has seeds of its own: {', '.join(OWN_RANGES)}",
    )
    parser.add_argument("--times", type=int, default=1, help="play so many times as many, of every kind")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the story of the seed")
    parser.add_argument("--step", type=int, default=1, help="every so many: 7 with --start 5 is local NO_SYNC only")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("-k", "--keep-going", action="store_true", help="go on after a failure")
    args = parser.parse_args(argv)
    first, count = (args.start, args.seeds * args.times) if args.seed is None else (args.seed, 1)
    also = [OWN_RANGES[kind][: number * args.times] for kind, number in args.also]
    seeds = [*range(first, first + count * args.step, args.step), *itertools.chain(*also)]
    if args.verbose and args.seed is not None:
        print("\n".join(run_seed(args.seed, verbose=True).lines))
    return _run(seeds, keep_going=args.keep_going, processes=args.processes)


def _kind_and_count(given: str) -> tuple[str, int]:
    kind, _, count = given.partition(":")
    if kind not in OWN_RANGES or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{given!r} is not one of {', '.join(OWN_RANGES)}, a colon and a number")
    return kind, int(count)


def _run(seeds: Sequence[int], *, keep_going: bool, processes: int) -> int:
    began, counts, failed, done, events = time.monotonic(), Counter[str](), 0, 0, 0
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        for outcome in run_seeds(seeds, processes):
            done += 1
            events += outcome.events
            counts.update(outcome.counts)
            progress.advance(bar)
            if outcome.failure:
                failed += 1
                print(f"{outcome.failure}\n  python -m tests.sim.run --seed {outcome.seed} -v")
                if not keep_going:
                    break
    seconds = time.monotonic() - began
    summary = {
        "seeds": done,
        "per_minute": round(done / seconds * 60),
        "failed": failed,
        "events_per_seed": round(events / max(done, 1)),
        "coverage": dict(sorted(counts.items())),
    }
    print(json.dumps(summary))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
