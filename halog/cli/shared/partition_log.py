"""A partition's log is read here: every record with its verdict, from the first one that is still there.

Where the log's beginning was trimmed, the snapshot's marker says what went before it. The records in front of the
marker are judged backwards (`halog.runtime.topics.log_judge`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from halog.cli.shared.snapshot_marker import read_marker
from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.ports import TopicPartition
from halog.runtime.topics.log_judge import EntryVerdict, Judge, judge_backwards

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable


def place_of(table: PartitionTable) -> TopicPartition:
    """Return where the partition's log is."""
    return TopicPartition(table.topic, table.index)


class PartitionLog:
    """Reads a log once, up to where it ended at the beginning. `judge` has read what `judged` delivered."""

    def __init__(self, connection: ClusterConnection, table: PartitionTable) -> None:
        self._connection = connection
        self._tp = place_of(table)
        self.start, self.end = connection.adapters.log.bounds(self._tp, connection.timeout_s)
        self._known, self.begin = self._state(table)
        self.judge = Judge(self._known)

    def _state(self, table: PartitionTable) -> tuple[ChainState, int]:
        """Return from where the log can be judged: its beginning, or the snapshot's marker where the beginning was
        trimmed."""
        if self.start > 0:
            marker = read_marker(self._connection, table)
            if marker is not None:
                return marker
        return table.beginning(self._connection.config.site.name), self.start

    @property
    def lineage(self) -> tuple[tuple[EpochId, int], ...]:
        """Return the epochs opened before the first record that can be judged forwards, and the lsns they opened at."""
        return self._known.lineage

    def before(self) -> Iterator[EntryVerdict]:
        """Yield the records that are still there in front of the marker."""
        if self.begin > self.start:
            yield from judge_backwards(list(self._connection.read(self._tp, self.start, self.begin)), self._known.hash)

    def judged(self) -> Iterator[EntryVerdict]:
        """Yield the records from there on. Read it once."""
        for entry in self._connection.read(self._tp, self.begin, self.end):
            yield self.judge.judge(entry)

    def all(self) -> Iterator[EntryVerdict]:
        """Yield every record that is there. Read it once."""
        yield from self.before()
        yield from self.judged()
