"""An operator's command writes into the event history where it has asked partitions to move (P12, O2).

As with its changes of a group (`table_events.py`), no node need be up for it, and nodes tell none of it. Nodes tell
only that a migration is over; the last node to do a step knows that.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from halog.cli.shared.event_log import note_or_say
from halog.cli.shared.table_events import as_event
from halog.core.table.changes import migration_asked

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable


class MoveEvents:
    """Collects what one command has asked for, and tells it when it ends, however it does, or before by `tell`."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._untold: list[tuple[PartitionTable, PartitionTable]] = []

    def __call__(self, before: PartitionTable, now: PartitionTable) -> None:
        self._untold.append((before, now))

    def tell(self) -> None:
        """Write what was asked for into the history. It stands, whether or not the history takes it."""
        wished = self._untold
        self._untold = []
        c = self._connection
        told = [as_event(c, now, each) for before, now in wished for each in migration_asked(before, now)]
        note_or_say(c, told)

    def __enter__(self) -> MoveEvents:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.tell()
