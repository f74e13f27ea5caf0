"""Spreading things over nodes as evenly as may be, with the fewest changes. Arithmetic only.

Loads are levelled by shortest paths: from the fullest node to one that has at least two fewer, over nodes that pass
one on, by way of the cheapest changes. A change that takes back an earlier one is cheaper than none, so that nothing
moves twice. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """One thing goes from a node to another; `cost`: changes more (or fewer) than before."""

    source: str
    target: str
    cost: int
    thing: str


Steps = Callable[[str], Iterable[Step]]
"""What may go from a node, given everything that went before."""


def level(load: dict[str, int], nodes: Sequence[str], steps: Steps, take: Callable[[Step], Collection[str]]) -> None:
    """Level `load` over `nodes` (in the order in which ties are broken). `take` carries a step out, and names the nodes
    whose steps are others now; none: it is not possible any more. `load` is kept here."""
    stuck: set[tuple[str, str]] = set()
    edges = {n: _cheapest(steps(n)) for n in nodes}
    while (path := _best_path(load, nodes, edges, stuck)) is not None:
        for step in path:
            others = take(step)
            if not others:  # an earlier step of this very path stands in its way
                stuck.add((path[0].source, path[-1].target))
                break
            load[step.source] -= 1
            load[step.target] += 1
            edges |= {n: _cheapest(steps(n)) for n in others}


def _best_path(
    load: dict[str, int], nodes: Sequence[str], edges: dict[str, dict[str, Step]], stuck: set[tuple[str, str]]
) -> list[Step] | None:
    """The cheapest way from the fullest node to the emptiest that it reaches."""
    found = None
    least = min((load[n] for n in nodes), default=0)
    for source in nodes:
        if load[source] < least + 2:
            continue
        for path in _paths(source, nodes, edges):
            target = path[-1].target
            gain = load[source] - load[target]
            if gain >= 2 and (source, target) not in stuck:
                rank = (gain, -sum(s.cost for s in path), -len(path))
                if found is None or rank > found[0]:
                    found = rank, path
    return None if found is None else found[1]


def _cheapest(steps: Iterable[Step]) -> dict[str, Step]:
    """By target, the step that costs least; the first one of several."""
    best: dict[str, Step] = {}
    for step in steps:
        if step.target not in best or step.cost < best[step.target].cost:
            best[step.target] = step
    return best


def _paths(source: str, nodes: Sequence[str], edges: dict[str, dict[str, Step]]) -> Iterable[list[Step]]:
    """The cheapest path from `source` to every node that can be reached (Bellman and Ford: costs may be negative)."""
    best: dict[str, tuple[int, list[Step]]] = {source: (0, [])}
    for _ in range(len(nodes)):
        changed = False
        for node in nodes:
            if node not in best:
                continue
            cost, path = best[node]
            for step in edges[node].values():
                known = best.get(step.target)
                on_path = step.target == source or any(s.target == step.target for s in path)
                if not on_path and (known is None or cost + step.cost < known[0]):
                    best[step.target] = cost + step.cost, [*path, step]
                    changed = True
        if not changed:
            break
    return [path for _, path in best.values() if path]
