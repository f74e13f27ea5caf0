"""This module has the states of a partition (P8) as one node knows them: a table, and how what the node sees becomes a
row of it.

INITIAL      known, and not yet enabled here, or no node serves it yet
ACTIVE       a node is active for it
MIGRATING    the role goes to another node
REPLICATING  the role stays; copies are made
UPDATING     objects go to other partitions
UNAVAILABLE  no node can be active

No node reports a state. Every node watches the partition's znode and the members, and what changes there is a happening
of this table. A look that finds several changes at once (a hand-over that was over before it was seen) takes them one
after the other, so none is lost. MIGRATING, REPLICATING and UPDATING are transient. There is no clock and no I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from halog.core.ids import Member
from halog.core.table.definitions import IN_USE, status
from halog.core.table.group import counts, needed, priority
from halog.core.table.migration import is_moving, preferred
from halog.core.table.preference import NEVER
from halog.core.table.table import DISABLED, PartitionTable
from halog.core.transitions import following


class State(enum.Enum):
    """A `State` is the state of a partition; the module lists the states."""

    INITIAL = "Initial"
    ACTIVE = "Active"
    MIGRATING = "Migrating"
    REPLICATING = "Replicating"
    UPDATING = "Updating"
    UNAVAILABLE = "Unavailable"


TRANSIENT: Final = frozenset({State.MIGRATING, State.REPLICATING, State.UPDATING})

_TRANSIENT = {"done": State.ACTIVE, "no node can be active": State.UNAVAILABLE}

TRANSITIONS: Final[dict[State | None, dict[str, State]]] = {
    None: {"define": State.INITIAL},
    State.INITIAL: {
        "enable, nothing to copy": State.ACTIVE,
        "enable, active node changes": State.MIGRATING,
        "enable, a replica needs data": State.REPLICATING,
    },
    State.ACTIVE: {
        "hand-over": State.MIGRATING,
        "failover": State.MIGRATING,
        "active disabled": State.MIGRATING,
        "redefined with another active": State.MIGRATING,
        "replicas redefined": State.REPLICATING,
        "replication forced": State.REPLICATING,
        "replica restored": State.REPLICATING,
        "objects change partition": State.UPDATING,
        "quorum lost": State.UNAVAILABLE,
        "last node gone": State.UNAVAILABLE,
        "disabled on its only node": State.UNAVAILABLE,
    },
    State.MIGRATING: _TRANSIENT,
    State.REPLICATING: _TRANSIENT,
    State.UPDATING: _TRANSIENT,
    State.UNAVAILABLE: {"quorum back": State.MIGRATING, "node assigned": State.MIGRATING},
}
"""The key `None`: this node knows nothing of the partition."""


def next_state(state: State | None, happening: str) -> State:
    """Return the next state, as the table has it; see `following`."""
    return following(TRANSITIONS, state, happening)


class PartitionSight(msgspec.Struct, frozen=True):
    """A `PartitionSight` is what node `me` knows at one moment."""

    me: str
    table: PartitionTable
    up: frozenset[Member]
    offline: bool = False
    """Does this node lack a quorum in one of its zones (Q1)?"""
    handing: bool = False
    """Is it active, and is it giving the role away just now?"""
    updating: bool = False
    """Do objects go from or to this partition?"""


class StateChange(NamedTuple):
    """A `StateChange` is one row of the table, taken."""

    before: State
    happening: str
    now: State

    @property
    def transient(self) -> bool:
        """Say whether the step goes into or out of a transient state."""
        return self.before in TRANSIENT or self.now in TRANSIENT


class StateTracker:
    """A `StateTracker` follows the state of one partition, in one run of a node."""

    def __init__(self) -> None:
        self.state = next_state(None, "define")
        self.table: PartitionTable | None = None
        """The table at the last look."""

    def look(self, sight: PartitionSight) -> list[StateChange]:
        """Return what has happened since the last look."""
        steps = []
        for happening in happenings(self.state, self.table, sight):
            now = next_state(self.state, happening)
            steps.append(StateChange(self.state, happening, now))
            self.state = now
        self.table = sight.table
        return steps


def happenings(state: State, before: PartitionTable | None, sight: PartitionSight) -> Iterator[str]:
    """Yield what this sight means in `state`, in order; `before`: the table of the look before."""
    was = None if before is None else before.active
    moved = state is not State.MIGRATING and None not in (was, sight.table.active) and was != sight.table.active
    stands, why = standing(sight)
    if state is State.MIGRATING and stands is State.REPLICATING and is_moving(sight.table):
        return  # MIGRATING lasts until the leaving nodes have left
    if state is State.INITIAL:
        first = _first(stands, sight)
        if first is None:
            return
        yield first
        state, moved = next_state(state, first), False
    while (step := _next(state, stands, why, moved, before, sight)) is not None:
        moved = moved and next_state(state, step) is not State.MIGRATING
        yield step
        state = next_state(state, step)


def _first(stands: State, sight: PartitionSight) -> str | None:
    """Return the way out of INITIAL, once the partition is enabled here and a node serves it."""
    table = sight.table
    if status(table, sight.me) not in IN_USE or table.active is None or table.active not in sight.up:
        return None
    if stands is State.MIGRATING:
        return "enable, active node changes"
    if stands is State.REPLICATING and sight.me in _waited_for(sight):
        return "enable, a replica needs data"
    return None if stands is State.UNAVAILABLE else "enable, nothing to copy"


def _next(
    state: State, stands: State, why: str, moved: bool, before: PartitionTable | None, sight: PartitionSight
) -> str | None:
    if state is State.ACTIVE:
        if moved and stands is not State.UNAVAILABLE:
            return _how(before, sight)
        return None if stands is State.ACTIVE else why
    if state is State.UNAVAILABLE:
        if stands is State.UNAVAILABLE:
            return None
        return "quorum back" if before is None or before.hosts == sight.table.hosts else "node assigned"
    if stands is State.UNAVAILABLE:
        return "no node can be active"
    return None if stands is state and not moved else "done"


def _how(before: PartitionTable | None, sight: PartitionSight) -> str:
    """Say how the role went to another node, or another run of it: a node that handed over is a replica afterwards."""
    was = None if before is None else before.active
    return "hand-over" if was in {r.member for r in sight.table.replicas} else "failover"


# --- how it stands ---


def standing(sight: PartitionSight) -> tuple[State, str]:
    """Return the state that this sight shows, whatever was before, and the happening that leads there from ACTIVE."""
    table, active = sight.table, sight.table.active
    if table.shut:
        return State.UNAVAILABLE, "disabled on its only node"
    if lost := _why_nobody(sight):
        return State.UNAVAILABLE, lost
    if active is None or active not in sight.up:
        return State.MIGRATING, "failover"
    if sight.handing:
        return State.MIGRATING, "hand-over"
    return _copying(sight, active)


def _copying(sight: PartitionSight, active: Member) -> tuple[State, str]:
    table = sight.table
    if is_moving(table):  # a migration that an override holds up does not count
        if preferred(table) in (None, active.node):
            return State.REPLICATING, "replicas redefined"
        own = table.definitions.get(active.node)
        off = own is not None and own.said == DISABLED
        return State.MIGRATING, "active disabled" if off else "redefined with another active"
    if table.resync is not None:
        return State.REPLICATING, "replication forced"
    if _waited_for(sight):
        return State.REPLICATING, "replica restored"
    return (State.UPDATING, "objects change partition") if sight.updating else (State.ACTIVE, "done")


def _why_nobody(sight: PartitionSight) -> str:
    """Return why no node can be active; "": one can."""
    table = sight.table
    if sight.offline:
        return "quorum lost"
    there = [m.node for m in sight.up if m.node in table.present]
    if all(priority(table, n) == NEVER for n in there) and table.active not in sight.up:
        return "last node gone"
    able = [n for n in there if counts(table, n)]
    if not any(len({*able, n}) >= needed(table, n) for n in there):
        return "quorum lost"
    return ""


def _waited_for(sight: PartitionSight) -> set[str]:
    """Return nodes that are up, host the partition, and are not in the node list in their present run."""
    table = sight.table
    in_list = {table.active, *(r.member for r in table.replicas)}
    return {m.node for m in sight.up if m.node in table.present and m not in in_list}


# --- who tells of it ---


def teller(table: PartitionTable, up: frozenset[Member]) -> str | None:
    """Return the node that tells of what all nodes see: the active one, else the first of the partition's nodes that is
    up, else the first of all."""
    names = {m.node for m in up}
    first = (*table.node_list, *table.hosts, *sorted(names))
    return next((n for n in first if n in names), None)
