"""Mutants of the node quorum (Q1): what a copy does while its node is offline, and what it goes on from."""

from __future__ import annotations

from halog.core import events as ev, roles
from halog.core.partition import Partition
from halog.core.roles import Role
from tests.mutants.registry import handlers, mutant, patch
from tests.sim import zones

SEEDS = zones.SEEDS[:2_000]
"""Histories in which nodes are offline for a while."""


@mutant("Q1", SEEDS)
def an_offline_node_goes_on() -> None:
    """It takes itself for up, whatever its zones say."""

    def alive_changed(self: Partition, e: ev.AliveChanged) -> None:
        real(self, ev.AliveChanged(e.members | {self.me}, e.why))

    real = patch(Partition, "_alive_changed", alive_changed)
    handlers(ev.AliveChanged, "_alive_changed")


@mutant("P11", SEEDS)
def a_copy_comes_back_as_it_was() -> None:
    """It takes part at once, and reads what it missed beside that."""
    roles.TRANSITIONS[Role.OFFLINE]["restored"] = Role.FOLLOWING
