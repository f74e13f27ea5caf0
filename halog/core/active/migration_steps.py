"""This module is the active node's part in a migration: one step of the table at a time."""

from __future__ import annotations

from collections.abc import Set

from halog.core.active.resync_steps import ResyncSteps
from halog.core.commit.durability_requests import DurabilityRequests
from halog.core.commit.writer import Writer
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState
from halog.core.table import resync
from halog.core.table.migration import next_table
from halog.core.table.table import SYNC, PartitionTable


class MigrationSteps:
    """Leads a migration on while one epoch lasts."""

    def __init__(
        self, copy: CopyState, writer: Writer, asking: DurabilityRequests, silent: Set[Member], anew: ResyncSteps
    ) -> None:
        """`silent` are the members whose copies acknowledge nothing new; it changes while the epoch lasts."""
        self._copy = copy
        self._writer = writer
        self._asking = asking
        self._silent = silent
        self._anew = anew
        self._since: int | None = None
        """The last lsn that was given out when the next step was first due. A quorum must confirm it before the
        step."""
        self._left_at = 0
        """The last lsn that was given out when a node was first to leave. The replicas that stay must flush it
        before."""

    def settled(self) -> None:
        """Begin anew: the znode holds something new."""
        self._since = None
        self._writer.demands.leaving = frozenset()

    def due(self) -> PartitionTable | None:
        """Return the table to set next, if it is time."""
        table = self._copy.table
        after, gone = self._next(table)
        if after is None or (set(after.configured) != set(table.configured) and not self._confirmed()):
            return None
        leaving = frozenset(table.hosts) - frozenset(after.hosts) | gone
        if gone and not self._confirmed(gone):
            return None
        return None if leaving and not self._flushed_without(leaving) else after

    def _next(self, table: PartitionTable) -> tuple[PartitionTable | None, frozenset[str]]:
        """Return the next step, and the nodes whose copies it drops though they stay hosts."""
        if table.resync is not None:
            self._anew.look()
            after = resync.next_table(table, {m.node for m in self._up()})
            if after is not None:
                return after, frozenset({after.away} - {""})
        return (None if table.target is None else next_table(table, self._ready())), frozenset()

    def _flushed_without(self, leaving: frozenset[str]) -> bool:
        """Say whether the sync replicas that stay have on their disks whatever the leaving nodes were asked to flush
        (R6)."""
        writer = self._writer
        if writer.demands.leaving != leaving:
            writer.demands.leaving = leaving
            self._left_at = writer.last_lsn
        stay = [r.member for r in self._copy.table.replicas if r.kind == SYNC and r.node not in leaving]
        return self._asking.have_flushed(stay, self._left_at)

    def _ready(self) -> set[str]:
        """Return the nodes that would be in the node list within milliseconds."""
        writer = self._writer
        near = writer.last_lsn - self._copy.settings.ready_lag
        return {m.node for m in self._up() if writer.acks.get(m, -1) >= max(0, near)}

    def _up(self) -> frozenset[Member]:
        return self._copy.alive - self._silent

    def _confirmed(self, without: frozenset[str] = frozenset()) -> bool:
        """Say whether a quorum of the nodes that stay has all that was given out when the step was first due."""
        writer = self._writer
        if self._since is None:
            self._since = writer.last_lsn
        since = self._since
        stay = [m for m in writer.counted if m.node not in without]
        return sum(writer.acks.get(m, -1) >= since for m in stay) >= writer.quorum
