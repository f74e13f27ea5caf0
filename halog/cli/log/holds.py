"""`halog log hold|holds|release` keeps a partition's log from being trimmed."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from halog.cli.log.group import log
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.options import MOST_BYTES, Duration, Name, Text, number_of
from halog.cli.shared.output import emit_json, emit_table

if TYPE_CHECKING:
    from halog.metadata.log_holds import Hold

RESERVED = "restore-"


class HoldName(click.ParamType[str]):
    """Takes the name of a hold: one part of a path."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text) or set(text) == {"."}:
            self.fail(f"{text!a} is no name of a hold: 1 to 100 of A-Z a-z 0-9 . _ -", param, ctx)
        if text.startswith(RESERVED):
            self.fail(f"names that begin with {RESERVED} are those of nodes that restore a copy", param, ctx)
        return text


@log.command("hold")
@click.argument("partition", type=Name())
@click.argument("name", type=HoldName())
@click.option(
    "--for", "for_ms", type=Duration(), required=True, help="It ends by itself after this time: 90s, 15m, 2h, 1d."
)
@click.option(
    "--offset",
    type=number_of(most=MOST_BYTES),
    help="The first offset needed.  [default: the first one that is there now]",
)
@click.option("--reason", type=Text(), default="", metavar="TEXT", help="Why; stands in `halog log holds`.")
@cluster_options
def hold_(partition: str, name: str, for_ms: int, offset: int | None, reason: str, options: ClusterOptions) -> None:
    """Keep a partition's log from being trimmed, under a name and for a time; the same name again replaces it.

    Use it for anything that reads the log later: a job, an audit, an undo. The log uses up disk for as long as the hold
    stands.

    \b
    Examples:
      halog log hold flights-3 audit --for 2d --reason "auditors are in"
      halog log hold flights-3 replay --offset 120000 --for 6h
    """
    from halog.cli.shared.partition_log import place_of
    from halog.metadata import log_holds as retention

    with options.connect() as connection:
        table = connection.table(partition)
        first, end = connection.adapters.log.bounds(place_of(table), options.timeout_s)
        if offset is None:
            offset = max(first, retention.floor(connection.coordinator, partition))
        elif offset > end:
            raise click.UsageError(f"the log of {partition} ends at {end}: offset {offset} is not there yet")
        wanted = retention.Hold(offset, retention.now_ms() + for_ms, reason)
        retention.hold(connection.coordinator, partition, name, wanted, first)
    _show([(partition, name, wanted)], options.format)


@log.command("holds")
@click.argument("partition", type=Name(), required=False)
@cluster_options
def holds_(partition: str | None, options: ClusterOptions) -> None:
    """List what keeps logs from being trimmed, of one partition or of all.

    \b
    Examples:
      halog log holds
      halog log holds flights-3 --format json
    """
    from halog.metadata import log_holds as retention

    with options.connect() as connection:
        names = [t.name for t in connection.tables] if partition is None else [connection.table(partition).name]
        found = [(p, n, h) for p in names for n, h in retention.holds(connection.coordinator, p).items()]
    _show(found, options.format)


@log.command("release")
@click.argument("partition", type=Name())
@click.argument("name", type=HoldName())
@cluster_options
def release_(partition: str, name: str, options: ClusterOptions) -> None:
    """End a hold: the next snapshot trims the log again.

    \b
    Examples:
      halog log release flights-3 audit
    """
    from halog.metadata import log_holds as retention

    with options.connect() as connection:
        retention.release(connection.coordinator, connection.table(partition).name, name)
    if options.format == "json":
        emit_json({"partition": partition, "name": name, "released": True})


def _show(found: list[tuple[str, str, Hold]], format_: str) -> None:
    if format_ == "json":
        emit_json(
            [
                {"partition": p, "name": n, "offset": h.offset, "until_ms": h.until_ms, "reason": h.why}
                for p, n, h in found
            ]
        )
        return
    now = time.time_ns() // 1_000_000
    rows = [(p, n, h.offset, _until(h, now), h.why) for p, n, h in found]
    emit_table(["partition", "name", "from offset", "until", "reason"], rows)


def _until(hold: Hold, now: int) -> str:
    if not hold.until_ms:
        return "its session ends"
    at = datetime.fromtimestamp(hold.until_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    return f"{at} UTC" if hold.until_ms > now else f"{at} UTC (over)"
