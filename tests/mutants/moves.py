"""Mutants of migrations (P12): who may join, who may leave, and when."""

from __future__ import annotations

import msgspec

from halog.core import migrating as module
from halog.core.leading import Leading
from halog.core.migrating import Migrating
from halog.core.returning import Returning
from halog.core.table import PartitionTable
from tests.mutants.registry import mutant, patch
from tests.sim import moves
from tests.sim.world import is_grouped

SEEDS = moves.SEEDS[:2_000]
"""Histories in which operators move the partition,"""

GROUPED = range(next(n for n in moves.SEEDS if is_grouped(n)), moves.SEEDS.stop, 11)[:2_000]
"""and its commits and elections need a quorum."""


@mutant("P12", SEEDS)
def nodes_leave_before_others_have_come() -> None:
    """Whoever is not wanted goes at once."""
    patch(module, "_is_whole", lambda table: table.active is not None)


@mutant("R7", GROUPED)
def a_group_changed_before_it_has_confirmed() -> None:
    """One member after the other, and nobody looks who has what was committed."""
    patch(Migrating, "_confirmed", lambda self: True)


@mutant("R7", SEEDS)
def a_quorum_of_the_old_size() -> None:
    """The number stays, whatever the group is."""

    def placed(table: PartitionTable, *args: object) -> PartitionTable:
        after: PartitionTable = real(table, *args)
        return msgspec.structs.replace(after, quorum=table.quorum)

    real = patch(module, "_placed", placed)


@mutant("S3", SEEDS)
def acknowledgements_of_a_copy_that_is_gone() -> None:
    """A node that comes back is taken for as level as it was when it left."""
    patch(Leading, "_hosts", lambda self, m: True)


@mutant("P12", SEEDS)
def a_role_that_stays() -> None:
    """The active node never gives it to the node that is to have it."""
    patch(Returning, "_to_new_home", lambda self, could_take_over: None)


@mutant("P12", SEEDS)
def an_active_node_that_leaves() -> None:
    """It lets itself go like the others."""
    patch(module, "_may_leave", lambda table, node: module._is_whole(table))
