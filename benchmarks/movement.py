"""How much moves when a node or a partition comes or goes, beside the least that could, and how even objects lie.

Arithmetic over the planner and the ring; starts no server and knows no clock. What is counted is what a cluster would
have to copy: copies of partitions where nodes change, keys where the ring does. The theory: a new node must get an even
share, which is all copies divided by all nodes, rounded down; a node that goes leaves behind as many as it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from halog.core.placement.drain import MoveProposal
from halog.core.placement.rebalance import PolicyDemand, rebalance
from halog.core.placement.spread import PlacementZone, spread
from halog.core.table.table import PartitionTable
from halog.schema.codec import encoder
from halog.schema.shapes import Scalar
from mappers import ConsistentHash


class Size(NamedTuple):
    """Of a cluster."""

    nodes: int
    partitions: int
    copies: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.partitions} partitions of {self.copies} copies"


class Moved(NamedTuple):
    """What moves, and the least that could. `where`: of several cases the one that is worst."""

    moved: int
    minimum: int
    where: str = ""

    @property
    def ratio(self) -> float:
        """1.0 is the least; where nothing need move, anything that does is infinitely more."""
        if self.minimum:
            return self.moved / self.minimum
        return float("inf") if self.moved else 1.0


SIZES: Sequence[Size] = tuple(
    Size(nodes, partitions, copies)
    for nodes in (3, 4, 5, 8, 12)
    for partitions in (12, 24, 60, 128)
    for copies in (1, 2, 3)
)
"""From the demo's to a large cluster's; numbers that divide evenly and numbers that do not. All take 3 s."""

RINGS: Sequence[int] = (128, 1_000, 65_536, 1_000_000)
"""From about the smallest that `SPREAD` may have to one far larger than the default."""
SPREAD = Size(4, 12, 2)
"""The cluster on which objects are spread."""


# --- nodes ---


def joined(size: Size) -> Moved:
    """One node more: copies that are made, beside the share of the new one."""
    before = tuple(f"n{i}" for i in range(size.nodes))
    moves = _planned(size, before, (*before, "new"))
    return Moved(_made(moves), size.partitions * size.copies // (size.nodes + 1), str(size))


def left(size: Size) -> Moved:
    """One node less, for good: copies that are made, beside those it had."""
    before = tuple(f"n{i}" for i in range(size.nodes))
    lists = _placed(size, before)
    had = sum(before[-1] in nodes for nodes in lists)
    return Moved(_made(_planned(size, before, before[:-1])), had if size.nodes > size.copies else 0, str(size))


def worst(sizes: Iterable[Size], change: Callable[[Size], Moved]) -> Moved:
    """The case that moves most beside its minimum."""
    return max((change(size) for size in sizes), key=lambda found: found.ratio)


def _placed(size: Size, nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """As a new cluster is."""
    nowhere: dict[str, tuple[str, ...]] = {f"p-{i}": () for i in range(size.partitions)}
    return list(spread(nowhere, size.copies, PlacementZone(nodes, nodes)).values())


def _planned(size: Size, before: Sequence[str], after: Sequence[str]) -> list[MoveProposal]:
    tables = [
        PartitionTable(f"p-{i}", "00" * 16, "t", i, "p", nodes, size.copies - 1)
        for i, nodes in enumerate(_placed(size, before))
    ]
    return rebalance(tables, PolicyDemand(size.copies, size.copies - 1, PlacementZone(after, after)), (*before, *after))


def _made(moves: Iterable[MoveProposal]) -> int:
    return sum(len(set(m.target.nodes) - set(m.before)) for m in moves if m.target is not None)


# --- keys ---


def keys(count: int) -> list[bytes]:
    """So many routing keys, always the same."""
    encode = encoder(Scalar("str"))
    return [encode(f"key-{i}") for i in range(count)]


def remapped(of: Sequence[bytes], before: int, after: int) -> Moved:
    """Another number of partitions on the default ring: keys that belong elsewhere, beside the share of those that
    come or go."""
    one, other = ConsistentHash(before), ConsistentHash(after)
    moved = sum(one.partition(key) != other.partition(key) for key in of)
    return Moved(moved, round(len(of) * abs(after - before) / max(before, after)), f"{before} to {after} partitions")


def unevenness(of: Sequence[bytes], ring_size: int) -> float:
    """Objects of the fullest node beside the mean, every copy counted."""
    ring = ConsistentHash(SPREAD.partitions, ring_size)
    lists = _placed(SPREAD, tuple(f"n{i}" for i in range(SPREAD.nodes)))
    held: Counter[str] = Counter()
    for partition, count in Counter(ring.partition(key) for key in of).items():
        held.update(dict.fromkeys(lists[partition], count))
    return max(held.values()) * SPREAD.nodes / sum(held.values())
