"""This module places the partitions that are nowhere yet, before anything is levelled (P2). It is arithmetic only.

Whole rounds of them turn. Each node is preferred for one partition, and the other nodes follow by turns where several
share a preferred node, so that the partitions of a node that dies fall to all others alike. What is left goes one by
one to the nodes with the fewest copies, and of these to those preferred for the fewest; of the chosen nodes the one
with the most copies is the preferred one. So a node that has one copy more is preferred for one more before others are,
and both are even after each partition, also when more are added later. Copies alone would be just as even without that.
But then the nodes with room for a copy may be others than those that are preferred for too few. Nodes that share the
fewest partitions come together. Nodes that are left with fewer copies share none if possible: what one of them had
could not go to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple


class OtherPolicies(NamedTuple):
    """An `OtherPolicies` is what nodes have of other policies: copies, and partitions that prefer them. Of equal nodes
    those with the fewest come first."""

    copies: Mapping[str, int] = {}
    leads: Mapping[str, int] = {}


def deal(
    now: Mapping[str, Sequence[str]],
    allowed: Mapping[str, Sequence[str]],
    copies: int,
    elsewhere: OtherPolicies,
) -> dict[str, Sequence[str]]:
    """Return the nodes of each partition that is nowhere, the preferred one first. `allowed`: the nodes that may have a
    copy of it."""
    new = [p for p, nodes in allowed.items() if nodes and not now[p]]
    dealt, hand = dict[str, Sequence[str]](), _Hand(now, elsewhere)
    size = len(allowed[new[0]]) if new else 1
    alike = all(allowed[p] == allowed[new[0]] for p in new)
    rounds, begun = len(new) // size if alike else 0, (len(now) - len(new)) // size
    for i, p in enumerate(new):
        copies_ = min(copies, len(allowed[p]))
        turning = i < rounds * size
        dealt[p] = _turned(i + begun * size, allowed[p])[:copies_] if turning else hand.next(allowed[p], copies_)
        hand.took(dealt[p])
    return dealt


def _turned(index: int, nodes: Sequence[str]) -> Sequence[str]:
    turn, first = divmod(index, len(nodes))
    others = [*nodes[first + 1 :], *nodes[:first]]
    turn %= max(1, len(others))
    return [nodes[first], *others[turn:], *others[:turn]]


class _Hand:
    """A hand knows what each node has."""

    def __init__(self, now: Mapping[str, Sequence[str]], elsewhere: OtherPolicies) -> None:
        self._elsewhere = elsewhere
        self._load: Counter[str] = Counter()
        self._leads: Counter[str] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()
        self._together: Counter[frozenset[str]] = Counter()
        for nodes in now.values():
            self.took(nodes)

    def took(self, nodes: Sequence[str]) -> None:
        self._load.update(nodes)
        self._leads.update(nodes[:1])
        self._seconds.update((nodes[0], n) for n in nodes[1:2])
        self._together.update(frozenset(pair) for pair in combinations(nodes, 2))

    def next(self, nodes: Sequence[str], copies: int) -> Sequence[str]:
        load, leads = self._load, self._leads
        fullest = sorted(load[n] for n in nodes)[copies - 1]
        sure = [n for n in nodes if load[n] < fullest]
        perhaps = [n for n in nodes if load[n] == fullest]
        lead = min(sure + perhaps, key=lambda n: (leads[n], -load[n], *self._beside(n)))
        sure = [n for n in sure if n != lead]
        least = min(load[n] for n in nodes)
        emptiest = [n for n in nodes if load[n] == least and n != lead]
        perhaps = [n for n in perhaps if n != lead]
        perhaps.sort(
            key=lambda n: (
                -leads[n],
                self._beside(n)[1],
                self._shared(lead, n),
                -sum(self._shared(n, m) for m in emptiest),
            )
        )
        others = (sure + perhaps)[: copies - 1]
        return [lead, *sorted(others, key=lambda n: self._seconds[lead, n])]

    def _beside(self, node: str) -> tuple[int, int]:
        return self._elsewhere.leads.get(node, 0), self._elsewhere.copies.get(node, 0)

    def _shared(self, one: str, other: str) -> int:
        """Count the partitions that both nodes have."""
        return self._together[frozenset((one, other))]
