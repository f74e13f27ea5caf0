"""Mutants of reads that must miss nothing (R5)."""

from __future__ import annotations

from halog.core import effects as fx, results as res
from halog.core.active.read_barriers import ReadBarriers
from tests.mutants.registry import mutant, patch
from tests.sim import reader

SEEDS = reader.SEEDS[:2_000]
"""Histories with such readers."""


@mutant("R5", SEEDS)
def a_barrier_without_a_record() -> None:
    """Whoever believes to be active answers at once."""

    def asked(self: ReadBarriers, token: int) -> None:
        copy = self._copy
        copy.out.append(fx.Reply(token, res.Success(copy.chain.state.lsn)))

    patch(ReadBarriers, "asked", asked)


@mutant("R5", SEEDS)
def a_record_on_its_way_serves_as_a_barrier() -> None:
    """It was appended before the question, and may be accepted behind what a later epoch answered."""

    def asked(self: ReadBarriers, token: int) -> None:
        before = len(self.waiting)
        real(self, token)
        if len(self.waiting) > before and len(self._writer.queue) > 1:
            lsn, _ = self.waiting.pop()
            self.waiting.append((lsn - 1, token))

    real = patch(ReadBarriers, "asked", asked)


@mutant("R5", SEEDS)
def a_barrier_outlives_its_epoch() -> None:
    """Whoever waits when the epoch ends is told that all is well."""

    def abandon(self: ReadBarriers) -> None:
        while self.waiting:
            lsn, token = self.waiting.popleft()
            self._copy.out.append(fx.Reply(token, res.Success(lsn)))

    patch(ReadBarriers, "abandon", abandon)


@mutant("R5", SEEDS)
def nobody_appends_for_those_who_ask_meanwhile() -> None:
    """They wait for a record that may never come."""
    patch(ReadBarriers, "_go_on", lambda self: None)
