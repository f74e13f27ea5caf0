"""This module handles transactions that ask for less or more than their policy, on the active node of one epoch (R6).

What cannot be given is refused before anything is appended. Replicas are asked to flush as often as necessary: the
question may be lost, and so may its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.push import ReplicaPush
from halog.core.commit.writer import Writer
from halog.core.durability import Durability
from halog.core.ids import EpochId, Member
from halog.core.settings import Sync
from halog.core.state.copy_state import CopyState
from halog.core.table.table import PartitionTable


class DurabilityRequests:
    """Handles the requests of one epoch."""

    def __init__(
        self, copy: CopyState, epoch: EpochId, writer: Writer, pushing: ReplicaPush, silent: Set[Member]
    ) -> None:
        """Take the parts of the epoch. `silent` are the members whose copies acknowledge nothing new; it changes while
        the epoch lasts."""
        self._copy = copy
        self._epoch = epoch
        self._writer = writer
        self._pushing = pushing
        self._silent = silent
        self._asked_at = copy.now

    def submit(self, e: ev.Submitted, durability: Durability) -> None:
        """Take a commit. A repeated id is answered or joined; a new one is refused, or appended with what it asks
        for."""
        copy, writer = self._copy, self._writer
        refusal = None if self._is_known(e.tx) else self._refusal(durability)
        if refusal is not None:
            copy.out.append(fx.Reply(e.token, refusal))
            return
        writer.submit(e, copy.now, copy.out)
        if writer.tag > copy.tag:
            self._pushing.sent(copy.out)
            writer.asks(durability)
        if durability.flushed:
            self._ask()

    def _is_known(self, tx: bytes) -> bool:
        """Say whether the transaction may have happened: that comes first (W6)."""
        outcomes = self._copy.outcomes
        return self._writer.knows(tx) or outcomes.get(tx) is not None or outcomes.expired(tx)

    def _refusal(self, durability: Durability) -> res.Result | None:
        copy, limit = self._copy, self._copy.settings.max_in_flight
        why = why_not(durability, copy.table, copy.settings.local_sync)
        if why is not None:
            return res.Refusal(why)
        there = len((copy.table.sync_set & copy.alive) - self._silent)
        if there < durability.flushed:
            return res.Shortage(there, durability.flushed, "sync replicas")
        return res.Busy(limit) if len(self._writer.demands.wanted) >= limit else None

    # --- replicas ---

    def flushed(self, e: ev.ReplicaAck) -> bool:
        """Take what a replica says is on its disk. Return whether it is more than before."""
        known = self._writer.demands.flushed
        if e.flushed <= known.get(e.member, 0):
            return False
        known[e.member] = e.flushed
        return True

    def have_flushed(self, members: Iterable[Member], upto: int) -> bool:
        """Say whether all members have everything up to `upto` on their disks. If not, they are asked now and then."""
        flushed = self._writer.demands.flushed
        late = [m for m in members if flushed.get(m, 0) < upto]
        if late and self._may_ask():
            self._send(late, upto)
        return not late

    def _may_ask(self) -> bool:
        return self._copy.now - self._asked_at >= self._copy.settings.ack_every_ms

    def _ask(self) -> None:
        writer = self._writer
        upto, flushed = writer.demands.upto, writer.demands.flushed
        self._send([m for m in writer.wait_set if m in self._copy.alive and flushed.get(m, 0) < upto], upto)

    def _send(self, to: Sequence[Member], upto: int) -> None:
        if to:
            self._asked_at = self._copy.now
            self._copy.out.append(fx.AskFlush(tuple(sorted(m.node for m in to)), self._epoch, upto))

    def ticked(self) -> None:
        if self._writer.asked and self._may_ask():
            self._ask()


def why_not(asked: Durability, table: PartitionTable, local_sync: Sync) -> str | None:
    """Return why a partition of this policy cannot give it, whichever nodes are up; None: it can."""
    policy = f"{table.name} is of policy {table.policy}"
    if asked.local is not None and Sync[asked.local] > local_sync:
        return (
            f'local="{asked.local}" was asked for, {policy} with local_sync = "{local_sync.name}", which is how its '
            "log was made; ask for that or less, or bind the type to a policy that gives more; nothing was done"
        )
    if asked.flushed > table.sync_replicas:
        return (
            f'remote="SYNC" of {asked.flushed} replicas was asked for, {policy} with sync_replicas = '
            f"{table.sync_replicas}; ask for that or fewer, or bind the type to a policy that has more; nothing was "
            "done"
        )
    return None
