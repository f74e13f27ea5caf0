"""This module has the node quorum of an availability zone, as one of its nodes sees it (Q1): a table of states, and
arithmetic.

ACTIVE    all nodes discovered are up, and there is a quorum
PARTIAL   some discovered node is down, and there is a quorum
DISABLED  there is no quorum: this node serves nothing, and refuses keep-alives

A quorum counts the nodes that a node *reaches*. A node that is itself offline, because it lacks a quorum, still votes;
otherwise nodes that lost each other could never come back. A node is *up* if it is reached and not offline; that only
tells ACTIVE from PARTIAL. A zone without a quorum, or whose quorum is switched off, is never DISABLED. There is no
clock and no I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from halog.core.transitions import following


class ZoneState(enum.Enum):
    """A `ZoneState` says how a node stands in one of its zones; the module lists the states."""

    ACTIVE = "active"
    PARTIAL = "partial"
    DISABLED = "disabled"


TRANSITIONS: dict[ZoneState, dict[str, ZoneState]] = {
    ZoneState.ACTIVE: {"a node down": ZoneState.PARTIAL, "quorum lost": ZoneState.DISABLED},
    ZoneState.PARTIAL: {"all nodes up": ZoneState.ACTIVE, "quorum lost": ZoneState.DISABLED},
    ZoneState.DISABLED: {"quorum back, a node down": ZoneState.PARTIAL, "quorum back, all nodes up": ZoneState.ACTIVE},
}


def next_state(state: ZoneState, happening: str) -> ZoneState:
    """Return the next state, as the table has it; see `following`."""
    return following(TRANSITIONS, state, happening)


class Zone(msgspec.Struct, frozen=True):
    """A `Zone` is a zone as configured: its nodes with their votes, and at most one of the three demands (0: not asked
    for)."""

    name: str
    votes: Mapping[str, int]
    minimum_votes: int = 0
    percentage: int = 0
    minimum_remote: int = 0

    @property
    def guarded(self) -> bool:
        """Say whether the zone has a quorum."""
        return bool(self.minimum_votes or self.percentage or self.minimum_remote)

    @property
    def demand(self) -> str:
        """Return the zone's quorum in words; "" if it has none."""
        if self.percentage:
            return f"{self.percentage} % of {sum(self.votes.values())} votes"
        if self.minimum_votes:
            return f"{self.minimum_votes} of {sum(self.votes.values())} votes"
        return f"{self.minimum_remote} remote nodes" if self.minimum_remote else ""


class NodeContacts(msgspec.Struct, frozen=True):
    """A `NodeContacts` is what a node knows of the others, itself left out: whose address it has known, whom it hears,
    and which of them are not offline."""

    discovered: frozenset[str] = frozenset()
    reached: frozenset[str] = frozenset()
    up: frozenset[str] = frozenset()


class QuorumCount(msgspec.Struct, frozen=True):
    """A `QuorumCount` is a zone counted by one of its nodes: what it has, what it needs (0: nothing), in which unit;
    and who is down."""

    have: int
    needed: int
    of: str
    down: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.have} {self.of}, {self.needed} needed"

    @property
    def holds(self) -> bool:
        """Say whether there is a quorum."""
        return self.have >= self.needed


def count(zone: Zone, me: str, sight: NodeContacts) -> QuorumCount:
    """Count what `me`, one of the zone's nodes, has of its quorum. Only the zone's nodes count."""
    others = [n for n in zone.votes if n != me]
    reached = [n for n in others if n in sight.reached]
    down = tuple(n for n in others if n in sight.discovered and n not in sight.up)
    if zone.minimum_remote:
        return QuorumCount(len(reached), zone.minimum_remote, "remote nodes", down)
    have = sum(zone.votes[n] for n in (me, *reached))
    share = -(-zone.percentage * sum(zone.votes.values()) // 100)  # rounded up
    return QuorumCount(have, zone.minimum_votes or share, "votes", down)


def first_state(zone: Zone, *, off: bool) -> ZoneState:
    """Return the state of a node that starts: it has reached no other node yet."""
    return ZoneState.DISABLED if zone.guarded and not off else ZoneState.ACTIVE


def happening(state: ZoneState, counted: QuorumCount, *, off: bool) -> str | None:
    """Return what this count means in `state`; None: nothing new. `off`: the quorum is switched off."""
    whole = not counted.down
    if not counted.holds and not off:
        return None if state is ZoneState.DISABLED else "quorum lost"
    if state is ZoneState.DISABLED:
        return f"quorum back, {'all nodes up' if whole else 'a node down'}"
    if whole == (state is ZoneState.ACTIVE):
        return None
    return "all nodes up" if whole else "a node down"
