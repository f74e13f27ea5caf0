"""Mutants of the node quorum (Q1): who has one, what a copy does without it, and what it goes on from afterwards."""

from __future__ import annotations

import msgspec

from halog.core import events as ev, roles
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.table import zones as module
from halog.core.table.zones import NodeContacts, QuorumCount, Zone
from tests.mutants.registry import handlers, mutant, patch
from tests.sim import zones

SEEDS = zones.SEEDS[:2_000]
"""Histories in which nodes are offline for a while."""


@mutant("Q1", SEEDS)
def an_offline_node_goes_on() -> None:
    """It takes itself for up, whatever its zones say."""

    def alive_changed(self: Partition, e: ev.AliveChanged) -> None:
        real(self, ev.AliveChanged(e.members | {self.state.me}, e.why))

    real = patch(Partition, "_alive_changed", alive_changed)
    handlers(ev.AliveChanged, "_alive_changed")


@mutant("P11", SEEDS)
def a_copy_comes_back_as_it_was() -> None:
    """It takes part at once, and reads what it missed beside that."""
    roles.TRANSITIONS[Role.OFFLINE]["restored"] = Role.FOLLOWING


@mutant("Q1", SEEDS)
def whoever_was_once_known_counts() -> None:
    """A node that hears nobody has the votes of all whose addresses it knows."""

    def counted(zone: Zone, me: str, sight: NodeContacts) -> QuorumCount:
        return real(zone, me, msgspec.structs.replace(sight, reached=sight.discovered))

    real = patch(zones, "count", counted)


@mutant("Q1", SEEDS)
def who_is_offline_has_no_vote() -> None:
    """Nodes that lost each other wait for each other."""

    def counted(zone: Zone, me: str, sight: NodeContacts) -> QuorumCount:
        return real(zone, me, msgspec.structs.replace(sight, reached=sight.up))

    real = patch(zones, "count", counted)


@mutant("Q1", SEEDS)
def one_vote_less_is_enough() -> None:
    """Half of the votes is a quorum."""
    patch(QuorumCount, "holds", property(lambda self: self.have + 1 >= self.needed))


@mutant("Q1", SEEDS)
def a_node_that_is_back_is_not_seen() -> None:
    """Partial is for ever."""
    del module.TRANSITIONS[module.ZoneState.PARTIAL]["all nodes up"]

    def happening(state: module.ZoneState, counted: QuorumCount, *, off: bool) -> str | None:
        what = real(state, counted, off=off)
        return what if what in module.TRANSITIONS[state] else None

    real = patch(zones, "happening", happening)
