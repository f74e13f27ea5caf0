"""This module spreads things over nodes as evenly as possible, with the fewest changes. It is arithmetic only.

Loads are levelled by shortest paths: from the fullest node to one that has at least two fewer, over nodes that pass one
on, by way of the cheapest changes. A change that takes back an earlier one is cheaper than none, so nothing moves
twice. Last come paths from a node to one that has one fewer. They are taken where fewer things have changed afterwards,
or as few and the target has less beside. The result is deterministic.

No result is better, if it begins with the fewest changes and each thing's places are the bases of a matroid: loads and
changes are then an M-convex function, which is least where no single path makes it less.

Where a thing may go depends on that thing alone, so only the steps of things that went are looked at again. Between two
nodes the cheapest step is on top of a heap, and steps that are out of date are dropped when they come up. The tops are
kept until a thing goes that had, or has, a step from that node: each path goes over all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Step(NamedTuple):
    """A `Step` takes one thing from a node to another. `cost`: changes more (or fewer) than before; `last`: after
    others that cost as much."""

    source: str
    target: str
    cost: int
    thing: str
    last: bool = False


Steps = Callable[[str], Iterable[Step]]
"""The steps that a thing may take, given everything that went before."""


class Way(NamedTuple):
    """A `Way` is a path and its rank, the least first: from a fuller node, of cheaper steps, from a node that has more
    beside, of fewer steps."""

    rank: tuple[int, int, int, int]
    root: str
    steps: tuple[Step, ...]


REST = (-1, 0, 0)
"""A path that gains no more than this is no better."""


class Floor(NamedTuple):
    """A `Floor` names nodes that are to have so many together, if they can, however uneven that is."""

    nodes: Sequence[str]
    least: int


def level(
    load: dict[str, int],
    nodes: Sequence[str],
    things: Sequence[str],
    steps: Steps,
    take: Callable[[Step], bool],
    floor: Floor | None = None,
    ties: Mapping[str, int] = {},
) -> None:
    """Make `load` even over `nodes`.

    Of equal nodes those with the fewest of `ties` get more; otherwise the first of `nodes` and of `things` come first.
    `take` carries a step out, if it is still possible, and can carry it back. `load` is kept up to date here.
    """
    edges = _Edges(things, steps)
    beside = {n: ties.get(n, 0) for n in nodes}
    while (way := _best_way(load, beside, nodes, nodes, edges)) is not None and _gain(way, load, beside)[:3] < REST:
        _go(way, load, take, edges)
    if floor is None:
        return
    others = [n for n in nodes if n not in floor.nodes]
    while sum(load[n] for n in floor.nodes) < floor.least:
        if (way := _best_way(load, beside, others, floor.nodes, edges)) is None:
            return
        _go(way, load, take, edges)


def _go(way: Way, load: dict[str, int], take: Callable[[Step], bool], edges: _Edges) -> None:
    if _all_taken(way.steps, take, edges):
        load[way.root] -= 1
        load[way.steps[-1].target] += 1
        for thing in dict.fromkeys(s.thing for s in way.steps):
            edges.renew(thing)


class _Edges:
    """The steps from each node to each other are kept here, the cheapest first."""

    def __init__(self, things: Sequence[str], steps: Steps) -> None:
        self._steps = steps
        self._order = {thing: i for i, thing in enumerate(things)}
        self._turn = dict.fromkeys(things, 0)
        self._heaps: dict[str, dict[str, list[tuple[int, bool, int, int, Step]]]] = {}
        """Steps by source and target. Entries of an earlier turn of their thing are out of date."""
        self._sources: dict[str, set[str]] = {}
        """The sources of each thing's steps, in this turn."""
        self._cheapest: dict[str, list[tuple[str, int, Step]]] = {}
        """The tops by source, kept as long as nothing has changed there: a path is looked for over all nodes, and
        changes few."""
        for thing in things:
            self.renew(thing)

    def renew(self, thing: str) -> None:
        """Look at the steps of this thing again: it can go elsewhere than before."""
        self._turn[thing] += 1
        before, self._sources[thing] = self._sources.get(thing, set()), set()
        for step in self._steps(thing):
            self._sources[thing].add(step.source)
            heap = self._heaps.setdefault(step.source, {}).setdefault(step.target, [])
            heappush(heap, (step.cost, step.last, self._order[thing], self._turn[thing], step))
        for source in before | self._sources[thing]:
            self._cheapest.pop(source, None)

    def cheapest(self, source: str) -> list[tuple[str, int, Step]]:
        """Return the cheapest step to each node that can be reached at once."""
        if source not in self._cheapest:
            self._cheapest[source] = list(self._tops(source))
        return self._cheapest[source]

    def _tops(self, source: str) -> Iterator[tuple[str, int, Step]]:
        for heap in self._heaps.get(source, {}).values():
            while heap and heap[0][3] != self._turn[heap[0][4].thing]:
                heappop(heap)
            if heap:
                yield heap[0][4].target, heap[0][0], heap[0][4]

    def drop(self, step: Step) -> None:
        """Forget this step, now the cheapest between its nodes, until its thing has gone elsewhere."""
        heappop(self._heaps[step.source][step.target])
        self._cheapest.pop(step.source, None)


def _all_taken(path: Sequence[Step], take: Callable[[Step], bool], edges: _Edges) -> bool:
    """Take all steps of the path, or none: an earlier step of this very path may stand in the way of a later one."""
    for i, step in enumerate(path):
        if not take(step):
            edges.drop(step)
            for done in reversed(path[:i]):
                take(done._replace(source=done.target, target=done.source))
            return False
    return True


def _best_way(
    load: dict[str, int], beside: Mapping[str, int], roots: Sequence[str], ends: Sequence[str], edges: _Edges
) -> Way | None:
    """Return the cheapest way from the fullest of `roots` to the emptiest of `ends` that it reaches."""
    ways = _ways(load, beside, roots, edges)
    return min((ways[n] for n in ends if n in ways), key=lambda way: _gain(way, load, beside), default=None)


def _gain(way: Way, load: dict[str, int], beside: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Return what the way gains; the less, the more even things are afterwards. With -2 or less they are more even; -1
    is as even, and may be cheaper, or more even beside."""
    if not way.steps:
        return 0, 0, 0, 0
    (fuller, cost, more, length), end = way.rank, way.steps[-1].target
    return fuller + load[end], cost, more + beside[end], length


def _ways(load: dict[str, int], beside: Mapping[str, int], roots: Sequence[str], edges: _Edges) -> dict[str, Way]:
    """Return the best way to each node, from whichever root (Bellman and Ford: costs may be negative)."""
    best = {n: Way((-load[n], 0, -beside[n], 0), n, ()) for n in roots}
    ranks = {n: way.rank for n, way in best.items()}
    todo = deque(roots)
    while todo:
        (full, cost, more, length), root, path = best[node := todo.popleft()]
        passed = {root, *(s.target for s in path)}
        for target, more_cost, step in edges.cheapest(node):
            further = full, cost + more_cost, more, length + 1
            if (target not in ranks or further < ranks[target]) and target not in passed:
                best[target], ranks[target] = Way(further, root, (*path, step)), further
                if target not in todo:
                    todo.append(target)
    return best
