"""This module decides which replicas a commit waits for, and how that set changes (rules S1-S5).

Law: what the active node waits for always contains every set the znode may hold (S1). To shrink the set it first makes
the compare-and-set, then stops waiting (S2). To grow it, it first waits, has what is acknowledged and in flight
confirmed, and then makes the compare-and-set (S3). A set whose result is unknown stays in the union until the version
has moved on (S4). Members are incarnations (S5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from halog.core.commit.writer import Writer
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState
from halog.core.table.group import counts
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica, listed_as


class SyncSet:
    """Keeps the sets of one epoch's active node. `plan` proposes the next node list; the caller performs the set."""

    __slots__ = ("_held", "joining", "unsettled")

    def __init__(self, table: PartitionTable) -> None:
        self._held: tuple[frozenset[Member], ...] = (table.sync_set,)
        self.joining: dict[Member, int] = {}
        """Members that commits wait for but that are not yet in the znode's set, with the lsn each must confirm
        first."""
        self.unsettled = False
        """A set was sent and its result is unknown: one more must go through, or the version must have moved."""

    def wait_set(self) -> frozenset[Member]:
        """Return all members that a commit must wait for now."""
        return frozenset(self.joining).union(*self._held)

    @property
    def backed(self) -> bool:
        """Say whether every set the znode may hold names a member. Then the winner of an election has what was waited
        for, or has heard from a node that has it (E2)."""
        return all(self._held)

    def plan(
        self,
        table: PartitionTable,
        usable: list[Member],
        acks: Mapping[Member, int],
        last_lsn: int,
        sync: int,
    ) -> tuple[Replica, ...] | None:
        """Return the node list to set next, or None if the table is as it should be. `usable`: alive, in configured
        order, and either in the table or close behind; `last_lsn`: the last lsn given out, in flight included; `sync`:
        so many of them are to be sync."""
        wanted = usable[:sync]
        self._join([m for m in wanted if m not in table.sync_set], last_lsn)
        replicas: list[Replica] = []
        for m in usable:
            full = sum(r.kind == SYNC for r in replicas) >= sync
            may = m in table.sync_set or (m in self.joining and acks.get(m, -1) >= self.joining[m])
            replicas.append(listed_as(m, SYNC if may and not full else ASYNC, table.replicas))
        proposal = tuple(replicas)
        return None if proposal == table.replicas and not self.unsettled else proposal

    def _join(self, members: list[Member], last_lsn: int) -> None:
        self.joining = {m: self.joining.get(m, last_lsn) for m in members}

    def proposed(self, replicas: tuple[Replica, ...]) -> None:
        """Note that a set is about to be sent: from now on the znode may hold it."""
        self._held = (*self._held, frozenset(r.member for r in replicas if r.kind == SYNC))

    def settled(self, table: PartitionTable) -> None:
        """Note that the znode holds `table`, and that no earlier set can land any more."""
        self._held = (table.sync_set,)
        self.joining = {m: lsn for m, lsn in self.joining.items() if m not in table.sync_set}
        self.unsettled = False

    def unknown(self) -> None:
        """Note that the set may or may not have happened: keep waiting for the union, and set once more."""
        self.unsettled = True


def usable(copy: CopyState, writer: Writer, silent: Collection[Member]) -> list[Member]:
    """Return the living configured members in priority order: those in the table, and those close behind."""
    table, acks = copy.table, writer.acks
    listed = copy.listed
    up = {m.node: m for m in copy.alive.difference(silent) if m.node not in (copy.me.node, table.away)}
    order = [up[n] for n in table.configured if n in up]
    if writer.quorum:  # members that count come first: async ones acknowledge late
        order.sort(key=lambda m: not counts(table, m.node))
    order.sort(key=lambda m: table.leaves(m.node))  # nodes that leave come last
    near = writer.last_lsn - copy.settings.ready_lag
    return [m for m in order if m in listed or (acks.get(m, -1) >= near and m in acks)]
