"""This module says in which order nodes are upgraded, and who takes over what each of them is active for (U1). It is
arithmetic only.

The node that is active for the fewest partitions is the first: then there is a new node that takes over from the
others. Who runs the release that is wanted takes over before those who do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from halog.core.placement.stop_check import CLOSE
from halog.core.table.group import priority, rank
from halog.core.table.preference import NEVER
from halog.core.table.table import SYNC, PartitionTable
from halog.metadata.nodes import NodeInfo
from halog.metadata.upgrades import Upgrade

CAUGHT_UP: Final = "caught up"


class Succession(NamedTuple):
    """A `Succession` is one partition's part of a plan: it is active on a node that is to be restarted, and on `to`
    then; "": no other node can be active."""

    partition: str
    to: str


class PlannedNode(NamedTuple):
    """A `PlannedNode` is a node's place in a plan."""

    node: str
    runs: str
    """Its release; "": it is not registered."""
    needed: bool
    """Does it run another one than it should?"""
    successions: tuple[Succession, ...]


def hosting(nodes: Mapping[str, NodeInfo]) -> dict[str, NodeInfo]:
    """Return the registered nodes that host partitions."""
    return {name: info for name, info in nodes.items() if info.hosts}


def ordered(names: Iterable[str], tables: Iterable[PartitionTable]) -> list[str]:
    """Return nodes in the order in which they are upgraded."""
    active = Counter(t.active.node for t in tables if t.active is not None)
    return sorted(names, key=lambda name: (active[name], name))


def release_for(upgrade: Upgrade, node: str) -> str:
    """Return the release that a node is brought to; "": it goes back, and nobody knows what it ran before."""
    return upgrade.before.get(node, "") if upgrade.back else upgrade.to


def successors(
    table: PartitionTable, leaving: str, able: Collection[str], new: Collection[str], lags: Mapping[str, int]
) -> list[str]:
    """Return the nodes that may take over, the best first. `able`: those that run; `new`: those of them with the
    release that is wanted; `lags`: by node, how many records it is behind, if it said so."""
    kinds = {r.node: r.kind for r in table.replicas}
    fit = [n for n in kinds if n != leaving and n in able and priority(table, n) != NEVER]
    close = [n for n in fit if lags.get(n, 0) <= CLOSE]
    return sorted(close, key=lambda n: (n not in new, kinds[n] != SYNC, rank(table, n)))


def planned(
    order: Sequence[str], nodes: Mapping[str, NodeInfo], tables: Sequence[PartitionTable], wanted: Mapping[str, str]
) -> list[PlannedNode]:
    """Return what would be done, node by node, where nothing else changes. `wanted`: by node, the release."""
    runs = {n: info.version for n, info in hosting(nodes).items()}
    active = {t.name: t.active.node for t in tables if t.active is not None}
    new = {n for n, release in runs.items() if release == wanted.get(n)}
    found = []
    for node in order:
        needed = runs.get(node, "") != wanted.get(node)
        moves = []
        for table in tables if needed else ():
            if active.get(table.name) == node:
                others = [m for m in _members(table) if m != node and m in runs]
                fit = [n for n in others if priority(table, n) != NEVER]
                to = min(fit, key=lambda n: (n not in new, rank(table, n)), default="")
                moves.append(Succession(table.name, to))
                active[table.name] = to or node
        new.add(node)
        found.append(PlannedNode(node, runs.get(node, ""), needed, tuple(moves)))
    return found


def _members(table: PartitionTable) -> tuple[str, ...]:
    """Return the nodes with a copy: those that a restarted node comes back to."""
    return tuple(table.node_list)
