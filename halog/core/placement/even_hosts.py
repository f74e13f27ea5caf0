"""Which nodes have the copies of each partition: the most even way, and of these one that makes the fewest (P2, P5).

A copy goes to a node of a domain that has none of the partition, as long as there are domains enough, and one of them
to a primary node, if one may have it. The *anchor* of a partition are the nodes of which one must have a copy. Where
that is all nodes of some domains, or nodes within one, the ways to place it are the bases of a matroid, and nothing is
better than what repair and levelling come to.

Where a domain has primary and backup nodes, "a primary node" is no such anchor: from one way to a better one it may
take two copies at once. But "one in a domain of primary nodes only" is, and so is "a primary node of this domain" for
each of the others, and one of these choices holds. They are searched, the most promising first. A partition that has no
choice yet goes where it likes, while primary nodes together have a copy for each partition: no choice comes to anything
better. Where that is no better than the best so far, that is the best of all; and so is a way in which each partition
has a primary copy without having been told. One that is better is mended at once, which nearly always costs nothing.

How many choices that takes has no good bound, as copies that fit are a three-dimensional matching (decision 25). So it
ends after so much work with the best so far. Clusters that can be compared with every other way are far below that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from halog.core.placement.level import Floor, Step, level
from halog.core.placement.seed import Elsewhere, deal

EFFORT = 60_000
"""Steps that the search may look at, for most clusters in some tenths of a second: a levelling looks at each copy and
each node it may go to. One, with no choice made yet, there is in any case, and it is mended."""

Anchors = Mapping[str, frozenset[str]]
"""Of each partition; of one whose copies may be anywhere all nodes that may have one."""

Rank = tuple[int, int]
"""How uneven, and how many copies are made."""


class Asked(NamedTuple):
    """What is to be placed. `free`: partitions that are; the others stay, and count. `allowed`: who may have a copy of
    each of these. `apart`: are there domains enough?"""

    now: Mapping[str, tuple[str, ...]]
    free: Sequence[str]
    nodes: Sequence[str]
    allowed: Mapping[str, Sequence[str]]
    copies: int
    domain: Mapping[str, str]
    apart: bool
    backup: frozenset[str]
    elsewhere: Elsewhere = Elsewhere()

    @property
    def ties(self) -> Elsewhere:
        """What levelling minds. Where all that is placed was nowhere it was dealt out with that in mind."""
        return self.elsewhere if any(self.now[p] for p in self.free) else Elsewhere()

    def size(self, p: str) -> int:
        return min(self.copies, len(self.allowed[p]))

    def domains(self, p: str) -> int:
        """In so many its copies must be."""
        return min(self.size(p), len({self.domain[n] for n in self.allowed[p]})) if self.apart else 0

    def begin(self) -> dict[str, Sequence[str]]:
        """As they are, and those that are nowhere as they are dealt out."""
        somewhere = {p: [n for n in nodes if n in self.domain] for p, nodes in self.now.items()}
        return {**somewhere, **deal(somewhere, self.allowed, self.copies, self.elsewhere)}

    def choices(self, p: str) -> list[frozenset[str]]:
        """Its anchors, one of which holds: whole domains, or within one."""
        allowed, found = self.allowed[p], dict[str, list[str]]()
        mixed = {self.domain[n] for n in allowed if n in self.backup} if self.apart and self.size(p) > 1 else set()
        for n in allowed:
            if n not in self.backup:
                found.setdefault(self.domain[n] if self.domain[n] in mixed else "", []).append(n)
        if "" in found and self.domains(p) == len({self.domain[n] for n in allowed}):
            found = {"": found[""]}  # one is in each domain anyway
        return [frozenset(nodes) for nodes in found.values()] or [frozenset(allowed)]


def best_hosts(asked: Asked) -> dict[str, list[str]]:
    """The nodes of each partition, in no order."""
    choices = {p: asked.choices(p) for p in asked.free}
    best = _Placed(asked, {p: frozenset[str]().union(*some) for p, some in choices.items()})
    if any(len(some) > 1 for some in choices.values()):
        best = _Search(asked, choices, best).best
    return best.hosts


def _tries(asked: Asked) -> int:
    return 1 + EFFORT // max(1, sum(asked.size(p) * len(nodes) for p, nodes in asked.allowed.items()))


def _floor(asked: Asked) -> Floor:
    """What primary nodes have at least, together."""
    primaries = [n for n in asked.nodes if n not in asked.backup]
    stay = sum(n in primaries for p, nodes in asked.now.items() if p not in asked.allowed for n in nodes)
    return Floor(primaries, stay + sum(any(n in primaries for n in nodes) for nodes in asked.allowed.values()))


class _Search:
    """What is better than `best`, if anything is. `choices`: the anchors of each partition, one of which holds."""

    def __init__(self, asked: Asked, choices: Mapping[str, Sequence[frozenset[str]]], best: _Placed) -> None:
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
        """Nothing that goes on from here with more choices is better than this."""
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
        """To something as even, along the choices that mending makes, all at once."""
        while way.lacking and way.rank[0] < self.best.rank[0]:
            mended = self._mend(way)
            if self._left == 0:
                return
            chosen = {p: next(c for c in self._choices[p] if not c.isdisjoint(mended.hosts[p])) for p in way.lacking}
            way = self._try({**way.anchors, **chosen})

    def _widen(self, root: _Placed) -> None:
        """Best first: once nothing that waits is better than the best, nothing is."""
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
    """The best way with these anchors, and with so much as `floor` says; or a good one, from `begin` on. `hosts`: the
    nodes of each partition."""

    def __init__(
        self,
        asked: Asked,
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
        """Partitions without a copy on a primary node, where one may have it."""
        backup, allowed = self._asked.backup, self._asked.allowed
        return [p for p in self._asked.free if backup.issuperset(self.hosts[p]) and not backup.issuperset(allowed[p])]

    def _count(self, p: str, by: int) -> None:
        for n in self.hosts[p]:
            self._load[n] += by

    def _repair(self, p: str) -> None:
        """As many copies as wanted, in as many domains as can be, one of them at the anchor; as few new ones as that
        takes."""
        if not self._asked.allowed[p]:
            return
        now, load = self._asked.now[p], self._load
        self._count(p, -1)
        ways = [self._around(p, n) for n in self._firsts(p)]
        self.hosts[p] = min(ways, key=lambda w: (sum(n not in now for n in w), sum(load[n] for n in w)))
        self._count(p, 1)

    def _firsts(self, p: str) -> list[str]:
        """What is to have a copy, whatever else has: one of them. The first of its nodes that is at the anchor; where
        none is, any that may have one there."""
        hosts, anchor = self.hosts[p], self.anchors[p]
        able = [n for n in hosts if n in anchor][:1] or [n for n in self._asked.allowed[p] if n in anchor]
        return able if hosts else [min(able, key=lambda n: self._load[n])]

    def _around(self, p: str, first: str) -> list[str]:
        """The best copies beside `first`: those there are, the emptiest of each domain before a second one, as long as
        room is left for domains that have none; then new ones, where nothing of their domain is, if there is such."""
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
        """Those that are not chosen, the emptiest first: the first ones of domains nobody is chosen of, then others."""
        domain, first, second = self._asked.domain, list[str](), list[str]()
        taken = {domain[n] for n in chosen}
        for n in sorted((n for n in nodes if n not in chosen), key=lambda n: self._load[n]):
            (second if domain[n] in taken else first).append(n)
            taken.add(domain[n])
        return first + second

    def _steps(self, p: str) -> Iterator[Step]:
        """Those of the preferred node last: its move is a hand-over, too."""
        now, free = self._asked.now[p], [n for n in self._asked.allowed[p] if n not in self.hosts[p]]
        for source in self.hosts[p]:
            gone, last = source not in now, now[:1] == (source,)
            for target in self._able(p, source, free):
                yield Step(source, target, (target not in now) - gone, p, last)

    def _able(self, p: str, source: str, free: Sequence[str]) -> Sequence[str]:
        """Those of `free` that its copy on `source` may go to: not away from the anchor, and where it is the only one
        of its domain to none that has one."""
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
