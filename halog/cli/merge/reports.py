"""`halog conflicts show|export` shows what merges found and decided, as it stands in the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.merge.conflicts import conflicts as conflicts, stands, told
from halog.cli.merge.log_reports import reports
from halog.cli.merge.merge_ids import known
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.options import Name, output_option
from halog.cli.shared.output import emit
from halog.cli.shared.with_home import partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from restore.report import ReportEntry
    from restore.waiting import MergeReport

    Pick = Callable[[MergeReport], list[ReportEntry]]

READ_S = 60.0
"""The command waits this long: logs are read from where they begin now."""

merge_option = click.option(
    "--merge",
    "merge",
    type=Name(),
    metavar="ID",
    help="Only this merge; the first digits will do.  [default: the last of each]",
)


@conflicts.command("show")
@merge_option
@partition_option
@click.option("--all", "everything", is_flag=True, help="Also keys that were no conflict.")
@click.option("--open", "waiting", is_flag=True, help="Only what waits for an operator, of all merges.")
@cluster_options_after(READ_S, "Give up (exit 3 or 6) after this long.")
def show(merge: str | None, names: tuple[str, ...], everything: bool, waiting: bool, options: ClusterOptions) -> None:
    """Show what merges found, and what they decided, from this site's logs.

    Each conflict is shown with both sites' states, what stood afterwards, and which trigger said so. What was left to
    an operator is shown until somebody changes the object: settle it with `halog conflicts settle`. All this is kept
    for as long as the log is: a week at least.

    \b
    Examples:
      halog conflicts show
      halog conflicts show --open
      halog conflicts show --merge 6150ebec5631
      halog conflicts show --partition flights-0 --all --format json
    """

    if everything and waiting:
        raise click.UsageError("--all and --open exclude each other")
    with options.connect() as connection:
        tables = with_home(connection, names)
        merge = known(connection, tables, merge)
        if waiting:
            documents = [d for t in tables for d in _open(connection, t, merge)]
        else:
            pick = _all if everything else _told
            documents = [d for t in tables for d in _documents(connection, t, merge, pick)]
    rows = [
        (d["partition"], d["merge"][:12], f"{o['type']} {json.dumps(o['key'])}", o["is"], stands(o), o["by"])
        for d in documents
        for o in d["objects"]
    ]
    emit(options.format, documents, ["partition", "merge", "object", "was", "stands", "by"], rows)


@conflicts.command("export")
@merge_option
@partition_option
@output_option
@cluster_options_after(READ_S, "Give up (exit 3 or 6) after this long.")
def export_(merge: str | None, names: tuple[str, ...], target: Path, options: ClusterOptions) -> None:
    """Write what merges found and decided to a file, one JSON document a line: every object that any site touched.

    \b
    Examples:
      halog conflicts export -o merged.jsonl
      halog conflicts export --partition flights-0 -o merged.jsonl
    """
    from halog.cli.shared.files import is_standard, written_whole

    lines = 0
    with options.connect() as connection, written_whole(target) as out:
        tables = with_home(connection, names)
        merge = known(connection, tables, merge)
        for table in tables:
            for d in _documents(connection, table, merge, _all):
                for o in d["objects"]:
                    out.write(json.dumps({"partition": d["partition"], "merge": d["merge"], **o}) + "\n")
                    lines += 1
    document, rows = {"file": str(target), "objects": lines}, [(str(target), lines)]
    emit(options.format, document, ["file", "objects"], rows, aside=is_standard(target))


def _all(report: MergeReport) -> list[ReportEntry]:
    from restore.report import entry

    return [entry(m) for m in report.merged]


def _told(report: MergeReport) -> list[ReportEntry]:
    """Return the entries that are shown. A trigger may defer a key in which both sites are alike, too."""
    return [e for e in _all(report) if e.found.is_told or e.why]


def _documents(
    connection: ClusterConnection, table: PartitionTable, merge: str | None, pick: Pick
) -> Iterator[dict[str, Any]]:
    """Yield the last merge of a partition, or the one that is named, of those the log still holds."""
    found = reports(connection, table)
    for report in found[-1:] if merge is None else [r for r in found if r.name.hex() == merge]:
        yield _document(connection, table, report, pick(report))


def _open(connection: ClusterConnection, table: PartitionTable, merge: str | None) -> Iterator[dict[str, Any]]:
    """Yield what waits for an operator, of any merge or of the one that is named."""
    for report in reports(connection, table):
        if report.open and merge in (None, report.name.hex()):
            yield _document(connection, table, report, report.open)


def _document(
    connection: ClusterConnection, table: PartitionTable, report: MergeReport, told_of: Iterable[ReportEntry]
) -> dict[str, Any]:
    return {
        "partition": table.name,
        "merge": report.name.hex(),
        "objects": [_object(connection, report, e) for e in told_of],
    }


def _object(connection: ClusterConnection, report: MergeReport, e: ReportEntry) -> dict[str, Any]:
    closed = report.closing(e.found.key) if e.why else None
    return {
        **told(connection, e.found, e.then, e.verdict, e.why),
        "open": bool(e.why) and closed is None,
        "closed": "" if closed is None else closed.why,
    }
