"""`halog site metrics`: what a site knows of the others as numbers, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from halog.cli.options import config_option, timeout_option


class Family(NamedTuple):
    """A gauge, with a help text, and its samples: labels and value."""

    name: str
    help: str
    samples: list[tuple[Mapping[str, str], float]]


@click.command()
@config_option
@timeout_option
def metrics(config_path: Path, timeout_s: float) -> None:
    """Print how this site's mirrors stand and what has parted, for Prometheus.

    In the text format that a node exporter's textfile collector takes: run it from a timer, into a file. All are
    gauges. Exit code 0 whatever they say.

    \b
    Examples:
      halog site metrics
    """
    from halog.cli.connection import connect
    from halog.cli.parted import documents
    from halog.cli.sites import mirrors
    from halog.cli.with_home import with_home
    from halog.runtime.splits import parted

    with connect(config_path, timeout_s) as connection:
        config, tables = connection.config, with_home(connection, ())
        stands = mirrors(connection, [t for t in tables if t.owner])
        apart = documents(parted(connection.coordinator, tables))
    labels = {"cluster": config.cluster.name, "site": config.site.name}
    served = {"halog_site_partitions_served": len(tables) - len(stands), "halog_site_partitions_mirrored": len(stands)}
    families = [
        Family(name, "Partitions with a home that this site serves, or mirrors.", [(labels, value)])
        for name, value in served.items()
    ]
    click.echo(text([*families, *of_mirrors(labels, stands), *of_parted(labels, apart)]), nl=False)


def of_mirrors(labels: Mapping[str, str], stands: Iterable[Mapping[str, Any]]) -> list[Family]:
    """How far each mirror is."""
    lag = Family("halog_site_mirror_lag_seconds", "Time that records take from the other site's log to this one's.", [])
    behind = Family("halog_site_mirror_behind_records", "Entries of the other site's log that are not here yet.", [])
    still = Family("halog_site_mirror_stalled", "1: nothing is mirrored; `halog site lag` says why.", [])
    for m in stands:
        mine = {**labels, "partition": m["partition"], "other": m["site"]}
        still.samples.append((mine, 1 if m["why"] else 0))
        if m["behind"] is not None:
            lag.samples.append((mine, m["lag_ms"] / 1000))
            behind.samples.append((mine, m["behind"]))
    return [lag, behind, still]


def of_parted(labels: Mapping[str, str], apart: Iterable[Mapping[str, Any]]) -> list[Family]:
    """Where histories parted, and what each side has touched since."""
    told = Family("halog_site_parted", "1: two sites have both gone on with the partition.", [])
    fork = Family("halog_site_parted_fork_lsn", "The last lsn of both histories.", [])
    touched = Family("halog_site_parted_objects", "Objects touched since, here and there; at least so many.", [])
    bound = Family("halog_site_parted_objects_capped", "1: there are more objects than were counted.", [])
    age = Family("halog_site_parted_age_seconds", "How long ago that was counted.", [])
    for p in apart:
        mine = {**labels, "partition": p["partition"], "other": p["site"]}
        told.samples.append((mine, 1))
        if p["fork"] is not None:
            fork.samples.append((mine, p["fork"]["lsn"]))
        for side in ("here", "there"):
            if p[side] is not None:
                at = {**mine, "side": side}
                touched.samples.append((at, p[side]["objects"]))
                bound.samples.append((at, int(p[side]["at_least"])))
                age.samples.append((at, p[side]["age_s"]))
    return [told, fork, touched, bound, age]


def text(families: Iterable[Family]) -> str:
    """As Prometheus reads it; families without samples are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
        for labels, value in family.samples:
            told = ",".join(f'{name}="{_escaped(said)}"' for name, said in labels.items())
            lines.append(f"{family.name}{{{told}}} {value:.12g}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
