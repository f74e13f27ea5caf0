"""Mutants of who is doubted when initiators say that they live (D5). Only histories of such tellers notice."""

from __future__ import annotations

from halog.core import effects as fx, events as ev
from halog.core.commit.participant import Participant
from tests.mutants.registry import mutant, patch
from tests.sim import patient

SEEDS = patient.SEEDS[:2_000]


@mutant("D5", SEEDS)
def whoever_was_asked_twice_never_doubts() -> None:
    """The initiator that lived then may be dead by now."""
    again = set[bytes]()

    def known(self: Participant, e: ev.PrepareAsked, now: int, out: list[fx.Effect]) -> bool:
        if e.tx in self.ledger.undecided:
            again.add(e.tx)
        return bool(real(self, e, now, out))

    def doubt(self: Participant, now: int, out: list[fx.Effect]) -> None:
        for tx in again:
            if tx in self._since:
                self._since[tx] = now
        real_doubt(self, now, out)

    real = patch(Participant, "_known", known)
    real_doubt = patch(Participant, "_doubt", doubt)
