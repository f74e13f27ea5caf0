"""Mutants of copies that stop where commits do not wait for the log (decision 13). Only the histories in which they do
can notice."""

from __future__ import annotations

from halog.core.election import positions
from halog.core.election.campaign import Campaign
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.state.tail import Tail
from tests.mutants.registry import mutant, patch
from tests.sim.stopping import SEEDS as ALL

SEEDS = ALL[:1_500]


@mutant("E6", SEEDS)
def a_copy_that_stops_leaves_nothing() -> None:
    """Its memory was the last place."""
    patch(Tail, "stopped", lambda self: iter(()))


@mutant("E2", SEEDS)
def an_active_that_stops_is_no_holder() -> None:
    """Seed 10708, as it was: the claim of its replica names nobody but who holds nothing."""
    patch(Campaign, "_holds", lambda self: self._copy.role is not Role.FAILED)


@mutant("E3", SEEDS)
def what_is_brought_along_is_not_told_while_the_log_is_read() -> None:
    """Somebody else claims meanwhile, and goes on without it."""

    def told(copy: CopyState) -> tuple[bytes, ...] | None:
        return None if copy.role is Role.LOADING else real(copy)

    real = patch(positions, "_tail_told", told)
