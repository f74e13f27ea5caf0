"""Mutants of migrations (P12): who may join, who may leave, and when."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from halog.core.active.role_return import RoleReturn
from halog.core.table import migration as module
from halog.core.table.table import PartitionTable
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


@mutant("R7", SEEDS)
def a_quorum_of_the_old_size() -> None:
    """The number stays, whatever the group is."""

    def placed(table: PartitionTable, *args: object) -> PartitionTable:
        after: PartitionTable = real(table, *args)
        return msgspec.structs.replace(after, quorum=table.quorum)

    real = patch(module, "_placed", placed)


@mutant("R7", GROUPED)
def the_living_leave_before_the_dead() -> None:
    """Until a group of two has one that is dead."""

    def next_table(table: PartitionTable, ready: Collection[str]) -> PartitionTable | None:
        after: PartitionTable | None = real(table, ready)
        left = [n for n in table.configured if after is not None and n not in after.configured]
        up = [n for n in table.configured if table.target and n not in table.target.nodes and n in table.node_list]
        spared = [n for n in up if table.active is not None and n != table.active.node]
        if after is None or not left or left[0] in up or not spared:
            return after
        members = [n for n in table.configured if n != spared[0]]
        assert table.target is not None
        return module._placed(table, members, table.target)

    real = patch(module, "next_table", next_table)


@mutant("P12", SEEDS)
def a_role_that_stays() -> None:
    """The active node never gives it to the node that is to have it."""
    patch(RoleReturn, "_to_new_home", lambda self, could_take_over: None)


@mutant("P12", SEEDS)
def an_active_node_that_leaves() -> None:
    """It lets itself go like the others."""
    patch(module, "_may_leave", lambda table, node: module._is_whole(table))
