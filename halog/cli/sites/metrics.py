"""This module has the command `halog site metrics`. It prints what a site knows of the others and of its copies as
numbers, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from halog.cli.shared.options import config_option, timeout_option

if TYPE_CHECKING:
    from halog.cli.shared.survey import PartitionView
    from halog.core.table.table import PartitionTable


class MetricFamily(NamedTuple):
    """Holds a metric with a help text and its samples: labels and value. `kind`: gauge, or counter."""

    name: str
    help: str
    samples: list[tuple[Mapping[str, str], float]]
    kind: str = "gauge"


@click.command()
@config_option
@timeout_option
def metrics(config_path: Path, timeout_s: float) -> None:
    """Print for Prometheus how mirrors stand, what commits wait for, what has parted and what replicas discarded.

    In the text format that a node exporter's textfile collector takes: run it from a timer, into a file. All but the
    last are gauges. Exit code 0 whatever they say.

    \b
    Examples:
      halog site metrics
    """
    from halog.cli.shared.connection import connect
    from halog.cli.shared.divergence_rows import documents
    from halog.cli.shared.mirror_status import mirrors
    from halog.cli.shared.survey import ask_nodes, partition_view
    from halog.cli.shared.with_home import with_home
    from halog.runtime.sites.split_watch import parted

    with connect(config_path, timeout_s) as connection:
        config, tables = connection.config, with_home(connection, ())
        stands = mirrors(connection, [t for t in tables if t.owner])
        said = ask_nodes(connection)
        views = {t.name: partition_view(t, connection.nodes, said) for t in connection.tables}
        serving = [(t, views[t.name]) for t in tables if not t.owner]
        apart = documents(parted(connection.coordinator, tables))
    labels = {"cluster": config.cluster.name, "site": config.site.name}
    served = {"halog_site_partitions_served": len(tables) - len(stands), "halog_site_partitions_mirrored": len(stands)}
    families = [
        MetricFamily(name, "Partitions with a home that this site serves, or mirrors.", [(labels, value)])
        for name, value in served.items()
    ]
    of_active = [view for _, view in serving]
    families += [*of_mirrors(labels, stands), *of_sync_sites(labels, of_active), *of_votes(labels, serving)]
    families += [*of_parted(labels, apart), of_copies(labels, views.values())]
    click.echo(text(families), nl=False)


def of_mirrors(labels: Mapping[str, str], stands: Iterable[Mapping[str, Any]]) -> list[MetricFamily]:
    """Return how far each mirror is."""
    lag = MetricFamily(
        "halog_site_mirror_lag_seconds", "Time that records take from the other site's log to this one's.", []
    )
    behind = MetricFamily(
        "halog_site_mirror_behind_records", "Entries of the other site's log that are not here yet.", []
    )
    still = MetricFamily("halog_site_mirror_stalled", "1: nothing is mirrored; `halog site lag` says why.", [])
    for m in stands:
        mine = {**labels, "partition": m["partition"], "other": m["site"]}
        still.samples.append((mine, 1 if m["why"] else 0))
        if m["behind"] is not None:
            lag.samples.append((mine, m["lag_ms"] / 1000))
            behind.samples.append((mine, m["behind"]))
    return [lag, behind, still]


def of_sync_sites(labels: Mapping[str, str], views: Iterable[PartitionView]) -> list[MetricFamily]:
    """Return the sites that commits should wait for, as the active nodes have them."""
    from halog.core.sites.sync_sites import AWAY, SYNC

    sync = MetricFamily(
        "halog_site_sync", "1: the other site's log has what is committed, and commits wait for it.", []
    )
    away = MetricFamily(
        "halog_site_sync_away", "1: commits are to wait for the other site, and it confirms nothing.", []
    )
    behind = MetricFamily("halog_site_sync_behind_records", "Records that the other site has not confirmed.", [])
    for view in views:
        for site in view.sites:
            mine = {**labels, "partition": view.partition, "other": site.site}
            sync.samples.append((mine, int(site.state == SYNC)))
            away.samples.append((mine, int(site.state == AWAY)))
            behind.samples.append((mine, site.behind))
    return [sync, away, behind]


def of_votes(labels: Mapping[str, str], serving: Iterable[tuple[PartitionTable, PartitionView]]) -> list[MetricFamily]:
    """Return the votes of sites, as the active nodes have them. Votes that an operator has overruled do not count."""
    from halog.core.sites.site_quorum import needed

    held = MetricFamily("halog_site_votes_held", "Votes of sites that this site has for a partition it serves.", [])
    enough = MetricFamily("halog_site_votes_needed", "Votes of sites that are more than half of those that count.", [])
    outvoted = MetricFamily("halog_site_outvoted", "1: this site has too few votes of sites, and refuses commits.", [])
    for table, view in serving:
        if not view.votes:
            continue
        mine = {**labels, "partition": view.partition}
        counted = {v.site: v.votes for v in view.votes}
        ours = [v for v in view.votes if v.given_to == labels["site"] and v.site not in table.overruled]
        held.samples.append((mine, sum(v.votes for v in ours)))
        enough.samples.append((mine, needed(counted, table.overruled)))
        outvoted.samples.append((mine, int(view.outvoted)))
    return [held, enough, outvoted]


def of_parted(labels: Mapping[str, str], apart: Iterable[Mapping[str, Any]]) -> list[MetricFamily]:
    """Return where histories parted, and how many objects each side has touched since."""
    told = MetricFamily("halog_site_parted", "1: two sites have both gone on with the partition.", [])
    fork = MetricFamily("halog_site_parted_fork_lsn", "The last lsn of both histories.", [])
    touched = MetricFamily("halog_site_parted_objects", "Objects touched since, here and there; at least so many.", [])
    bound = MetricFamily("halog_site_parted_objects_capped", "1: there are more objects than were counted.", [])
    age = MetricFamily("halog_site_parted_age_seconds", "How long ago that was counted.", [])
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


def of_copies(labels: Mapping[str, str], views: Iterable[PartitionView]) -> MetricFamily:
    """Return what copies of every partition had to discard, as far as their nodes answer (R2)."""
    help_ = "Objects of a copy that the log contradicted, since its node began."
    gone = MetricFamily("halog_discarded_objects_total", help_, [], "counter")
    for view in views:
        for copy in view.copies:
            if copy.lsn is not None:
                mine = {**labels, "partition": view.partition, "node": copy.node}
                gone.samples.append((mine, copy.discarded_objects))
    return gone


def text(families: Iterable[MetricFamily]) -> str:
    """Return the text that Prometheus reads; families without samples are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples:
            told = ",".join(f'{name}="{_escaped(said)}"' for name, said in labels.items())
            lines.append(f"{family.name}{{{told}}} {value:.12g}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
