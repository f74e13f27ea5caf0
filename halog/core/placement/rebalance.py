"""This module plans all partitions of a policy: as many copies as the configuration says, evenly spread (P2, P5, P13),
or placed by hand (P3).

A plan says what moves, and why. It is made before anything is changed. It is arithmetic only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.placement.drain import MoveProposal
from halog.core.placement.spread import PlacementZone, spread
from halog.core.table.definitions import differing
from halog.core.table.group import priority
from halog.core.table.migration import overridden, why_not, why_not_assigned
from halog.core.table.preference import NEVER
from halog.core.table.table import PartitionTable, Target


class PolicyDemand(NamedTuple):
    """A `PolicyDemand` is what a policy asks for. `copies`: of each partition, the active one included; `unlogged`:
    commits do not wait for the log."""

    copies: int
    sync_replicas: int
    zone: PlacementZone
    unlogged: bool = False


def rebalance(tables: Sequence[PartitionTable], shape: PolicyDemand, running: Collection[str]) -> list[MoveProposal]:
    """Return what is to be done, without the partitions that are as they should be. `running`: nodes that could move
    what they have. A move without a target is a partition that stays as it is, and `why` says why."""
    now = {t.name: t.configured if t.target is None else t.target.nodes for t in tables}
    stay = {t.name: why for t in tables if (why := _why_it_stays(t, shape.zone, running, shape.unlogged))}
    never = {t.name: [n for n in shape.zone.nodes if priority(t, n) == NEVER] for t in tables}
    off = {t.name: t.disabled_on for t in tables}
    then = spread(now, shape.copies, shape.zone._replace(never=never, off=off), stay)
    reasons = _Reasons(shape, now)
    moves = []
    for t in tables:
        target = Target(then[t.name], max(0, min(shape.sync_replicas, len(then[t.name]) - 1)))
        if t.name in stay:
            moves.append(MoveProposal(t.name, t.configured, None, stay[t.name]))
        elif not target.nodes:
            moves.append(MoveProposal(t.name, t.configured, None, _why_nowhere(t)))
        elif target != (t.target or Target(t.configured, t.sync_replicas)):
            refused = why_not(t, target, replace=True)  # a move under way is planned anew only where it cannot end
            why = refused or "; ".join(reasons.of(t, target))
            moves.append(MoveProposal(t.name, t.configured, None if refused else target, why))
    return moves


def in_need(tables: Sequence[PartitionTable], absent: Collection[str], ours: Mapping[str, Target]) -> frozenset[str]:
    """Return the partitions that have a place for a node that is gone for good: where they are, or where `ours`, a plan
    that nodes made, moves them to. A move that an operator wished is left to the operator."""
    return frozenset(
        t.name
        for t in tables
        if any(n in absent for n in (t.configured if t.target is None else t.target.nodes))
        and t.target in (None, ours.get(t.name))
    )


def place_by_hand(
    tables: Sequence[PartitionTable],
    wanted: Mapping[str, Target],
    serving: Collection[str],
    running: Collection[str],
    *,
    unlogged: bool = False,
) -> list[MoveProposal]:
    """Return what brings the partitions of a static policy to where the file has them (P3), without those that are
    there.

    `serving`: nodes that may get copies; the rest as in `rebalance` and `PolicyDemand`. Nothing is spread, and no node
    takes the place of one that is down.
    """
    moves = []
    for t in tables:
        target = wanted.get(t.name)
        if target is None:  # the node that defines it places it
            continue
        if t.target == target or (t.target is None and target == Target(t.configured, t.sync_replicas)):
            continue
        absent = [n for n in target.nodes if n not in t.configured and n not in serving]
        stays = _why_it_stays(t, PlacementZone(t.hosts, ()), running, unlogged) or (
            f"{', '.join(absent)} cannot get a copy now" if absent else ""
        )
        stays = stays or why_not(t, target) or ""
        why = f"the configuration has it on {', '.join(target.nodes)} with {target.sync_replicas} sync"
        moves.append(MoveProposal(t.name, t.configured, None if stays else target, stays or why))
    return moves


def _why_it_stays(table: PartitionTable, zone: PlacementZone, running: Collection[str], unlogged: bool) -> str:
    if undecided := differing(table, running):
        return str(undecided[0])
    if table.target is not None and all(n in zone.nodes for n in table.target.nodes):
        return f"it is moving to {', '.join(table.target.nodes)} already"
    if held := overridden(table):
        return f"it cannot move while {held}"
    if any(n in running for n in table.configured):
        return ""
    if any(n in zone.nodes for n in table.configured):
        return f"none of {', '.join(table.configured)} is running, so that nobody could move it"
    return why_not_assigned(table, unlogged=unlogged) or ""  # all its nodes are replaced: it is placed anew


def _why_nowhere(table: PartitionTable) -> str:
    off = ", ".join(sorted(table.disabled_on))
    more = f"; {off} disabled it, `halog partition enable {table.name}` there" if off else ""
    return f"no node of its zone may get a copy now{more}"


class _Reasons:
    """This puts into words why a partition moves, and is for people."""

    def __init__(self, shape: PolicyDemand, now: dict[str, tuple[str, ...]]) -> None:
        self._shape = shape
        self._load = Counter(n for nodes in now.values() for n in nodes)
        self._leads = Counter(nodes[0] for nodes in now.values())

    def of(self, table: PartitionTable, target: Target) -> Iterator[str]:
        before, after = table.configured, target.nodes
        come, go = [n for n in after if n not in before], [n for n in before if n not in after]
        for node in go:
            yield self._why_it_goes(before, node, come)
        if len(after) > len(before):
            yield f"{len(after)} copies instead of {len(before)}"
        elif len(after) < self._shape.copies:
            yield f"no more than {len(after)} copies are possible"
        if before[0] != after[0] and before[0] in after:
            lead, next_ = before[0], after[0]
            yield (
                f"{lead} is a backup node"
                if lead in self._shape.zone.backup
                else f"{lead} is the preferred node of {self._leads[lead]}, {next_} of {self._leads[next_]}"
            )
        elif not come and not go and before != after:
            yield "primary nodes come before backup nodes"
        if table.sync_replicas != target.sync_replicas:
            yield f"{target.sync_replicas} sync replicas instead of {table.sync_replicas}"

    def _why_it_goes(self, before: Sequence[str], node: str, come: Sequence[str]) -> str:
        zone = self._shape.zone
        if node not in zone.nodes:
            return f"{node} is not in the zone, or down"
        twins = [n for n in before if n != node and n in zone.nodes and zone.domain(n) == zone.domain(node)]
        if twins:
            return f"{node} and {twins[0]} are both in failure domain {zone.domain(node)}"
        if all(n in zone.backup for n in before) and not all(n in zone.backup for n in come):
            return "none of its copies is on a primary node"
        if not come or len(before) > self._shape.copies:
            return f"{self._shape.copies} copies instead of {len(before)}"
        fuller = ", ".join(f"{n} {self._load[n]}" for n in come)
        return f"{node} has {self._load[node]} copies, {fuller}"
