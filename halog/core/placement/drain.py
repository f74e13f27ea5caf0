"""This module plans where the copies of a node go that is to be emptied (P12, X4), before anything is changed.

A node's place in a node list goes to another node of the zone that runs, has no copy and has not disabled the partition
(P7). A node in a failure domain without a copy comes first, if there is one (P5); then the node with the fewest copies,
so that roles and load stay as evenly spread as they were. A node that was itself drained is chosen only if all others
have a copy. Where there is no such node the list may get shorter, if the operator allows that; a partition is never
left without a node. It is arithmetic only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from halog.core.table.migration import why_not, why_not_assigned
from halog.core.table.table import PartitionTable, Target


class MoveProposal(NamedTuple):
    """A `MoveProposal` is one partition's part of the plan. `target` is None where it cannot move; `why` gives the
    reason in either case."""

    partition: str
    before: tuple[str, ...]
    target: Target | None
    why: str


def plan(
    tables: Iterable[PartitionTable],
    node: str,
    zones: Mapping[str, Sequence[str]],
    up: Collection[str],
    registered: Collection[str],
    *,
    unlogged: Collection[str] = (),
    backup: Mapping[str, Collection[str]] = {},
    domains: Mapping[str, str] = {},
    drained: Collection[str] = (),
    allow_fewer: bool = False,
) -> list[MoveProposal]:
    """Return what is to be done so that `node` hosts nothing.

    `zones`: policy → nodes that may host it. `backup`: those of them for replicas. `domains`: node → failure domain; a
    node without one is a domain of its own. `up`: nodes that serve, and may get more. `registered`: nodes that run, and
    could move what they have. `unlogged`: policies whose commits do not wait for the log. `drained`: nodes that were
    emptied before.
    """
    tables = list(tables)
    load = Counter(n for t in tables for n in _wanted(t).nodes)
    moves = []
    for t in tables:
        if node in t.hosts:
            able = [n for n in zones.get(t.policy, ()) if n in up and n != node]
            room = _Room(able, load, backup.get(t.policy, ()), domains, drained)
            move = _move(t, node, room, allow_fewer)
            if move.target is not None and not any(n in registered for n in t.configured):
                move = _checked(t, move.target, move.why, why_not_assigned(t, unlogged=t.policy in unlogged))
            load.update((move.target or _wanted(t)).nodes)
            load.subtract(_wanted(t).nodes)
            moves.append(move)
    return moves


def _wanted(table: PartitionTable) -> Target:
    return table.target or Target(table.configured, table.sync_replicas)


class _Room(NamedTuple):
    """This is where a partition's copies may go, and by what a node is chosen."""

    able: Sequence[str]
    load: Counter[str]
    backup: Collection[str]
    domains: Mapping[str, str]
    drained: Collection[str]

    def best(self, free: Sequence[str], instead_of: str, rest: Sequence[str]) -> tuple[str, str]:
        """Choose one of `free` to stand beside `rest`, and say why."""
        others = [n for n in free if n not in self.drained]
        last = "" if others else ", and was drained, as all that have none"
        free = others or free
        taken = {domain for n in rest if (domain := self.domains.get(n))}
        far = [n for n in free if self.domains.get(n) not in taken]
        to = min(far or free, key=lambda n: ((n in self.backup) != (instead_of in self.backup), self.load[n]))
        apart = ", is in a failure domain that has none," if far and len(far) < len(free) else ","
        kind = (" of the backup nodes" if to in self.backup else " of the primary nodes") if self.backup else " in all"
        return to, f"{to} has no copy of it{apart} and the fewest copies{kind}{last}"


def _move(table: PartitionTable, node: str, room: _Room, allow_fewer: bool) -> MoveProposal:
    now = _wanted(table)
    if node not in now.nodes:
        return MoveProposal(table.name, table.configured, now, f"it is moving away from {node} already")
    off = [n for n in room.able if n in table.disabled_on and n not in now.nodes]
    free = [n for n in room.able if n not in now.nodes and n not in off]
    if free:
        to, why = room.best(free, node, [n for n in now.nodes if n != node])
        nodes = tuple(sorted((to if n == node else n for n in now.nodes), key=lambda n: n in room.backup))
    elif allow_fewer and len(now.nodes) > 1:
        nodes = tuple(n for n in now.nodes if n != node)
        why = "no other node that runs is without a copy: one copy less"
    else:
        more = f", but {', '.join(off)}, where it is disabled" if off else ""
        more += "; --allow-fewer goes on with one copy less" if len(now.nodes) > 1 else ""
        return MoveProposal(
            table.name, table.configured, None, f"no other node of its zone runs and is without a copy{more}"
        )
    target = Target(nodes, min(now.sync_replicas, len(nodes) - 1))
    return _checked(table, target, why, why_not(table, target))


def _checked(table: PartitionTable, target: Target, why: str, refused: str | None) -> MoveProposal:
    return MoveProposal(table.name, table.configured, None if refused else target, refused or why)
