"""`python -m spark_jobs.rebalance`: which objects of a policy would belong elsewhere, and how many (S1).

Changes nothing: every object is shown to the mapper that the configuration names, with the changes that the options
make to it, and those it would place elsewhere are counted. Exit codes are those of `halog`: 0 also where objects would
move, 2 for a wrong call, else those of `halog.errors`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from halog.config import Config
from halog.errors import ConfigError, HalogError
from spark_jobs.finder import HOLD_MS, MAX_OFFSETS, Finder, Report, Tell
from spark_jobs.mover import DryRun
from spark_jobs.site import Site, connect


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), envvar="HALOG_CONFIG", default="halog.toml",
    show_default="./halog.toml or $HALOG_CONFIG", help="The cluster, and the mapping as it is to be.",
)  # fmt: skip
@click.option("--policy", required=True, help="Whose objects.")
@click.option("--to-ring-size", type=int, help="As if the ring had so many slots.")
@click.option("--to-partitions", type=int, help="As if the policy had so many partitions.")
@click.option("--to-mapper", help='As if this decided: consistent_hash, or "module:callable" of [application] modules.')
@click.option("--spark-master", default="local[*]", show_default=True, metavar="URL", help="Where it runs.")
@click.option(
    "--max-offsets", type=click.IntRange(min=1), default=MAX_OFFSETS, show_default=True, help="Rows of one micro-batch."
)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    config_path: Path,
    policy: str,
    to_ring_size: int | None,
    to_partitions: int | None,
    to_mapper: str | None,
    spark_master: str,
    max_offsets: int,
    format_: str,
) -> None:
    """Count the objects of a policy that would belong elsewhere: by the mapper in the file, changed by the options.

    \b
    Examples:
      python -m spark_jobs.rebalance --policy fleet --to-ring-size 131072
      python -m spark_jobs.rebalance --policy orders --to-mapper shop:by_region --format json
    """
    from spark_jobs.spark import session

    parts = {"ring_size": to_ring_size, "partitions": to_partitions, "mapper": to_mapper}
    with (
        connect(config_path) as site,
        _told() as tell,
        tempfile.TemporaryDirectory(prefix="halog-rebalance-") as checkpoint,
    ):
        wanted = changed(mapping_of(site, policy), policy, **parts)
        spark = session(spark_master, f"halog rebalance {policy}", modules=site.own.application.modules)
        try:
            counting = DryRun()
            finder = Finder(
                spark, site, wanted, policy, counting, Path(checkpoint),
                max_offsets=max_offsets, hold_ms=HOLD_MS, tell=tell,
            )  # fmt: skip
            _show(site, wanted, policy, finder.run(), counting, format_)
        finally:
            spark.stop()


def mapping_of(site: Site, policy: str) -> Config:
    """The file, where it says anything of the policy; else the active version."""
    return site.own if policy in site.own.policies else site.config


def changed(config: Config, policy: str, **parts: Any) -> Config:
    """The configuration with another mapping of one policy. ConfigError for what cannot be."""
    if policy not in config.policies:
        known = ", ".join(config.policies)
        raise ConfigError(f"{config.source}: there is no policy {policy}; there are {known}")
    given = {key: value for key, value in parts.items() if value is not None}
    if config.policies[policy].static and "partitions" in given:
        raise ConfigError(f"{config.source}: policies.{policy} names its partitions by hand: the file says how many")
    new = dataclasses.replace(config.policies[policy], **given)
    return dataclasses.replace(config, policies={**config.policies, policy: new}).validate()


@contextlib.contextmanager
def _told() -> Iterator[Tell]:
    """Progress on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting Spark")

        def tell(stage: str, partitions: int, rows: int) -> None:
            bar.update(task, description=f"{stage} topic, {partitions} partitions: {rows:,} objects looked at")

        yield tell


def _show(site: Site, wanted: Config, policy: str, report: Report, counting: DryRun, format_: str) -> None:
    moves = counting.by_target()
    mapping = wanted.policies[policy]
    document = {
        "policy": policy,
        "to": {"mapper": mapping.mapper, "partitions": mapping.partitions, "ring_size": mapping.ring_size},
        "rows": report.rows,
        "would_move": report.counts.get("would_move", 0),
        "partitions": {
            place.name: {"lsn": report.lsns[place.name], "would_move_to": moves.get(place.name, {})}
            for place in site.places_of([policy])
        },
        "batches": report.batches,
        "seconds": round(report.seconds, 1),
    }
    if format_ == "json":
        click.echo(json.dumps(document))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("partition", "read up to lsn", "would move", "to", title=None)
    for place in site.places_of([policy]):
        to = moves.get(place.name, {})
        where = ", ".join(f"{name} {n:,}" for name, n in sorted(to.items()))
        table.add_row(place.name, f"{report.lsns[place.name]:,}", f"{sum(to.values()):,}", where)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(
        f"{document['would_move']:,} objects would move; {report.rows:,} looked at, in {report.seconds:.1f} s"
    )


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command line; the exit code."""
    try:
        command.main(args=None if args is None else list(args), prog_name="spark_jobs.rebalance", standalone_mode=False)
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("halog: interrupted", err=True)
        return 130
    except HalogError as error:
        if os.environ.get("HALOG_DEBUG"):
            traceback.print_exc()
        click.echo(f"halog: {' '.join(error.message.split())}", err=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
