"""`python -m spark_jobs.rebalance` shows which objects would belong elsewhere; with `--move`, they are moved (S1).

It is the driver program. `halog rebalance --spark` runs it in its own process, and a cluster's `spark-submit` can run
it anywhere. Without `--move` it changes nothing: every object is shown to the mapper that the configuration names, with
the changes that the options make to it, and those it would place elsewhere are counted. Exit codes are those of
`halog`: 0 also where objects would move, 2 for a wrong call, else those of `halog.errors`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from halog.config import Config
from halog.errors import ConfigError
from halog.runtime.remap import remap_request as wishes
from halog.runtime.remap.remap_request import RemapProgress
from spark_jobs import moving
from spark_jobs.command import checkpoints, default_master, format_option, run, session, spark_master_option, told
from spark_jobs.finder import HOLD_MS, MAX_OFFSETS, Finder
from spark_jobs.mover import DryRun
from spark_jobs.moving import MovingJob, MovingOutcome
from spark_jobs.node_mover import ATTEMPT_S
from spark_jobs.shown import show_counts, show_moves
from spark_jobs.site import Site, connect

WAIT_S = 3_600.0
"""How long a change is waited for: a million objects take some minutes. The nodes go on without the job."""
JOB = "rebalance"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="HALOG_CONFIG",
    default="halog.toml",
    show_default="./halog.toml or $HALOG_CONFIG",
    help="The file with the cluster, and the mapping as it is to be.",
)
@click.option("--policy", help="The policy whose objects are looked at, as fleet. Give this or --zone.")
@click.option("--zone", help="A zone: its policies whose mapping differs from the file's are looked at.")
@click.option("--move", "moves", is_flag=True, help="Bring the mapping to what the file says, and move the objects.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default="a temporary directory",
    help="With --move: where a job that was killed goes on from; of a zone, a directory in it for each policy.",
)
@click.option(
    "--timeout",
    "wait_s",
    type=click.FloatRange(min=0.05),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="With --move: wait this long for the nodes; they go on after it.",
)
@click.option("--to-ring-size", type=int, help="Count as if the ring had so many slots, as 131072.")
@click.option("--to-partitions", type=int, help="Count as if the policy had so many partitions, as 5.")
@click.option(
    "--to-mapper", help='Count as if this placed keys: consistent_hash, or "module:callable" of [application] modules.'
)
@spark_master_option
@click.option(
    "--max-offsets",
    type=click.IntRange(min=1),
    help="The most rows of one micro-batch.",
    show_default=f"{MAX_OFFSETS}; with --move {moving.MAX_OFFSETS}",
)
@format_option
def command(
    config_path: Path,
    policy: str | None,
    zone: str | None,
    moves: bool,
    checkpoint: Path | None,
    wait_s: float,
    to_ring_size: int | None,
    to_partitions: int | None,
    to_mapper: str | None,
    spark_master: str | None,
    max_offsets: int | None,
    format_: str,
) -> None:
    """Count the objects of a policy that would belong elsewhere: by the mapper in the file, changed by the options.
    With --move, change the mapping to what the file says, and have the nodes move them.

    \b
    Examples:
      python -m spark_jobs.rebalance --policy fleet --to-ring-size 131072
      python -m spark_jobs.rebalance --policy orders --to-mapper shop:by_region --format json
      python -m spark_jobs.rebalance --policy fleet --config new.toml --move --checkpoint var/rebalance
    """
    parts = {"ring_size": to_ring_size, "partitions": to_partitions, "mapper": to_mapper}
    given = {key: value for key, value in parts.items() if value is not None}
    if (policy is None) == (zone is None):
        raise click.UsageError("give --policy or --zone")
    if moves and given:
        raise click.UsageError("--to-… only counts; with --move the file says what is to be")
    if not moves and checkpoint is not None:
        raise click.UsageError("--checkpoint is for --move: nothing is lost when a count is made anew")
    master = default_master() if spark_master is None else spark_master
    if moves:
        move(config_path, policy, zone, master, checkpoint, wait_s, format_, max_offsets or moving.MAX_OFFSETS)
    else:
        count(config_path, policy, zone, master, format_, max_offsets or MAX_OFFSETS, **given)


# --- counting ---


def count(
    config_path: Path,
    policy: str | None,
    zone: str | None,
    master: str,
    format_: str,
    max_offsets: int = MAX_OFFSETS,
    **parts: Any,
) -> None:
    """Show what would move; `parts` of the mapping differ from the file."""
    with connect(config_path) as site, told() as say, checkpoints(None, JOB) as scratch:
        bar = _Bar(say)
        policies = _policies(site, policy, zone)
        wanted = {name: changed(mapping_of(site, name), name, **parts) for name in policies}
        found = []
        with _session(site, master, policies) as spark:
            for name, config in wanted.items():
                counting, there = DryRun(), scratch / name
                finder = Finder(
                    spark, site, config, name, counting, there, max_offsets=max_offsets, hold_ms=HOLD_MS, tell=bar.tell
                )
                found.append((name, config, finder.run(), counting))
        show_counts(site, found, format_, single=zone is None)


def mapping_of(site: Site, policy: str) -> Config:
    """Return the file's configuration if it says anything of the policy, else the active version's."""
    return site.own if policy in site.own.policies else site.config


def changed(config: Config, policy: str, **parts: Any) -> Config:
    """Return the configuration with another mapping of one policy. ConfigError for what cannot be."""
    if policy not in config.policies:
        known = ", ".join(config.policies)
        raise ConfigError(f"{config.source}: there is no policy {policy}; there are {known}")
    given = {key: value for key, value in parts.items() if value is not None}
    if config.policies[policy].static and "partitions" in given:
        raise ConfigError(f"{config.source}: policies.{policy} names its partitions by hand: the file says how many")
    new = dataclasses.replace(config.policies[policy], **given)
    return dataclasses.replace(config, policies={**config.policies, policy: new}).validate()


# --- moving ---


def move(
    config_path: Path,
    policy: str | None,
    zone: str | None,
    master: str,
    checkpoint: Path | None,
    wait_s: float,
    format_: str,
    max_offsets: int = moving.MAX_OFFSETS,
) -> None:
    """Bring the mapping to what the file says, and show what came of it."""
    with connect(config_path) as site, told() as say, checkpoints(checkpoint, JOB) as directory:
        bar = _Bar(say)
        policies = _policies(site, policy, zone)
        _check(site, policies)
        found: list[MovingOutcome] = []
        with _session(site, master, policies) as spark:
            for name in policies:
                there = directory if zone is None else directory / name
                job = MovingJob(site, spark, site.own, name, there, wait_s, max_offsets, tell=bar.tell, seen=bar.seen)
                found.append(job.run())
    show_moves(found, format_, single=zone is None)


def _check(site: Site, policies: Sequence[str]) -> None:
    """Check all of them, before Spark is started, and before anything is changed."""
    router = site.router(ATTEMPT_S)
    for name in policies:
        wishes.check(site.coordinator, router, site.own, name)


# --- both ---


def _policies(site: Site, policy: str | None, zone: str | None) -> list[str]:
    if zone is not None:
        return wishes.of_zone(site.coordinator, site.own, zone)
    assert policy is not None
    return [policy]


@contextlib.contextmanager
def _session(site: Site, master: str, policies: Sequence[str]) -> Iterator[Any]:
    """Hold a session while a command runs."""
    if not policies:  # a zone where nothing differs needs no session
        yield None
        return
    with session(master, f"halog rebalance {', '.join(policies)}", site.own.application.modules) as spark:
        yield spark


@dataclasses.dataclass(frozen=True)
class _Bar:
    """This shows what is told on stderr."""

    say: Callable[[str], None]

    def tell(self, stage: str, partitions: int, rows: int) -> None:
        """Show how far the finder is."""
        self.say(f"{stage} topic, {partitions} partitions: {rows:,} objects looked at")

    def seen(self, now: RemapProgress) -> None:
        """Show how far the change is."""
        self.say(f"{now.policy} {now.state}, {now.clean} of {now.partitions} partitions are done")


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line, and return the exit code."""
    return run(command, "spark_jobs.rebalance", args)


if __name__ == "__main__":
    sys.exit(main())
