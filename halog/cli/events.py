"""`halog events`: what happened in the cluster, as its nodes told it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.options import config_option, timeout_option
from halog.cli.output import emit, format_option
from halog.cli.talk import echo_line

if TYPE_CHECKING:
    from halog.cli.event_log import EventLog
    from halog.events import Event

COLUMNS = ("time", "code", "told by", "epoch", "what")


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A date or a time in ISO 8601, without an offset in UTC, as milliseconds since 1970."""
    if value is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        said = f"{value!r} is no ISO date or time, like 2026-11-21 or 2026-11-21T14:05:00Z"
        raise click.BadParameter(said, ctx, param) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@click.option("--partition", metavar="PARTITION", help="Only events of this partition.")
@click.option("--since", callback=_moment, metavar="ISO", help="Only events from then on; UTC if it names no zone.")
@config_option
@format_option
@timeout_option
def events(
    follow: bool, partition: str | None, since: int | None, config_path: Path, format_: str, timeout_s: float
) -> None:
    """Show the cluster's events: created, joined, left, added, removed, transfer requested, role change and others.

    All nodes write them to one history, which is kept for 30 days. Each has a stable code; the time is the telling
    node's, in UTC. With -f each event is a line, with --format json a document on a line.

    \b
    Examples:
      halog events
      halog events --partition flights-3 --since 2026-11-21
      halog events -f --format json
    """
    from halog.cli.connection import connect
    from halog.cli.event_log import EventLog, as_json

    def wanted(event: Event) -> bool:
        return (partition is None or event.partition == partition) and (since is None or event.time_ms >= since)

    with connect(config_path, timeout_s) as connection:
        if partition is not None:
            connection.table(partition)
        log = EventLog(connection)
        found = sorted((e for e in log.so_far() if wanted(e)), key=lambda e: e.time_ms)
        if follow:
            _follow(log, found, wanted, format_)
            return
    emit(format_, [as_json(e) for e in found], COLUMNS, map(_row, found))


def _follow(log: EventLog, found: list[Event], wanted: Callable[[Event], bool], format_: str) -> None:
    try:
        for event in found:
            _show(event, format_)
        for event in log.new():
            if wanted(event):
                _show(event, format_)
    except KeyboardInterrupt:
        pass  # the way to end it


def _show(event: Event, format_: str) -> None:
    from halog.cli.event_log import as_json

    if format_ == "json":
        echo_line(as_json(event))
    else:
        time, code, by, epoch, text = _row(event)
        click.echo(f"{time}  {code}  {by}  {'' if epoch is None else f'e{epoch}  '}{text}")


def _row(event: Event) -> tuple[str, str, str, int | None, str]:
    from halog.cli.event_log import time_text

    return time_text(event.time_ms), event.code, event.by, event.epoch, event.text
