"""The active's part in a migration: one step of the table at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core.active import resync_steps
from halog.core.ids import Member
from halog.core.table import resync
from halog.core.table.migration import next_table
from halog.core.table.table import SYNC, PartitionTable

if TYPE_CHECKING:
    from halog.core.active.leader import Leading


class Migrating:
    """Leads a migration on while one epoch lasts."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._since: int | None = None
        """What was given out when the next step was first due: a quorum is to confirm it before."""
        self.anew = resync_steps.Anew(leading)
        self._left_at = 0
        """The same, when somebody was first to leave: those who stay are to flush it before."""

    def settled(self) -> None:
        """The znode holds something new."""
        self._since = None
        self._leading.writer.demands.leaving = frozenset()

    def due(self) -> PartitionTable | None:
        """The table to set next, if it is time."""
        p = self._leading.p
        after, gone = self._next(p.table)
        if after is None or (set(after.configured) != set(p.table.configured) and not self._confirmed()):
            return None
        leaving = frozenset(p.table.hosts) - frozenset(after.hosts) | gone
        if gone and not self._confirmed(gone):
            return None
        return None if leaving and not self._flushed_without(leaving) else after

    def _next(self, table: PartitionTable) -> tuple[PartitionTable | None, frozenset[str]]:
        """The next step, and whose copy it lets go of though it stays where it is."""
        if table.resync is not None:
            self.anew.look()
            after = resync.next_table(table, {m.node for m in self._up()})
            if after is not None:
                return after, frozenset({after.away} - {""})
        return (None if table.target is None else next_table(table, self._ready())), frozenset()

    def _flushed_without(self, leaving: frozenset[str]) -> bool:
        """Whatever the disks of those who leave were asked to keep (R6), the sync replicas that stay have on theirs."""
        leading = self._leading
        if leading.writer.demands.leaving != leaving:
            leading.writer.demands.leaving = leaving
            self._left_at = leading.writer.last_lsn
        stay = [r.member for r in leading.p.table.replicas if r.kind == SYNC and r.node not in leaving]
        return leading.asking.have_flushed(stay, self._left_at)

    def _ready(self) -> set[str]:
        """Nodes that would be in the node list within milliseconds."""
        leading, p = self._leading, self._leading.p
        near = leading.writer.last_lsn - p.settings.ready_lag
        return {m.node for m in self._up() if leading.writer.acks.get(m, -1) >= max(0, near)}

    def _up(self) -> frozenset[Member]:
        return self._leading.p.alive - self._leading.silent

    def _confirmed(self, without: frozenset[str] = frozenset()) -> bool:
        """Has a quorum of those who stay all that was given out when the step was first due?"""
        writer = self._leading.writer
        if self._since is None:
            self._since = writer.last_lsn
        since = self._since
        stay = [m for m in writer.counted if m.node not in without]
        return sum(writer.acks.get(m, -1) >= since for m in stay) >= writer.quorum
