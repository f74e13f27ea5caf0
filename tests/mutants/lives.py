"""Mutants of what nodes say of a partition, and of replicas that are copied anew (P7, P12);
and of a partition's state (P8)."""

from __future__ import annotations

from collections.abc import Iterator

from halog.core.active.leader import Leader
from halog.core.ids import Member
from halog.core.keys.mapping import PolicyMapping
from halog.core.table import resync as module, states as life
from halog.core.table.states import PartitionSight, State
from halog.core.table.table import PartitionTable
from tests.mutants.registry import mutant, patch
from tests.sim import lives, shop
from tests.sim.world import is_grouped

SEEDS = lives.SEEDS[:2_000]
"""Histories in which nodes say something, and replicas are copied anew,"""

GROUPED = range(next(n for n in lives.SEEDS if is_grouped(n)), lives.SEEDS.stop, 11)[:2_000]
"""and its commits and elections need a quorum."""

SHOPS = shop.SEEDS[:2_000]
"""Histories in which objects change partition."""


@mutant("P12", SEEDS)
def the_next_replica_goes_out_before_the_last_is_back() -> None:
    """Whoever's turn it is goes at once."""
    patch(module, "_all_others", lambda table, node, up: True)


@mutant("P12", GROUPED)
def a_replica_goes_out_below_the_quorum() -> None:
    """Nobody looks how many are left."""
    patch(module, "_why_too_few", lambda table, node, nodes=(): None)


@mutant("P12", SEEDS)
def what_a_copy_acknowledged_counts_when_it_is_dropped() -> None:
    """It is in the node list again before it has a copy."""

    def hosts(self: Leader, m: Member) -> bool:
        return m.node in self._copy.table.hosts

    patch(Leader, "_hosts", hosts)


@mutant("P8", SHOPS)
def nobody_sees_that_objects_change_partition() -> None:
    """The table's row from Active to Updating is never taken."""
    patch(PolicyMapping, "updating", lambda mapping, policy: ())


@mutant("P8", SHOPS)
def a_partition_is_updating_until_all_are_clean() -> None:
    """Though nothing goes from it or to it any more."""

    def updating(mapping: PolicyMapping, policy: str) -> tuple[str, ...]:
        changing = mapping.changing
        return mapping.partition_names(policy) if changing is not None and changing.open else ()

    patch(PolicyMapping, "updating", updating)


@mutant("P8", SHOPS)
def who_is_updating_stays_so_when_no_node_can_be_active() -> None:
    """The row from Updating to Unavailable is missing."""

    def happenings(state: State, before: PartitionTable | None, sight: PartitionSight) -> Iterator[str]:
        for happening in real(state, before, sight):
            if state is State.UPDATING and happening == "no node can be active":
                return
            yield happening

    real = patch(life, "happenings", happenings)
