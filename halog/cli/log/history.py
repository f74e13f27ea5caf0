"""This module has the command `halog history`. It shows who was active for a partition, when and because of what, and
which transactions were discarded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import say
from halog.cli.shared.options import Name
from halog.cli.shared.output import emit, emit_json, table_lines

if TYPE_CHECKING:
    from halog.cli.log.discarded import DiscardedRecord
    from halog.cli.log.epochs import Epoch
    from halog.cli.shared.connection import ClusterConnection

WIDTH = 120
"""Reasons are broken into lines of so many columns."""

COLUMNS = ["epoch", "active", "since", "lsn", "until", "ended"]


@click.command()
@click.argument("partition", type=Name())
@click.option("--why", is_flag=True, help="Also say why each epoch began.")
@click.option("--discarded", is_flag=True, help="Show the transactions that were discarded instead.")
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --discarded: write them to this file (-: standard output), one JSON document a line.",
)
@cluster_options
def history(partition: str, why: bool, discarded: bool, target: Path | None, options: ClusterOptions) -> None:
    """Show who was active for a partition: when, under which epoch, and with --why because of what.

    The epochs are those of the log. Who led them, and why, is what the nodes told (`halog events`); it is missing if it
    is older than 30 days.

    --discarded lists the transactions whose records are in the log and count for nobody: they landed behind a higher
    epoch, or did not continue their own. Then it lists those that were in flight when an epoch ended and never reached
    the log, as the nodes that had them told it (HALOG-1014, kept for 30 days). They are "unlogged", without an offset,
    and "acknowledged" if a caller was told before that they happened. Each is shown with what became of it: a
    transaction that was tried again may be committed by another record.

    \b
    Examples:
      halog history flights-3 --why
      halog history flights-3 --discarded
      halog history flights-3 --discarded --export discarded.jsonl
    """
    if target is not None and not discarded:
        raise click.UsageError("--export belongs to --discarded")
    if why and discarded:
        raise click.UsageError("--why and --discarded are two questions: ask them one by one")

    with options.connect() as connection:
        if discarded:
            _discarded(connection, partition, target, options.format)
        else:
            _show_epochs(_epochs(connection, partition), why, options.format)


def _epochs(connection: ClusterConnection, partition: str) -> list[Epoch]:
    from halog.cli.log.epochs import epochs_of
    from halog.cli.shared.event_log import EventLog
    from halog.cli.shared.partition_log import PartitionLog

    table = connection.table(partition)
    log = PartitionLog(connection, table)
    events = (e for e in EventLog(connection).so_far() if e.partition == partition)
    return epochs_of(log.lineage, log.all(), events, table)


def _show_epochs(epochs: list[Epoch], why: bool, format_: str) -> None:
    document = [_as_json(e) for e in epochs]
    rows = [(d["epoch"], d["active"], d["since"], d["lsn"], d["until"], d["ended"]) for d in document]
    if not why or format_ == "json":
        emit(format_, document, COLUMNS, rows)
        return
    head, *lines = table_lines(COLUMNS[:-1], [row[:-1] for row in rows])
    click.echo(head)
    for line, d in zip(lines, document, strict=True):
        click.echo(line)
        for name in ("because", "ended"):
            if d[name] is not None:
                click.echo(fill(f"{name}: {d[name]}", WIDTH, initial_indent="    ", subsequent_indent=" " * 8))


def _as_json(epoch: Epoch) -> dict[str, Any]:
    from halog.cli.shared.event_log import time_text

    return {
        "epoch": epoch.epoch,
        "opened": epoch.opened,
        "active": epoch.active,
        "since": None if epoch.since_ms is None else time_text(epoch.since_ms),
        "lsn": epoch.lsn,
        "until": None if epoch.until_ms is None else time_text(epoch.until_ms),
        "ended": epoch.ended if epoch.opened or epoch.ended is None else f"never opened: {epoch.ended}",
        "because": epoch.because,
    }


# --- discarded transactions ---


def _discarded(connection: ClusterConnection, partition: str, target: Path | None, format_: str) -> None:
    from halog.cli.log.discarded import discarded
    from halog.cli.shared.event_log import EventLog
    from halog.cli.shared.files import is_standard
    from halog.cli.shared.partition_log import PartitionLog

    log = PartitionLog(connection, connection.table(partition))
    found = discarded(log.all(), (e for e in EventLog(connection).so_far() if e.partition == partition))
    if target is not None:
        count = _export(_documents(connection, found), target)
        document = {"file": str(target), "records": count}
        emit(format_, document, ["file", "records"], [(target, count)], aside=is_standard(target))
    elif format_ == "json":
        emit_json(list(_documents(connection, found)))
    else:
        _show_discarded(connection, list(found))


def _documents(connection: ClusterConnection, found: Iterator[DiscardedRecord]) -> Iterator[dict[str, Any]]:
    from halog.cli.shared.record_text import as_json

    for left in found:
        document = {"outcome": left.outcome, **as_json(left.judged, connection.definitions)}
        yield document if left.told is None else {**document, **left.told.as_json()}


def _export(documents: Iterator[dict[str, Any]], target: Path) -> int:
    from halog.cli.shared.files import written_whole

    count = 0
    with written_whole(target) as out:
        for document in documents:
            out.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return count


def _show_discarded(connection: ClusterConnection, found: list[DiscardedRecord]) -> None:
    from halog.cli.shared.record_text import as_lines

    for left in found:
        head, *changes = as_lines(left.judged, connection.definitions)
        click.echo("\n".join([f"{head}  {_what(left)}", *changes]))
    if not found:
        say("nothing was discarded: no record of this log was skipped, and no node told of one that never reached it")


def _what(left: DiscardedRecord) -> str:
    told = left.told
    if told is None:
        return left.outcome
    named = "" if left.judged.record is not None else f"e{told.epoch} lsn {told.lsn} tx {told.tx.hex()}  "
    return f"{named}{left.outcome}{', acknowledged' if told.acknowledged else ''}, told by {told.by}"
