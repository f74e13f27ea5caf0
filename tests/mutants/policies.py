"""Mutants of what a policy asks for: stores before acknowledgements (R6), the quorum (R7), when what overrides it ends
(Q3), who is preferred (Q2)."""

from __future__ import annotations

import msgspec

from halog.core import effects as fx, events as ev
from halog.core.active import leader as leading
from halog.core.active.leader import Leader
from halog.core.active.quorum_overrides import QuorumOverrides
from halog.core.active.role_return import RoleReturn
from halog.core.commit.writer import Writer
from halog.core.election import campaign as candidate
from halog.core.partition import Partition
from halog.core.replica.follower import Follower
from halog.core.settings import Sync
from halog.core.state import copy_state
from halog.core.table.table import PartitionTable
from tests.mutants.registry import mutant, patch
from tests.sim import lasting

LASTING = lasting.SEEDS[:2_000]
"""Histories in which overrides last a while."""


@mutant("R6")
def acknowledged_before_it_is_stored() -> None:
    """The acknowledgement leaves with the batch, the write comes when it comes."""

    def step(self: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        return [e for e in real(self, event, now) if not isinstance(e, fx.Save)]

    real = patch(Partition, "step", step)


@mutant("R6")
def stored_after_it_is_acknowledged() -> None:
    """The two in the wrong order."""

    def step(self: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        effects = real(self, event, now)
        return sorted(effects, key=lambda e: isinstance(e, fx.Save))

    real = patch(Partition, "step", step)


@mutant("R6")
def memory_is_enough_for_every_policy() -> None:
    """What is pushed is told as held, whatever the policy asks of a replica."""

    def told(self: Follower) -> None:
        settings = self._copy.settings
        self._copy.settings = msgspec.structs.replace(settings, remote_sync=Sync.NO_SYNC)
        try:
            real(self)
        finally:
            self._copy.settings = settings

    def submit(self: Leader, e: ev.Submitted) -> None:
        settings = self._copy.settings
        self._copy.settings = msgspec.structs.replace(settings, remote_sync=Sync.NO_SYNC)
        try:
            sent(self, e)
        finally:
            self._copy.settings = settings

    real = patch(Follower, "_tell_held", told)
    sent = patch(Leader, "submit", submit)


@mutant("R7")
def quorum_not_counted() -> None:
    """A commit waits for the sync set alone, which may have shrunk to nobody."""

    def held(self: Writer, lsn: int) -> int:
        quorum = self.quorum
        self.quorum = 0
        try:
            return real(self, lsn)
        finally:
            self.quorum = quorum

    real = patch(Writer, "_held", held)


@mutant("R7")
def everybody_counts_for_a_quorum() -> None:
    """A node that can never be active may hold the only copy."""
    patch(leading, "counts", lambda table, node: True)


@mutant("Q3", LASTING)
def an_override_ends_in_the_znode_alone() -> None:
    """Where nobody reaches that it never does (the first core's did not)."""

    def left(self: QuorumOverrides, table: PartitionTable) -> PartitionTable:
        real(self, table)
        return table

    real = patch(QuorumOverrides, "_left", left)


@mutant("Q3", LASTING)
def an_override_ends_with_the_next_tick() -> None:
    """A process that was stopped takes what it was sent meanwhile before it looks at the clock."""

    def step(self: Partition, event: ev.Event, now: int) -> list[fx.Effect]:
        self.state.ticks = isinstance(event, ev.Ticked)  # type: ignore[attr-defined]
        return real(self, event, now)  # type: ignore[no-any-return]

    def end(self: QuorumOverrides) -> None:
        if self._copy.ticks:  # type: ignore[attr-defined]
            real_end(self)

    real = patch(Partition, "step", step)
    real_end = patch(QuorumOverrides, "end", end)


@mutant("Q2")
def elected_by_a_minority() -> None:
    """Whoever answers is enough."""
    patch(candidate, "needed", lambda table, node: 1)


@mutant("Q2")
def never_is_forgotten() -> None:
    """A node of priority never stands for election."""
    patch(copy_state, "priority", lambda table, node: 1)
    patch(candidate, "priority", lambda table, node: 1)


@mutant("Q2")
def the_role_never_returns() -> None:
    """The preferred node stays a replica."""
    patch(RoleReturn, "due", lambda self, now, could_take_over: None)
