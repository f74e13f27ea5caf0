"""Mutants of transactions that ask for less than their policy, or for more (R6). Only the histories in which clients
ask can notice.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.leader import Leader
from halog.core.commit.demands import Demands
from halog.core.commit.durability_requests import DurabilityRequests
from halog.core.commit.writer import Writer
from halog.core.durability import Durability
from halog.core.ids import Member
from halog.core.replica.follower import Follower
from halog.core.state.copy_state import CopyState
from tests.mutants.registry import mutant, patch
from tests.sim import shown
from tests.sim.world import ASKING

SEEDS = range(ASKING[-1], 1 << 20, 13)[:2_000]
LESS = range(28, 1 << 20, 65)[:2_000]
"""Of these, those in which most ask for less, but for one of seven."""


@mutant("R6", SEEDS)
def held_counts_as_flushed() -> None:
    """What a replica has in memory is taken for what is on its disk."""

    def replica_ack(self: Leader, e: ev.ReplicaAck) -> None:
        real(self, msgspec.structs.replace(e, flushed=e.lsn))

    real = patch(Leader, "replica_ack", replica_ack)


@mutant("R6", SEEDS)
def said_to_be_flushed_before_it_is() -> None:
    """The replica tells when the disk was asked, not when it has done it."""

    def flush(self: Follower) -> None:
        real(self)
        if self._flushing > self._flushed:
            self._flushed = self._flushing
            self.acknowledge(repeat=True)

    real = patch(Follower, "_flush", flush)


@mutant("R6", SEEDS)
def weaker_than_asked_when_a_replica_leaves() -> None:
    """All that are there have it: that must be enough."""

    def count(self: Demands, members: Iterable[Member]) -> None:
        there = list(members)
        real(self, there)
        for wanted in self.wanted.values():
            wanted.replicas = min(wanted.replicas, len(there))

    real = patch(Demands, "count", count)


@mutant("R6", SEEDS)
def flushed_by_fewer_than_asked() -> None:
    """One disk is as good as two."""
    patch(Demands, "had", lambda self, lsn, replicas: self._had.get(1, 0) >= lsn)


@mutant("R6", SEEDS)
def what_a_store_holds_at_its_start_is_taken_for_flushed() -> None:
    """It was handed to the operating system before; that was not asked to write it."""

    def init(self: Follower, copy: CopyState) -> None:
        real(self, copy)
        self._flushed = copy.chain.state.lsn

    real = patch(Follower, "__init__", init)


@mutant("W6", SEEDS)
def refused_though_it_may_have_happened() -> None:
    """Whether it can be granted is looked at first, whether it is known then."""
    patch(DurabilityRequests, "_is_known", lambda self, tx: False)


@mutant("R6", SEEDS)
def a_repeated_one_waits_for_no_disk() -> None:
    """The second attempt under the same id is answered as soon as the log has it."""

    def of(self: Demands, lsn: int, asked: Durability | None) -> int:
        return 0

    patch(Demands, "of", of)


@mutant("R6", SEEDS)
def answered_early_before_its_predecessors() -> None:
    """What does not wait for the log overtakes what does."""

    def settle_early(self: Writer, upto: int, out: list[fx.Effect]) -> None:
        for item in list(self.queue)[self.shown :]:
            if item.lsn <= upto and item.early and not item.answered:
                item.answered = True
                out.append(fx.Show([item.record]))
                out.extend(fx.Reply(t, res.Success(item.lsn)) for t in item.tokens)

    patch(Writer, "_settle_early", settle_early)


@mutant("R6", SEEDS)
def all_are_answered_early_once_one_asks_for_it() -> None:
    """Those behind it wait for no more than it does."""

    def settle_asked(self: Writer, upto: int, out: list[fx.Effect]) -> None:
        early = self.early
        self.early = True
        try:
            real(self, upto, out)
        finally:
            self.early = early

    real = patch(Writer, "_settle_asked", settle_asked)


@mutant("R6", SEEDS)
def answered_early_with_nobody_to_hold_it() -> None:
    """No replica is waited for, so none is missing."""

    def settle_asked(self: Writer, upto: int, out: list[fx.Effect]) -> None:
        backed = self.backed
        self.backed = True
        try:
            real(self, upto, out)
        finally:
            self.backed = backed

    real = patch(Writer, "_settle_asked", settle_asked)


@mutant("R6", SEEDS)
def answered_early_before_the_replicas_hold_it() -> None:
    """As soon as it is on its way."""

    def held(self: Writer, lsn: int) -> int:
        return lsn if lsn > self.chain.state.lsn else real(self, lsn)  # type: ignore[no-any-return]

    real = patch(Writer, "_held", held)


@mutant("W7", SEEDS)
def answered_early_and_not_shown() -> None:
    """The client knows that it happened, and does not see it."""

    def settle_early(self: Writer, upto: int, out: list[fx.Effect]) -> None:
        real(self, upto, out)
        out[:] = [e for e in out if not isinstance(e, fx.Show)]

    real = patch(Writer, "_settle_early", settle_early)


@mutant("P4", LESS)
def a_version_read_early_is_an_lsn() -> None:
    """What was read and lost is taken for what has its lsn now."""
    patch(shown, "early_version", lambda epoch, lsn: lsn)
