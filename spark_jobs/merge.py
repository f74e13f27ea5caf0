"""This module finds what two sites that both went on contradict each other in: `classified`, and `python -m
spark_jobs.merge` (S1, M3).

It does at scale what `halog conflicts list` does in one process. It finds every key that either branch of a forked
partition touched behind the fork, with what stood there then, what each site made of it, and its kind by
`restore.merge`. It changes nothing at either site but the holds of their logs. With `--publish` the nodes of the source
get the findings, and merge by them (`publish`). Exit codes are those of `halog`: 0 also where there are conflicts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from halog.config import Config
from restore.merge import AGREED
from restore.plan import Totals
from spark_jobs.command import (
    checkpoints,
    default_master,
    format_option,
    run,
    session,
    spark_master_option,
    stdout,
    told,
)
from spark_jobs.comparison import MAX_OFFSETS, Comparison, ComparisonReport
from spark_jobs.counted import Group, totals_of
from spark_jobs.publishing import Publishing, PublishingOutcome
from spark_jobs.site import Site, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB: Final = "merge"
JSON, PARQUET = "json", "parquet"


def classified(
    spark: SparkSession,
    config: str | Path | Config,
    policy: str,
    *,
    source: str,
    checkpoint: str | Path,
    three_way: bool | None = None,
    max_offsets: int = MAX_OFFSETS,
) -> DataFrame:
    """Return every object of a policy that either of two sites has touched since their histories parted (S1, M3).

    Reads both sites' logs, up to where they end now, before it returns. What it found is in the directory `checkpoint`,
    and the DataFrame reads it whenever an action runs. If it was killed, a call with the same directory goes on; a call
    after it was done reads nothing. The initiating site is the configuration's own, `source` the other one. Without
    `three_way` they are compared as the policy's `comparison` says.

    Columns: `partition`, `key`, `kind` (`restore.merge.Kind`), `stands` (by default: source, initiating, or both where
    they are the same), `base`, `source`, `initiating` (structs of reference and value, null where nothing is there; a
    value is null where it is not known), and of each branch `…_lsn`, `…_time` (of its last write; null where it has not
    touched the object) and `…_txs`, the number of its transactions that touched it.

    ConfigError: there is no such site, the policy is at one site only, the directory is another job's; LogError: a log
    was trimmed, and its snapshot is behind the fork; DivergedError: the histories contradict themselves.
    """
    with connect(config) as site:
        comparison = Comparison(spark, site, policy, source, Path(checkpoint), max_offsets=max_offsets)
        comparison.run()
    return comparison.rows(three_way=_three_way(site, policy, three_way))


def publish(
    config: Path,
    policy: str,
    source: str,
    checkpoint: Path | None,
    *,
    names: Collection[str] = (),
    done: Collection[str] = (),
    master: str | None = None,
    max_offsets: int = MAX_OFFSETS,
) -> PublishingOutcome:
    """Compare the branches of these partitions (none named: all) and hand what was found to the nodes of the source.

    They merge by it when they are asked to (`halog restore --classified`). `done` were merged before. Starts Spark.
    """
    with connect(config) as site, told() as say, checkpoints(checkpoint, JOB) as directory:

        def tell(stage: str, partitions: int, records: int) -> None:
            say(f"{stage}, {partitions} partitions: {records:,} records read")

        where = default_master() if master is None else master
        with session(where, f"halog merge {policy}", site.own.application.modules) as spark:
            return Publishing(
                spark, site, policy, source, directory, names=names, done=done, max_offsets=max_offsets, tell=tell
            ).run()


def groups(rows: DataFrame) -> dict[str, list[Group]]:
    """Count rows of `classified` for `totals_of`, by partition."""
    found: dict[str, list[Group]] = {}
    counted = (
        rows.selectExpr(
            "partition",
            "kind",
            "stands",
            "source_txs > 0 AS ours",
            "initiating_txs > 0 AS theirs",
            "source_txs + initiating_txs AS txs",
        )
        .groupBy("partition", "kind", "stands", "ours", "theirs")
        .agg({"txs": "sum", "*": "count"})
        .selectExpr("partition", "kind", "stands", "ours", "theirs", "`count(1)` AS n", "`sum(txs)` AS txs")
    )
    for row in counted.collect():
        found.setdefault(row.partition, []).append(Group(row.kind, row.stands, row.ours, row.theirs, row.n, row.txs))
    return found


def _three_way(site: Site, policy: str, said: bool | None) -> bool:
    """Say whether to compare with the common ancestor: as the policy says, unless the caller says otherwise."""
    return not site.config.policies[policy].two_way if said is None else said


# --- the command ---


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="HALOG_CONFIG",
    default="halog.toml",
    show_default="./halog.toml or $HALOG_CONFIG",
    help="The file with the cluster, of the initiating site.",
)
@click.option("--policy", required=True, help="The policy whose partitions are compared, as flights.")
@click.option(
    "--source",
    required=True,
    metavar="SITE",
    help="The other site, as east. Where nothing else decides, its data stands.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="The directory to write what was found into."
)
@click.option(
    "--as",
    "as_",
    type=click.Choice([JSON, PARQUET]),
    default=JSON,
    show_default=True,
    help="The form of what --out writes.",
)
@click.option("--all", "everything", is_flag=True, help="Write objects that only one site has touched, too.")
@click.option(
    "--two-way/--three-way",
    "two_way",
    default=None,
    help="Objects are compared without the common ancestor, or with it.  [default: as the policy's `comparison` says]",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default="a temporary directory",
    help="The directory that a job which was killed goes on from, as /var/tmp/merge-1.",
)
@spark_master_option
@click.option(
    "--publish",
    "for_nodes",
    is_flag=True,
    help="Hand what was found to the nodes of SOURCE, which merge by it. This site's branches must be closed.",
)
@click.option(
    "--partition", "names", multiple=True, metavar="NAME", help="Compare only this partition, as flights-0; repeatable."
)
@click.option(
    "--max-offsets",
    type=click.IntRange(min=1),
    default=MAX_OFFSETS,
    show_default=True,
    help="One micro-batch has so many records of each site at most.",
)
@format_option
def command(
    config_path: Path,
    policy: str,
    source: str,
    out: Path | None,
    as_: str,
    everything: bool,
    two_way: bool | None,
    checkpoint: Path | None,
    spark_master: str | None,
    for_nodes: bool,
    names: tuple[str, ...],
    max_offsets: int,
    format_: str,
) -> None:
    """Find what this site's history of a policy and that of site SOURCE contradict each other in, since they parted.

    Reads both sites' logs and changes neither. With --out every conflict is written: its object, what stood there when
    they parted, what each site made of it, when, and what stands by default. With --publish nothing is shown: what was
    found goes to the nodes of SOURCE, for `halog restore --classified`.

    \b
    Examples:
      python -m spark_jobs.merge --policy flights --source east
      python -m spark_jobs.merge --policy flights --source east --out var/conflicts --checkpoint var/merge
      python -m spark_jobs.merge --policy flights --source east --out var/touched --all --as parquet
      python -m spark_jobs.merge --policy flights --source east --publish --checkpoint var/merge
    """
    if for_nodes:
        if out is not None or everything or two_way is not None:
            raise click.UsageError("--publish writes neither --out nor --all, and is for merges by either rule")
        outcome = publish(
            config_path, policy, source, checkpoint, names=names, master=spark_master, max_offsets=max_offsets
        )
        show_published(outcome, format_)
        return
    if out is not None and checkpoint is None:
        raise click.UsageError("--out needs --checkpoint, which says what may be written over")
    master = default_master() if spark_master is None else spark_master
    with connect(config_path) as site, told() as say, checkpoints(checkpoint, JOB) as directory:

        def tell(stage: str, partitions: int, records: int) -> None:
            say(f"{stage}, {partitions} partitions: {records:,} records read")

        with session(master, f"halog merge {policy}", site.own.application.modules) as spark:
            comparison = Comparison(
                spark, site, policy, source, directory, names=names, max_offsets=max_offsets, tell=tell
            )
            report = comparison.run()
            say("classifying")
            said = None if two_way is None else not two_way
            rows = comparison.rows(three_way=_three_way(site, policy, said)).persist()
            if out is not None:
                comparison.writes(out)
                write(rows, out, as_, everything=everything)
            counted = groups(rows)
        show(document(report, counted), format_)


def write(rows: DataFrame, out: Path, as_: str, *, everything: bool) -> None:
    """Write every key once, over what was written there before. Spark puts `_SUCCESS` there when all is written."""
    if not everything:
        agreed = ", ".join(f"'{kind.value}'" for kind in AGREED)
        rows = rows.where(f"kind NOT IN ({agreed})")
    if as_ == PARQUET:
        rows.write.mode("overwrite").parquet(str(out))
    else:
        rows.selectExpr(*_READABLE).write.mode("overwrite").option("ignoreNullFields", "false").json(str(out))


def _hex(column: str) -> str:
    return f"lower(hex({column}))"


def _hexed(state: str) -> str:
    both = f"named_struct('ref', {_hex(f'{state}.ref')}, 'value', {_hex(f'{state}.value')})"
    return f"IF({state} IS NULL, NULL, {both}) AS {state}"


_READABLE: Final = [
    "partition",
    f"{_hex('key')} AS key",
    "kind",
    "stands",
    *map(_hexed, ("base", "source", "initiating")),
    "source_lsn",
    "source_time",
    "source_txs",
    "initiating_lsn",
    "initiating_time",
    "initiating_txs",
]


def document(report: ComparisonReport, counted: Mapping[str, Sequence[Group]]) -> dict[str, Any]:
    """Return what came of it."""
    partitions = [
        {
            "partition": name,
            "histories": parted.histories,
            "fork_lsn": parted.lsn,
            **as_dict(totals_of(counted.get(name, ()))),
        }
        for name, parted in report.partitions.items()
    ]
    whole = totals_of(group for some in counted.values() for group in some)
    return {
        "partitions": partitions,
        "totals": as_dict(whole),
        "batches": report.batches,
        "seconds": round(report.seconds, 1),
    }


def as_dict(counted: Totals) -> dict[str, Any]:
    """Return `restore.plan.Totals`, with texts for its kinds and fates."""
    conflicts = {kind.value: n for kind, n in counted.conflicts.items()}
    writes = {fate.value: n for fate, n in counted.writes.items()}
    return {**counted._asdict(), "conflicts": conflicts, "writes": writes}


def show(found: dict[str, Any], format_: str) -> None:
    """Show it on stdout: a table for people, or one JSON document."""
    if format_ == "json":
        click.echo(json.dumps(found))
        return
    table = Table("partition", "histories", "parted behind lsn", "objects touched", "conflicts", "what")
    for one in found["partitions"]:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(one["conflicts"].items()))
        counts = [f"{one['fork_lsn']:,}", f"{one['keys']:,}", f"{sum(one['conflicts'].values()):,}"]
        table.add_row(one["partition"], one["histories"], *counts, kinds)
    console = stdout()
    console.print(table)
    writes = ", ".join(f"{n:,} {fate}" for fate, n in found["totals"]["writes"].items())
    console.print(f"of the writes of both by default: {writes or 'none'}; in {found['seconds']:.1f} s")


def show_published(outcome: PublishingOutcome, format_: str) -> None:
    """Show on stdout how many objects of each partition were handed on."""
    report = outcome.report
    if format_ == "json":
        keys = [{"partition": name, "keys": n} for name, n in outcome.keys.items()]
        click.echo(json.dumps({"published": keys, "batches": report.batches, "seconds": round(report.seconds, 1)}))
        return
    table = Table("partition", "histories", "parted behind lsn", "objects handed on")
    for name, one in report.partitions.items():
        n = f"{outcome.keys[name]:,}" if name in outcome.keys else ""
        table.add_row(name, one.histories, f"{one.lsn:,}", n)
    stdout().print(table)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line, and return the exit code."""
    return run(command, "spark_jobs.merge", args)


if __name__ == "__main__":
    sys.exit(main())
