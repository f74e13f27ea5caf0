"""Which nodes host which partitions: evenly, in different failure domains, and as they are where that goes (P2, P5).

A copy of a partition goes to a node of a domain that has none of it, as long as there are enough domains. Copies and
preferred nodes are each spread evenly: one node has at most one more than another, unless domains, backup nodes or
nodes that may get nothing stand against it. Each partition has a copy on a primary node, if one can have it, and
prefers primary nodes.

No other way is more even, or as even with fewer copies made, unless a domain has both primary and backup nodes. There
it may take to exchange two copies of a partition at once, which is not looked for: what is found is valid and at rest,
and seldom one copy more is made than need be, or a node is up to two copies fuller beside the emptiest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.leveling import Step, level


class Zone(NamedTuple):
    """Where partitions may be. `domains`: node → failure domain; a node without one is one of its own. `open`: nodes
    that may get copies; the others keep what they have. `never`: nodes that are not to be preferred. `off`: nodes that
    may get no copy; they keep what they have. `backup`: nodes for replicas; the others are primary ones."""

    nodes: Sequence[str]
    open: Collection[str]
    domains: Mapping[str, str] = {}
    never: Mapping[str, Collection[str]] = {}
    """By partition."""
    backup: Collection[str] = ()
    off: Mapping[str, Collection[str]] = {}
    """By partition."""

    def domain(self, node: str) -> str:
        return self.domains.get(node) or f"node {node}"


def spread(
    now: Mapping[str, Sequence[str]], copies: int, zone: Zone, fixed: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """The nodes of each partition, the preferred one first. `now`: as they are; those of `fixed` stay so, and count.
    A partition gets fewer copies where there are not nodes enough, and none where no node may have one."""
    return _Spread(now, copies, zone, fixed).whole()


class _Spread:
    def __init__(self, now: Mapping[str, Sequence[str]], copies: int, zone: Zone, fixed: Collection[str]) -> None:
        self._now = {p: tuple(nodes) for p, nodes in now.items()}
        self._copies, self._zone, self._backup = copies, zone, frozenset(zone.backup)
        self._free = [p for p in now if p not in fixed]
        self._hosts = {p: [n for n in nodes if n in zone.nodes] for p, nodes in now.items()}
        self._load = dict.fromkeys(zone.nodes, 0)
        for p in now:
            self._count(p, 1)
        self._domain = {n: zone.domain(n) for n in zone.nodes}
        self._apart = len(set(self._domain.values())) >= copies
        open_ = frozenset(zone.open)
        self._allowed = {
            p: [n for n in zone.nodes if n in self._now[p] or (n in open_ and n not in zone.off.get(p, ()))]
            for p in self._free
        }
        self._lead: dict[str, str] = {}
        self._leads = dict.fromkeys(zone.nodes, 0)

    def whole(self) -> dict[str, tuple[str, ...]]:
        for p in self._free:
            self._repair(p)
        level(self._load, self._zone.nodes, self._free, self._copy_steps, self._move_copy)
        self._choose_leads()
        return {p: self._ordered(p) for p in self._now}

    # --- copies ---

    def _count(self, p: str, by: int) -> None:
        for n in self._hosts[p]:
            self._load[n] += by

    def _repair(self, p: str) -> None:
        """As many copies as wanted, in as many domains as can be, one of them on a primary node if one may have it; as
        few new ones as that takes."""
        if not self._allowed[p]:
            return
        self._count(p, -1)
        ways = [self._around(p, n) for n in self._anchors(p)]
        self._hosts[p] = min(ways, key=lambda w: (sum(n not in self._now[p] for n in w), sum(self._load[n] for n in w)))
        self._count(p, 1)

    def _anchors(self, p: str) -> list[str]:
        """What is to have a copy, whatever else has: one of them. The first primary node; where none has one, any that
        may; where none may, the first node."""
        hosts, allowed = self._hosts[p], self._allowed[p]
        primaries = [n for n in allowed if n not in self._backup]
        able = [n for n in hosts if n not in self._backup][:1] or primaries or hosts[:1] or allowed
        return able if hosts else [min(able, key=lambda n: self._load[n])]

    def _around(self, p: str, anchor: str) -> list[str]:
        """The best copies beside `anchor`: those there are, the emptiest of each domain before a second one, as long as
        room is left for domains that have none; then new ones, where nothing of their domain is, if there is such."""
        domain, allowed, chosen = self._domain, self._allowed[p], [anchor]
        size = min(self._copies, len(allowed))
        apart = min(size, len({domain[n] for n in allowed})) if self._apart else 0
        for n in self._by_domain(self._hosts[p], chosen):
            lacking = apart - len({domain[m] for m in chosen})
            fits = all(domain[n] != domain[m] for m in chosen)
            if len(chosen) < size and (fits or size - len(chosen) > lacking):
                chosen.append(n)
        while len(chosen) < size:
            chosen.append(self._by_domain(allowed, chosen)[0])
        return chosen

    def _by_domain(self, nodes: Sequence[str], chosen: Sequence[str]) -> list[str]:
        """Those that are not chosen, the emptiest first: the first ones of domains nobody is chosen of, then others."""
        taken, first, second = {self._domain[n] for n in chosen}, list[str](), list[str]()
        for n in sorted((n for n in nodes if n not in chosen), key=lambda n: self._load[n]):
            (second if self._domain[n] in taken else first).append(n)
            taken.add(self._domain[n])
        return first + second

    def _is_only_primary(self, p: str, node: str) -> bool:
        return [n for n in self._hosts[p] if n not in self._backup] == [node]

    def _fits(self, p: str, node: str, without: str = "") -> bool:
        """Is it the only one of its domain?"""
        domain = self._domain
        return not any(domain[n] == domain[node] for n in self._hosts[p] if n not in (node, without))

    def _copy_steps(self, p: str) -> Iterator[Step]:
        """Those of the preferred node last: its move is a hand-over, too."""
        now = self._now[p]
        for source in self._hosts[p]:
            for target in self._allowed[p]:
                if self._may_move(p, source, target):
                    cost = (target not in now) - (source not in now)
                    yield Step(source, target, cost, p, last=now[:1] == (source,))

    def _may_move(self, p: str, source: str, target: str) -> bool:
        hosts = self._hosts[p]
        if target in hosts or source not in hosts:
            return False
        if target in self._backup and self._is_only_primary(p, source):
            return False
        return not self._apart or self._fits(p, target, without=source) or not self._fits(p, source)

    def _move_copy(self, step: Step) -> bool:
        able = self._may_move(step.thing, step.source, step.target)
        if able:
            hosts = self._hosts[step.thing]
            hosts[hosts.index(step.source)] = step.target
        return able

    # --- preferred nodes ---

    def _choose_leads(self) -> None:
        for p in self._now:
            if self._hosts[p]:
                first = self._now[p][0] if self._now[p] else ""
                able = self._able(p)
                self._lead[p] = first if first in able else min(able, key=lambda n: self._leads[n])
                self._leads[self._lead[p]] += 1
        level(self._leads, self._zone.nodes, self._free, self._lead_steps, self._move_lead)

    def _able(self, p: str) -> list[str]:
        never = self._zone.never.get(p, ())
        able = [n for n in self._hosts[p] if n not in never]
        return [n for n in able if n not in self._backup] or able or self._hosts[p]

    def _lead_steps(self, p: str) -> Iterator[Step]:
        first, source = self._now[p][:1], self._lead.get(p)
        for target in self._able(p):
            if source is not None and target != source:
                yield Step(source, target, ((target,) != first) - ((source,) != first), p)

    def _move_lead(self, step: Step) -> bool:
        able = self._lead[step.thing] == step.source
        if able:
            self._lead[step.thing] = step.target
        return able

    def _ordered(self, p: str) -> tuple[str, ...]:
        """The preferred node, then the others as they stood, then the new ones; primary ones before backup ones."""
        hosts = self._hosts[p]
        if p not in self._free or not hosts:
            return tuple(hosts)
        lead = self._lead[p]
        stood = [n for n in self._now[p] if n in hosts and n != lead]
        new = [n for n in hosts if n not in self._now[p] and n != lead]
        return (lead, *sorted((*stood, *new), key=lambda n: n in self._backup))
