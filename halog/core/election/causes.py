"""This module says why this node stands for election, in words for operators: what it saw of the end of the epoch
before."""

from __future__ import annotations

from collections.abc import Iterator

from halog.core.ids import NO_EPOCH, Member
from halog.core.log.chain import ChainState
from halog.core.state.copy_state import CopyState
from halog.core.table.holders import holders
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import UNLOGGED_LOST


class Causes:
    """Keeps what one copy saw."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._lost: tuple[Member | None, str] = (None, "")
        """The active node that was last seen to go, and why."""
        self._gave_up: tuple[int, str] = (-1, "")
        """The number of the epoch that its writer gave up by itself, and how that reads."""

    def witnessed(self, why: str) -> None:
        """Note that the active node died while this node watched."""
        self._lost = (self._copy.table.active, why)

    def gave_up(self, why: str) -> None:
        """Note that this node ended its own epoch."""
        copy = self._copy
        self._gave_up = (copy.table.epoch.number, f"{copy.me.node} gave up epoch {copy.table.epoch.number}: {why}")

    def watch(self, table: PartitionTable) -> None:
        """Note which node gave up, since the znode is about to become `table`: somebody may ask later why there was an
        election."""
        before, number = self._copy.table, table.epoch.number
        if self._copy.unlogged and _given_up(before, table):
            names = ", ".join(sorted(m.node for m in holders(before)))
            self._gave_up = (number, f"an operator gave up what {names} may have in memory")
        elif table.active is None and before.active is not None and number != self._gave_up[0]:
            self._gave_up = (number, f"{before.active.node} gave up epoch {number}")

    def because(self, *, handed_over: bool) -> str:
        """Return why there is an election now."""
        table = self._copy.table
        active, number = table.active, table.epoch.number
        if handed_over:
            return f"{active.node if active else 'the node before it'} handed over"
        if self._gave_up[0] == number:
            return self._gave_up[1]
        if active is None:
            return "the partition never had an active node" if table.epoch == NO_EPOCH else "no node was active"
        if self._lost[0] == active and self._lost[1]:
            return self._lost[1]
        restarted = any(m.node == active.node for m in self._copy.alive)
        return f"{active.node} {'was restarted' if restarted else 'is not up'}"


def _given_up(before: PartitionTable, now: PartitionTable) -> bool:
    """Say whether an operator gave up the members that may hold what the log lacks (E3). Nothing else takes the role
    away and leaves the members that commits waited for in the node list, none of them sync."""
    listed = {r.member for r in now.replicas}
    same_epoch = now.active is None and now.epoch == before.epoch
    return same_epoch and bool(before.sync_set) and not now.sync_set and before.sync_set <= listed


def put_back(state: ChainState, replaced: PartitionTable) -> Iterator[Tell]:
    """Tell operators if a set replaced a table older than the log. That table named the holders of what the log lacked
    at some other time."""
    had = state.epoch.number
    if had > replaced.epoch.number:
        why = f"the znode was put back to epoch {replaced.epoch.number}, the log has been in {had}"
        yield Tell(UNLOGGED_LOST, "", why)
