"""`halog events` shows what happened in the cluster, as its nodes told it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_line, say
from halog.cli.shared.options import Name, Text, number_of
from halog.cli.shared.output import emit
from halog.events import ERROR, INFO, KINDS, STATE, WARNING, is_code
from halog.release import RELEASE

if TYPE_CHECKING:
    from halog.cli.shared.event_log import EventLog
    from halog.events import Event

SEVERITIES = (INFO, WARNING, ERROR)
COLUMNS = ("time", "code", "told by", "epoch", "what")


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read a date or a time in ISO 8601, in UTC where it has no offset, as milliseconds since 1970."""
    if value is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        said = f"{value!r} is no ISO date or time, like 2026-11-21 or 2026-11-21T14:05:00Z"
        raise click.BadParameter(said, ctx, param) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def _below(severity: str) -> tuple[str, ...]:
    return SEVERITIES[: SEVERITIES.index(severity)]


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check that these may be codes. A code is written HALOG-1035, or 1035. One that is not known here may be a later
    version's, whose nodes are among the cluster's."""
    codes = tuple((v if v.upper().startswith("HALOG-") else f"HALOG-{v}").upper() for v in values)
    for code in codes:
        if not is_code(code):
            raise click.BadParameter(f"there is no event {code}; docs/guides/operations.md lists all", ctx, param)
    for code in dict.fromkeys(code for code in codes if code not in KINDS):
        say(f"halog {RELEASE} knows no event {code}: it is looked for all the same, as a later version's")
    return codes


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@click.option("--partition", type=Name(), metavar="PARTITION", help="Only events of this partition.")
@click.option(
    "--since", type=Text(), callback=moment, metavar="ISO", help="Only events from then on; UTC if it names no zone."
)
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only events of this severity, or a higher one.")
@click.option(
    "--code",
    "codes",
    type=Text(),
    multiple=True,
    metavar="CODE",
    callback=_codes,
    help="Only events with this code; repeatable.",
)
@click.option("--node", type=Name(), metavar="NODE", help="Only events that this node told, or that are about it.")
@click.option("-n", "count", type=number_of(), help="Only this many, the last ones.")
@click.option("--all", "all_", is_flag=True, help=f"Also every change of a partition's state ({STATE.code}).")
@cluster_options
def events(
    follow: bool,
    partition: str | None,
    since: int | None,
    severity: str | None,
    codes: tuple[str, ...],
    node: str | None,
    count: int | None,
    all_: bool,
    options: ClusterOptions,
) -> None:
    """Show the cluster's events: created, joined, left, added, removed, transfer requested, role change and others.

    All nodes write them to one history, which is kept for 30 days. Each has a stable code; the time is in UTC, by the
    clock of the node that told it. Changes of a partition's state come in hundreds, so they are shown only with --all
    or --code HALOG-1035. With --format json there is one document, a list of events; with -f too, each event is a
    document on a line.

    \b
    Examples:
      halog events -n 20
      halog events --severity warning --since 2026-11-21
      halog events --partition flights-3 --code HALOG-1010 --code HALOG-1035
      halog events -f --format json
    """
    from halog.cli.shared.event_log import EventLog, as_json
    from halog.config.multi_site import check_nodes

    def wanted(event: Event) -> bool:
        return (
            (partition is None or event.partition == partition)
            and (since is None or event.time_ms >= since)
            and (severity is None or event.severity not in _below(severity))
            and (node is None or node in (event.by, event.node))
            and (event.code in codes if codes else all_ or event.code != STATE.code)
        )

    with options.connect() as connection:
        if partition is not None:
            connection.table(partition)
        if node is not None and node not in connection.nodes:
            check_nodes(connection.config, (node,))
        log = EventLog(connection)
        found = sorted((e for e in log.so_far() if wanted(e)), key=lambda e: e.time_ms)
        found = found if count is None else found[len(found) - min(count, len(found)) :]
        if follow:
            _follow(log, found, wanted, options.format)
            return
    emit(options.format, [as_json(e) for e in found], COLUMNS, map(_row, found))


def _follow(log: EventLog, found: list[Event], wanted: Callable[[Event], bool], format_: str) -> None:
    try:
        for event in found:
            _show(event, format_)
        for event in log.new():
            if wanted(event):
                _show(event, format_)
    except KeyboardInterrupt:
        pass  # Ctrl-C is the way to end it


def _show(event: Event, format_: str) -> None:
    from halog.cli.shared.event_log import as_json

    if format_ == "json":
        echo_line(as_json(event))
    else:
        time, code, by, epoch, text = _row(event)
        click.echo(f"{time}  {code}  {by}  {'' if epoch is None else f'e{epoch}  '}{text}")


def _row(event: Event) -> tuple[str, str, str, int | None, str]:
    from halog.cli.shared.event_log import time_text

    return time_text(event.time_ms), event.code, event.by, event.epoch, event.text
