"""This module reads the snapshot marker of a partition from its state topic: the chain's state at a known offset of the
log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.ports import TopicPartition
from halog.runtime.host.snapshotter import MARKER, marked_position
from halog.runtime.topics import topic_names
from halog.runtime.topics.state_topic import check_format

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.core.log.chain import ChainState
    from halog.core.table.table import PartitionTable


def read_marker(connection: ClusterConnection, table: PartitionTable) -> tuple[ChainState, int] | None:
    """Return (state, next offset), or None if there is no marker, or one of another log or of an earlier format.
    LaterRecordError if a later version of halog wrote it: who needs it cannot read the log without."""
    tp = TopicPartition(topic_names.state_topic(connection.config, table.policy), table.index)
    raw: bytes | None = None
    for key, value in connection.adapters.log.read_keyed(tp):
        if key == MARKER:
            raw = value
    if raw is None:
        return None
    position = marked_position(raw)
    if position is None:
        check_format(raw, tp)
    if position is None or position.state.log_id.hex() != table.log_id:
        return None
    return position.state, position.next_offset
