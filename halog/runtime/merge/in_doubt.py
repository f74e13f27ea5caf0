"""Finds how transactions over several partitions were decided at another site, which has closed its branches (T2,
F5)."""

from __future__ import annotations

from typing import Final

from halog.core.log import records
from halog.core.log.transactions import UndecidedTransaction
from halog.errors import RefusedError
from halog.metadata.partition_tables import table_of
from halog.ports import TopicPartition
from halog.runtime.merge.closed_branch import closed_side
from halog.runtime.support.adapters import SiteAccess
from restore.branch import Side
from restore.thread import Link, Thread

MARGIN_MS: Final = 60_000
"""Brokers' clocks may be apart by so much; a decision is never older by more than the vote it decides."""


class RemoteDecisions:
    """A `RemoteDecisions` reads the decisions of one other site."""

    def __init__(self, remote: SiteAccess, here: str) -> None:
        self._remote = remote
        self._here = here

    def committed(self, side: Side, undecided: UndecidedTransaction) -> bool:
        """Return whether it was committed. Only the branch of its first partition can say so, and only once it is
        closed: what is not committed there never will be (T2)."""
        tx, first = undecided.tx, undecided.prepare.first
        table = table_of(self._remote.coordinator, first)
        decides = closed_side(self._remote, self._here, first, TopicPartition(table.topic, table.index))
        if not isinstance(decides, Side):
            raise RefusedError(
                f"a transaction that is in doubt here is decided in {first}, and {decides}: restore both",
                partition=first,
            )
        voted_ms = self._time(side, undecided)
        thread = Thread(decides.log, decides.tp, decides.end, decides.state.hash, decides.site)
        found: list[bool] = []

        def is_enough(link: Link) -> bool:
            record = link.record
            if isinstance(record, records.Outcome) and record.header.tx == tx:
                found.append(record.commit)
            return bool(found) or link.time_ms < voted_ms - MARGIN_MS or link.lsn <= 1

        thread.back_to(is_enough)
        return bool(found) and found[0]

    @staticmethod
    def _time(side: Side, undecided: UndecidedTransaction) -> int:
        entries = side.log.read(side.tp, undecided.offset, undecided.offset + 1)
        return next((e.timestamp_ms for e in entries), 0)
