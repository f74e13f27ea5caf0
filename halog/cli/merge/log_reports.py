"""This module reads reports of merges from a partition's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.table.table import PartitionTable
    from restore.waiting import MergeReport


def reports(connection: ClusterConnection, table: PartitionTable) -> list[MergeReport]:
    """Return the merges that counted and that the partition's log still holds, in its order."""
    from halog.cli.shared.partition_log import PartitionLog
    from halog.core.log.chain import Verdict
    from restore.waiting import MergeReports

    found, counted = MergeReports(), (Verdict.ACCEPTED.value, Verdict.OPENED.value)
    for item in PartitionLog(connection, table).all():
        if item.record is not None:
            found.read(item.record, item.offset, counts=item.verdict in counted)
    return [*found.found.values()]
