"""Mutants of late requests (R4, R5): where one is done, what whoever has one under way believes, and what he asks."""

from __future__ import annotations

import msgspec

from halog.core import events as ev
from halog.core.partition import Partition
from tests.mutants.registry import handlers, mutant, patch
from tests.sim import late

SEEDS = late.SEEDS[:2_000]


@mutant("R5", SEEDS)
def what_is_late_is_done_in_a_later_epoch() -> None:
    """Whoever is active takes every request that knows of no later epoch."""

    def submitted(self: Partition, e: ev.Submitted) -> None:
        real(self, msgspec.structs.replace(e, exact=False))

    real = patch(Partition, "_submitted", submitted)
    handlers(ev.Submitted, "_submitted")


@mutant("R5", SEEDS)
def a_refusal_that_may_be_overtaken_is_believed() -> None:
    """What is in the way of the second request is in the way of the first, whenever it arrives."""
    patch(late, "may_be_overtaken", lambda request, result: False)


@mutant("R4", SEEDS)
def it_is_asked_under_the_epoch_that_was_known_first() -> None:
    """The others of its requests are of later ones."""
    patch(late, "asks_under", lambda tx: tx.first)
