"""`halog log tail` shows the records of a partition's log, decoded, with the chain's verdict on each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_line
from halog.cli.shared.options import Name, number_of

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from halog.ports import Entry
    from halog.runtime.topics.log_judge import EntryVerdict, Judge

FOLLOW_S = 0.25
"""One wait for new records takes this long; Ctrl-C is noticed between two waits."""


@click.group("log")
def log() -> None:
    """Show a partition's log: what was committed, in order, and by whom. Keep it from being trimmed.

    \b
    Examples:
      halog log tail flights-3
      halog log tail flights-3 -f
    """


@log.command()
@click.argument("partition", type=Name())
@click.option("-n", "count", type=number_of(), default=20, show_default=True, help="How many records.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new records until Ctrl-C.")
@cluster_options
def tail(partition: str, count: int, follow: bool, options: ClusterOptions) -> None:
    """Show the last records of a partition's log.

    Values are decoded by the schemas topic; nothing of the application is imported. The verdict is what every reader of
    this log comes to. Started, opened and accepted records count. Skipped ones are of a dead epoch. A voided one breaks
    its epoch's chain, and what follows it in that epoch is skipped.

    With --format json each record is one JSON document on one line.

    \b
    Examples:
      halog log tail flights-3
      halog log tail flights-3 -n 100 --format json
      halog log tail flights-3 -n 0 -f
    """
    from halog.cli.shared.record_text import as_json, as_lines

    with options.connect() as connection:
        table = connection.table(partition)

        def show(judged: EntryVerdict) -> None:
            if options.format == "json":
                echo_line(as_json(judged, connection.definitions))
            else:
                click.echo("\n".join(as_lines(judged, connection.definitions)))

        judge, end = _show_last(connection, table, count, show)
        if follow:
            _follow(connection, table, end, judge, show)


def _show_last(
    connection: ClusterConnection, table: PartitionTable, count: int, show: Callable[[EntryVerdict], None]
) -> tuple[Judge, int]:
    """Show the last `count` records, judged. Return the judge and the offset to go on from. LaterRecordError behind
    those that stand before a record that a later version of halog wrote."""
    from halog.cli.shared.partition_log import PartitionLog
    from halog.errors import LaterRecordError

    log = PartitionLog(connection, table)
    last: deque[EntryVerdict] = deque(maxlen=count)
    later: LaterRecordError | None = None
    try:
        last.extend(log.judged())
    except LaterRecordError as error:  # those before it are shown all the same
        later = error
    if len(last) < count:
        for judged in deque(log.before(), maxlen=count - len(last)):
            show(judged)
    for judged in last:
        show(judged)
    if later is not None:
        raise later
    return log.judge, log.end


def _follow(
    connection: ClusterConnection,
    table: PartitionTable,
    offset: int,
    judge: Judge,
    show: Callable[[EntryVerdict], None],
) -> None:
    try:
        for entry in _new_entries(connection, table, offset):
            show(judge.judge(entry))
    except KeyboardInterrupt:
        pass  # Ctrl-C is the way to end it


def _new_entries(connection: ClusterConnection, table: PartitionTable, offset: int) -> Iterator[Entry]:
    from halog.cli.shared.partition_log import place_of
    from halog.errors import LogError
    from halog.ports import OutOfRange

    reader = connection.adapters.log.tail()
    try:
        reader.follow(place_of(table), offset)
        while True:
            for item in reader.poll(FOLLOW_S):
                if isinstance(item, OutOfRange):
                    raise LogError(f"offset {item.offset} of {table.name} is gone: its log was trimmed or re-created")
                yield item
    finally:
        reader.close()
