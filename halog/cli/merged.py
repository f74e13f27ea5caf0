"""`halog conflicts show|export`: what merges found and decided, as it stands in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.conflicts import conflicts as conflicts, stands, told
from halog.cli.options import config_option, output_option, timeout_after
from halog.cli.output import emit, format_option
from halog.cli.with_home import partition_option, with_home

if TYPE_CHECKING:
    from halog.cli.connection import Connection
    from halog.core.records import MergePart
    from halog.core.table import PartitionTable

READ_S = 60.0
"""Logs are read from where they begin now."""

merge_option = click.option("--merge", "merge", metavar="ID", help="Only this one.  [default: the last of each]")


@conflicts.command("show")
@merge_option
@partition_option
@click.option("--all", "everything", is_flag=True, help="Also what was no conflict.")
@config_option
@format_option
@timeout_after(READ_S, "Give up (exit 3 or 6) after this long.")
def show(
    merge: str | None, names: tuple[str, ...], everything: bool, config_path: Path, format_: str, timeout_s: float
) -> None:
    """Show what merges found, and what they decided, from this site's logs.

    Each conflict with both sites' states, what stood afterwards, and which trigger said so; and what was left to an
    operator. Kept for as long as the log is: a week at least.

    \b
    Examples:
      halog conflicts show
      halog conflicts show --partition flights-0 --all --format json
    """
    from halog.cli.connection import connect

    with connect(config_path, timeout_s) as connection:
        tables = with_home(connection, names)
        documents = [d for t in tables for d in _reports(connection, t, merge, everything=everything)]
    rows = [
        (d["partition"], d["merge"][:12], f"{o['type']} {json.dumps(o['key'])}", o["is"], stands(o), o["by"])
        for d in documents
        for o in d["objects"]
    ]
    emit(format_, documents, ["partition", "merge", "object", "was", "stands", "by"], rows)


@conflicts.command("export")
@merge_option
@partition_option
@output_option
@config_option
@format_option
@timeout_after(READ_S, "Give up (exit 3 or 6) after this long.")
def export_(
    merge: str | None, names: tuple[str, ...], target: Path, config_path: Path, format_: str, timeout_s: float
) -> None:
    """Write what merges found and decided to a file, one JSON document a line: every object that any site touched.

    \b
    Examples:
      halog conflicts export -o merged.jsonl
      halog conflicts export --partition flights-0 -o merged.jsonl
    """
    from halog.cli.connection import connect
    from halog.cli.export import written_whole

    lines = 0
    with connect(config_path, timeout_s) as connection, written_whole(target) as out:
        for table in with_home(connection, names):
            for d in _reports(connection, table, merge, everything=True):
                for o in d["objects"]:
                    out.write(json.dumps({"partition": d["partition"], "merge": d["merge"], **o}) + "\n")
                    lines += 1
    emit(format_, {"file": str(target), "objects": lines}, ["file", "objects"], [(str(target), lines)])


def _reports(
    connection: Connection, table: PartitionTable, merge: str | None, *, everything: bool
) -> Iterator[dict[str, Any]]:
    """The last merge of a partition, or the one that is named, of those the log still holds."""
    from restore.report import entry

    found = _merges(connection, table)
    wanted = list(found)[-1:] if merge is None else [name for name in found if name == merge]
    for name in wanted:
        entries = [entry(m) for part in found[name] for m in part.merged]
        shown = [e for e in entries if everything or e.found.is_told or e.why]  # a trigger may defer what is alike, too
        objects = [told(connection, e.found, e.then, e.verdict, e.why) for e in shown]
        yield {"partition": table.name, "merge": name, "objects": objects}


def _merges(connection: Connection, table: PartitionTable) -> dict[str, list[MergePart]]:
    """By name, those that counted, in the log's order."""
    from halog.cli.partition_log import PartitionLog
    from halog.core.chain import Verdict
    from halog.core.records import EpochMerged, MergePart

    parts: dict[object, dict[int, MergePart]] = {}
    found: dict[str, list[MergePart]] = {}
    for item in PartitionLog(connection, table).all():
        record = item.record
        if isinstance(record, MergePart):
            parts.setdefault(record.header.epoch, {})[record.index] = record
        elif isinstance(record, EpochMerged) and item.verdict == Verdict.OPENED.value:
            its = parts.get(record.header.epoch, {})
            found[record.merge.hex()] = [its[i] for i in range(record.parts) if i in its]
    return found
