"""An operator's change of a partition's group is an event. The command that made the change writes it into the event
history (Q3, Q4).

Only the command knows each change, and no node need be up for it. A node that starts later finds the table as it is;
one that is up may see two changes as one. So nodes tell none of them. An override that a command finds expired, and
takes out of the table, it tells as a node would, with the same id: perhaps no node was up to tell it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from halog.cli.shared.event_log import note_or_say
from halog.core.table.changes import ended, group_changes
from halog.core.table.group import as_of, ends
from halog.events import Event, EventPlace, event
from halog.metadata.identity import who

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import Group, PartitionTable
    from halog.core.table.tell import Tell
    from halog.metadata.groups import Change


class PartitionChangeWatch:
    """Follows a change of one partition, asked for at `asked_ms`, and keeps its result. A change whose answer was lost
    is made again. That changes nothing twice, so the last table that it would change is the one before."""

    def __init__(self, change: Change, asked_ms: int) -> None:
        self._change = change
        self._asked_ms = asked_ms
        self.before: PartitionTable | None = None
        """The table before; None: nothing was to be changed."""
        self.now: PartitionTable | None = None
        """The table afterwards; None: the change failed."""

    def __call__(self, table: PartitionTable) -> Group:
        group = self._change(table)
        if group != table.group:
            self.before = table
        return group

    def tells(self) -> Iterator[Tell]:
        """Yield what is new. An override that had expired before is told as that."""
        if self.before is not None and self.now is not None:
            over = [until for until in ends(self.before.group) if until <= self._asked_ms]
            yield from ended(self.before, over)
            yield from group_changes(as_of(self.before, self._asked_ms), as_of(self.now, self._asked_ms))


def tell(connection: ClusterConnection, done: Iterable[PartitionChangeWatch]) -> None:
    """Write what was done into the history. It is done, whether or not the history takes it."""
    told = [as_event(connection, one.now, each) for one in done if one.now is not None for each in one.tells()]
    note_or_say(connection, told)


def as_event(connection: ClusterConnection, table: PartitionTable, told: Tell) -> Event:
    """Return the event as this command tells it. It is about the operator, unless it is about a node."""
    by, now_ns = who(), time.time_ns()
    return event(
        told.kind,
        EventPlace(connection.config.cluster.name, connection.name, table.name, table.epoch.number),
        name=told.once or f"{connection.name}/group/{table.name}/{told.kind.code}/{told.node}/{now_ns}",
        time_ms=now_ns // 1_000_000,
        node=told.node or by,
        cause=told.cause,
        more=told.more if told.once else {**told.more, "by": by},
    )
