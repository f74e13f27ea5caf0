"""This module does what `halog.runtime.node.cluster_recovery` found, while no node runs.

The znode `recovery` stands from before the first change to behind the last: no node starts meanwhile, and who repeats
it after a death finds what is done, and does the rest. First what only stores hold goes into the logs, then the
znodes, the tables last: a table is made of a log that has everything.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from halog.errors import HalogError, RefusedError
from halog.metadata import cas, nodes
from halog.metadata.identity import who
from halog.ports import Coordinator, Log
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.cluster_recovery import Progress, RecoveredPartition, RecoveryPlan
from halog.runtime.node.log_repair import LogAppender
from halog.runtime.support.clock import wall_ms
from halog.runtime.topics.state_topic import FORMAT, WITH_LEDGER, WITH_MAPPING, SnapshotMark

ALONE = "recovering"
"""Ephemeral: of the process that is at it."""


def carry_out(plan: RecoveryPlan, log: Log, coordinator: Coordinator, said: Progress) -> None:
    """Do it. RefusedError, and nothing was changed, where a node runs or somebody else is at it."""
    if not coordinator.create(ALONE, msgspec.json.encode({"by": who()}), ephemeral=True):
        raise RefusedError("another recovery of this cluster is under way: let it end")
    try:
        _announce(coordinator)
        for one in plan.partitions:
            if one.tail is not None and one.table is not None:
                said(f"partition {one.name}: {one.again} commits of the store of {one.held_by} go into its log")
                appending = LogAppender(log, one.tp, one.history.state, one.history.end)
                appending.append(one.tail, one.table.epoch)
        belonging.identified(coordinator, plan.id)
        for path, data in sorted(plan.znodes.items()):
            coordinator.create(path, data)
        for one in plan.partitions:
            if one.table is not None:
                _make(coordinator, one)
        coordinator.delete(belonging.RECOVERY)
    finally:
        with suppress(HalogError):  # it goes with this session, too
            coordinator.delete(ALONE)


def running(coordinator: Coordinator) -> list[str]:
    """Return the hosting nodes that are registered."""
    infos = nodes.read_nodes(coordinator, coordinator.children("nodes"))
    return sorted(info.name for info in infos.values() if info.hosts)


def check_stopped(coordinator: Coordinator) -> None:
    """Raise RefusedError where a node runs."""
    if up := running(coordinator):
        raise RefusedError(f"{', '.join(up)} run: stop all nodes, and repeat this; nothing was changed", nodes=up)


def _announce(coordinator: Coordinator) -> None:
    """From here on no node starts. One that was quicker is registered by now: it looks behind that."""
    made = coordinator.create(belonging.RECOVERY, msgspec.json.encode({"by": who(), "at_ms": wall_ms()}))
    try:
        check_stopped(coordinator)
    except RefusedError:
        if made:
            coordinator.delete(belonging.RECOVERY)
        raise


def _make(coordinator: Coordinator, one: RecoveredPartition) -> None:
    assert one.table is not None
    history = one.history
    if history.marker is not None:
        position, rows = history.marker.position, history.marker.rows
        form = WITH_MAPPING if position.mapping else WITH_LEDGER if rows else FORMAT
        mark = SnapshotMark(position.state.lsn, position.next_offset, history.marked_end, rows)
        coordinator.create(f"snapshots/{one.name}", mark.to_bytes(form))
    if history.begins:
        coordinator.create(f"trimmed/{one.name}", str(history.begins).encode())
    cas.write(coordinator, f"partitions/{one.name}", one.table.to_bytes(), one.replaces)
