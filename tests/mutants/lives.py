"""Mutants of what nodes say of a partition, and of replicas that are copied anew (P7, P12)."""

from __future__ import annotations

from halog.core import resync as module
from halog.core.ids import Member
from halog.core.leading import Leading
from tests.mutants.registry import mutant, patch
from tests.sim import lives
from tests.sim.world import is_grouped

SEEDS = lives.SEEDS[:2_000]
"""Histories in which nodes say something, and replicas are copied anew,"""

GROUPED = range(next(n for n in lives.SEEDS if is_grouped(n)), lives.SEEDS.stop, 11)[:2_000]
"""and its commits and elections need a quorum."""


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

    def hosts(self: Leading, m: Member) -> bool:
        return m.node in self.p.table.hosts

    patch(Leading, "_hosts", hosts)
