"""This module gives the active role to a node that is preferred, by a planned hand-over after a stay (Q2).

It begins only what would be over in a moment: the successor has everything but a few records. An attempt that fails all
the same is repeated later and later, since callers may wait for a whole drain each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from halog.core import events as ev
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.table.group import priority, rank
from halog.core.table.migration import is_moving, preferred
from halog.core.table.preference import NEVER

OWN: Final = 0
"""The token of a hand-over that nobody asked for."""

MOST_PATIENCE: Final = 16
"""At most so many stays pass between two attempts: after four failures there is no hurry."""


class RoleReturn:
    """A `RoleReturn` decides for one epoch. Times are ms as its copy has lived through them."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._listed_at: dict[Member, int] = {}
        self._moved_at = 0
        self._patience = 1
        """When this epoch began, or last failed to give the role away; and how many stays to wait for the next
        attempt."""

    def failed(self, now: int) -> None:
        """Note that a hand-over was called off."""
        self._moved_at = now
        self._patience = min(2 * self._patience, MOST_PATIENCE)

    def due(self, now: int, could_take_over: Callable[[Member], bool]) -> ev.HandOverAsked | None:
        """Return the hand-over that is due now, if any."""
        copy, table, me = self._copy, self._copy.table, self._copy.me.node
        self._listed_at = {r.member: self._listed_at.get(r.member, now) for r in table.replicas}
        unfit = priority(table, me) == NEVER
        moving = is_moving(table) and not unfit
        stay = (copy.settings.drain_ms if unfit or moving else copy.settings.min_stay_ms) * self._patience
        if copy.role is not Role.ACTIVE or not stay or now - self._moved_at < stay or table.group.designated == me:
            return None  # the others of a designated node may not even go on alone
        if moving:
            return self._to_new_home(could_take_over)
        for r in sorted(table.replicas, key=lambda r: rank(table, r.node)):
            stayed = now - self._listed_at[r.member] >= stay
            better = unfit or (stayed and rank(table, r.node) < rank(table, me))
            if better and priority(table, r.node) != NEVER and could_take_over(r.member):
                why = f"{me} is not to be active" if unfit else f"{r.node} is preferred, and is back"
                return ev.HandOverAsked(OWN, r.node, why)
        return None

    def _to_new_home(self, could_take_over: Callable[[Member], bool]) -> ev.HandOverAsked | None:
        """Return the hand-over of a migration: once, to the node that is to keep the role, as soon as that node can
        take it."""
        table, me = self._copy.table, self._copy.me.node
        best = preferred(table)
        for r in table.replicas:
            if r.node == best and could_take_over(r.member):
                return ev.HandOverAsked(OWN, r.node, f"{me} moves {table.name} to {r.node}")
        return None
