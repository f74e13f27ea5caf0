"""This module writes the output of the rebalance job to stdout: a table for people, or one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from halog.config import Config
from spark_jobs.command import stdout
from spark_jobs.finder import FinderReport
from spark_jobs.mover import DryRun
from spark_jobs.moving import MovingOutcome
from spark_jobs.node_mover import AGAIN, FAILED, MOVED, STAYED
from spark_jobs.site import Site

Counted = tuple[str, Config, FinderReport, DryRun]
"""A policy, its mapping as it would be, and what was found."""


def show_counts(site: Site, found: Sequence[Counted], format_: str, *, single: bool) -> None:
    """Show what would move."""
    documents = [_counted(site, *one) for one in found]
    if format_ == "json":
        click.echo(json.dumps(documents[0] if single else {"policies": documents}))
        return
    console = stdout()
    table = Table("partition", "read up to lsn", "would move", "to", title=None)
    for document in documents:
        for name, at in document["partitions"].items():
            to = at["would_move_to"]
            where = ", ".join(f"{target} {n:,}" for target, n in sorted(to.items()))
            table.add_row(name, f"{at['lsn']:,}", f"{sum(to.values()):,}", where)
    if documents:
        console.print(table)
    moves, rows = sum(d["would_move"] for d in documents), sum(d["rows"] for d in documents)
    seconds = sum(report.seconds for _, _, report, _ in found)
    console.print(f"{moves:,} objects would move; {rows:,} looked at, in {seconds:.1f} s")


def _counted(site: Site, policy: str, wanted: Config, report: FinderReport, counting: DryRun) -> dict[str, Any]:
    moves, mapping = counting.by_target(), wanted.policies[policy]
    return {
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


def show_moves(found: Sequence[MovingOutcome], format_: str, *, single: bool) -> None:
    """Show what was moved."""
    documents = [_moved(one) for one in found]
    if format_ == "json":
        click.echo(json.dumps(documents[0] if single else {"policies": documents}))
        return
    table = Table("policy", "version", "state", "partitions", "moved", "stayed", "remapped again", "refused")
    for d in documents:
        counts = [f"{d[name]:,}" for name in (MOVED, STAYED, AGAIN, FAILED)]
        table.add_row(d["policy"], str(d["version"]), d["state"], f"{d['clean']} of {d['partitions']}", *counts)
    console = stdout()
    if not documents:
        console.print("no mapping is another one than the file's; nothing was changed")
        return
    console.print(table)
    rows, seconds = sum(d["rows"] for d in documents), sum(d["seconds"] for d in documents)
    console.print(f"{rows:,} looked at, in {seconds:.1f} s")
    for why in [d["started_over"] for d in documents if d["started_over"]]:
        console.print(f"started over: {why}")


def _moved(outcome: MovingOutcome) -> dict[str, Any]:
    counts, report = outcome.report.counts, outcome.report
    return {
        **outcome.progress._asdict(),
        **{name: counts.get(name, 0) for name in ("found", MOVED, STAYED, AGAIN, FAILED)},
        "rows": report.rows,
        "batches": report.batches,
        "seconds": round(report.seconds, 1),
        "started_over": report.started_over,
    }
