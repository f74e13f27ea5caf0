"""This module chooses the nodes for the copies of each partition: the most even way, and of these one that makes the
fewest copies (P2, P5).

A copy goes to a node of a domain that has none of the partition, as long as there are domains enough, and one copy goes
to a primary node, if one may have it. The *anchor* of a partition are the nodes of which one must have a copy. Where
the anchor is all nodes of some domains, or nodes within one domain, the ways to place the partition are the bases of a
matroid, and no way is better than what repair and levelling come to.

Where a domain has primary and backup nodes, "a primary node" is no such anchor: going from one way to a better one may
take two copies at once. But "one in a domain of primary nodes only" is such an anchor, and so is "a primary node of
this domain" for each of the others, and one of these choices holds. They are searched, the most promising first. A
partition without a choice yet goes where it likes, as long as primary nodes together have a copy for each partition; no
choice leads to anything better. If that is no better than the best so far, the best so far is the best of all. A way in
which each partition has a primary copy without having been told is the best, too. A way that is better is mended at
once, which nearly always costs nothing.

How many choices that takes has no good bound, because fitting copies is a three-dimensional matching (decision 25). So
the search ends after so much work with the best so far. Clusters small enough to compare every other way are far below
that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from halog.core.placement.level import Floor, Step, level
from halog.core.placement.seed import OtherPolicies, deal

EFFORT = 60_000
"""How many steps the search may look at. For most clusters it takes some tenths of a second: a levelling looks at each
copy and each node it may go to. One levelling, with no choice made yet, always happens, and it is mended."""

Anchors = Mapping[str, frozenset[str]]
"""The anchor of each partition. Where the copies may be anywhere, it is all nodes that may have one."""

Rank = tuple[int, int]
"""How uneven it is, and how many copies are made."""


class PlacementProblem(NamedTuple):
    """A `PlacementProblem` says what is to be placed.

    `free`: partitions to place; the others stay, and count. `allowed`: the nodes that may have a copy of each of these.
    `apart`: are there domains enough?
    """

    now: Mapping[str, tuple[str, ...]]
    free: Sequence[str]
    nodes: Sequence[str]
    allowed: Mapping[str, Sequence[str]]
    copies: int
    domain: Mapping[str, str]
    apart: bool
    backup: frozenset[str]
    elsewhere: OtherPolicies = OtherPolicies()

    @property
    def ties(self) -> OtherPolicies:
        """Return what levelling minds. If everything to place was nowhere before, it was dealt out with that in mind
        already."""
        return self.elsewhere if any(self.now[p] for p in self.free) else OtherPolicies()

    def size(self, p: str) -> int:
        return min(self.copies, len(self.allowed[p]))

    def domains(self, p: str) -> int:
        """Return in how many domains its copies must be."""
        return min(self.size(p), len({self.domain[n] for n in self.allowed[p]})) if self.apart else 0

    def begin(self) -> dict[str, Sequence[str]]:
        """Return the partitions as they are; those that are nowhere are dealt out."""
        somewhere = {p: [n for n in nodes if n in self.domain] for p, nodes in self.now.items()}
        return {**somewhere, **deal(somewhere, self.allowed, self.copies, self.elsewhere)}

    def choices(self, p: str) -> list[frozenset[str]]:
        """Return its anchors, one of which holds: whole domains, or nodes within one."""
        allowed, found = self.allowed[p], dict[str, list[str]]()
        mixed = {self.domain[n] for n in allowed if n in self.backup} if self.apart and self.size(p) > 1 else set()
        for n in allowed:
            if n not in self.backup:
                found.setdefault(self.domain[n] if self.domain[n] in mixed else "", []).append(n)
        if "" in found and self.domains(p) == len({self.domain[n] for n in allowed}):
            found = {"": found[""]}  # each domain has a copy anyway
        return [frozenset(nodes) for nodes in found.values()] or [frozenset(allowed)]


def best_hosts(asked: PlacementProblem) -> dict[str, list[str]]:
    """Return the nodes of each partition, in no order."""
    choices = {p: asked.choices(p) for p in asked.free}
    best = _Placed(asked, {p: frozenset[str]().union(*some) for p, some in choices.items()})
    if any(len(some) > 1 for some in choices.values()):
        best = _Search(asked, choices, best).best
    return best.hosts


def _tries(asked: PlacementProblem) -> int:
    return 1 + EFFORT // max(1, sum(asked.size(p) * len(nodes) for p, nodes in asked.allowed.items()))


def _floor(asked: PlacementProblem) -> Floor:
    """Return how many copies primary nodes have together, at least."""
    primaries = [n for n in asked.nodes if n not in asked.backup]
    stay = sum(n in primaries for p, nodes in asked.now.items() if p not in asked.allowed for n in nodes)
    return Floor(primaries, stay + sum(any(n in primaries for n in nodes) for nodes in asked.allowed.values()))


class _Search:
    """The search looks for a way that is better than `best`. `choices`: the anchors of each partition, one of which
    holds."""

    def __init__(self, asked: PlacementProblem, choices: Mapping[str, Sequence[frozenset[str]]], best: _Placed) -> None:
        self._asked = asked
        self._choices = choices
        self._any = best.anchors
        self.best = best
        self._floor = _floor(asked)
        self._left = _tries(asked)
        root = self._try({p: some[0] if len(some) == 1 else frozenset(asked.allowed[p]) for p, some in choices.items()})
        self._dive(root)
        self._widen(root)

    def _try(self, anchors: Anchors) -> _Placed:
        """Try these anchors. No way that adds choices to them is better than this one."""
        self._left -= 1
        way = _Placed(self._asked, anchors, self._floor)
        if not way.lacking:
            self.best = min(self.best, way, key=lambda one: one.rank)
        return way

    def _mend(self, way: _Placed) -> _Placed:
        mended = _Placed(self._asked, self._any, begin=way.hosts)
        self.best = min(self.best, mended, key=lambda one: one.rank)
        return mended

    def _dive(self, way: _Placed) -> None:
        """Go to something as even, along the choices that mending makes, all at once."""
        while way.lacking and way.rank[0] < self.best.rank[0]:
            mended = self._mend(way)
            if self._left == 0:
                return
            chosen = {p: next(c for c in self._choices[p] if not c.isdisjoint(mended.hosts[p])) for p in way.lacking}
            way = self._try({**way.anchors, **chosen})

    def _widen(self, root: _Placed) -> None:
        """Look at the most promising way first: once nothing that waits is better than the best, nothing is."""
        waiting = [(root.rank, len(root.lacking), 0, root)]
        while waiting and waiting[0][0] < self.best.rank:
            way = heappop(waiting)[-1]
            self._mend(way)
            for choice in self._choices[way.lacking[0]] if way.rank < self.best.rank else ():
                if self._left == 0:
                    return
                further = self._try({**way.anchors, way.lacking[0]: choice})
                if further.lacking:
                    heappush(waiting, (further.rank, len(further.lacking), self._left, further))


class _Placed:
    """A way to place all partitions is made here: the best one with these anchors, and with so much as `floor` says; or
    a good one, from `begin` on. `hosts`: the nodes of each partition."""

    def __init__(
        self,
        asked: PlacementProblem,
        anchors: Anchors,
        floor: Floor | None = None,
        begin: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._asked = asked
        self.anchors = anchors
        self.hosts = {p: [n for n in nodes if n in asked.domain] for p, nodes in (begin or asked.begin()).items()}
        self._load = dict.fromkeys(asked.nodes, 0)
        for p in asked.now:
            self._count(p, 1)
        for p in asked.free:
            self._repair(p)
        level(self._load, asked.nodes, asked.free, self._steps, self._move, floor, asked.ties.copies)
        made = sum(n not in asked.now[p] for p in asked.free for n in self.hosts[p])
        self.rank: Rank = (sum(load * load for load in self._load.values()), made)

    @property
    def lacking(self) -> list[str]:
        """Return the partitions without a copy on a primary node, where one may have it."""
        backup, allowed = self._asked.backup, self._asked.allowed
        return [p for p in self._asked.free if backup.issuperset(self.hosts[p]) and not backup.issuperset(allowed[p])]

    def _count(self, p: str, by: int) -> None:
        for n in self.hosts[p]:
            self._load[n] += by

    def _repair(self, p: str) -> None:
        """Give the partition as many copies as wanted, in as many domains as possible, one of them at the anchor, with
        as few new copies as that takes."""
        if not self._asked.allowed[p]:
            return
        now, load = self._asked.now[p], self._load
        self._count(p, -1)
        ways = [self._around(p, n) for n in self._firsts(p)]
        self.hosts[p] = min(ways, key=lambda w: (sum(n not in now for n in w), sum(load[n] for n in w)))
        self._count(p, 1)

    def _firsts(self, p: str) -> list[str]:
        """Return the nodes one of which is to have a copy, whichever others have one.

        This is the first of the partition's nodes that is at the anchor. Where there is none, it is any node at the
        anchor that may have a copy.
        """
        hosts, anchor = self.hosts[p], self.anchors[p]
        able = [n for n in hosts if n in anchor][:1] or [n for n in self._asked.allowed[p] if n in anchor]
        return able if hosts else [min(able, key=lambda n: self._load[n])]

    def _around(self, p: str, first: str) -> list[str]:
        """Return the best copies beside `first`.

        Existing copies come first: the emptiest of each domain before a second one, as long as room is left for domains
        that have none. Then come new copies, where there is nothing of their domain, if there is such a place.
        """
        domain, size, apart, chosen = self._asked.domain, self._asked.size(p), self._asked.domains(p), [first]
        for n in self._by_domain(self.hosts[p], chosen):
            lacking = apart - len({domain[m] for m in chosen})
            fits = all(domain[n] != domain[m] for m in chosen)
            if len(chosen) < size and (fits or size - len(chosen) > lacking):
                chosen.append(n)
        while len(chosen) < size:
            chosen.append(self._by_domain(self._asked.allowed[p], chosen)[0])
        return chosen

    def _by_domain(self, nodes: Sequence[str], chosen: Collection[str]) -> list[str]:
        """Return the nodes that are not chosen, the emptiest first: the first node of each domain without a chosen one,
        then the others."""
        domain, first, second = self._asked.domain, list[str](), list[str]()
        taken = {domain[n] for n in chosen}
        for n in sorted((n for n in nodes if n not in chosen), key=lambda n: self._load[n]):
            (second if domain[n] in taken else first).append(n)
            taken.add(domain[n])
        return first + second

    def _steps(self, p: str) -> Iterator[Step]:
        """Yield the steps; those of the preferred node come last, because its move is a hand-over, too."""
        now, free = self._asked.now[p], [n for n in self._asked.allowed[p] if n not in self.hosts[p]]
        for source in self.hosts[p]:
            gone, last = source not in now, now[:1] == (source,)
            for target in self._able(p, source, free):
                yield Step(source, target, (target not in now) - gone, p, last)

    def _able(self, p: str, source: str, free: Sequence[str]) -> Sequence[str]:
        """Return those of `free` that its copy on `source` may go to.

        The copy may not leave the anchor if it is the only one there. If it is the only copy in its domain, it goes to
        no domain that has one.
        """
        domain, rest, anchor = self._asked.domain, [n for n in self.hosts[p] if n != source], self.anchors[p]
        if source in anchor and anchor.isdisjoint(rest):
            free = [n for n in free if n in anchor]
        taken = {domain[n] for n in rest}
        if self._asked.apart and domain[source] not in taken:
            free = [n for n in free if domain[n] not in taken]
        return free

    def _move(self, step: Step) -> bool:
        hosts = self.hosts[step.thing]
        able = step.source in hosts and step.target not in hosts
        able = able and bool(self._able(step.thing, step.source, [step.target]))
        if able:
            hosts[hosts.index(step.source)] = step.target
        return able
