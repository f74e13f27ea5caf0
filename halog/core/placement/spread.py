"""This module says which nodes host which partitions: evenly, in different failure domains, and as they are where
possible (P2, P5).

A copy of a partition goes to a node of a domain that has none of it, as long as there are enough domains. Copies and
preferred nodes are each spread evenly: one node has at most one more than another, unless domains, backup nodes or
nodes that may get nothing stand against it. The one more goes to the node with the fewest of other policies, where that
moves nothing. Each partition has a copy on a primary node, if one can have it, and prefers primary nodes.

No other way is more even, or as even with fewer copies made. `halog.core.placement.even_hosts` says what is not certain
for many partitions where a domain has both primary and backup nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.placement.even_hosts import PlacementProblem, best_hosts
from halog.core.placement.level import Step, level
from halog.core.placement.seed import OtherPolicies


class PlacementZone(NamedTuple):
    """A `PlacementZone` says where partitions may be.

    `domains`: node → failure domain; a node without one is a domain of its own. `open`: nodes that may get copies; the
    others keep what they have. `never`: nodes that are not to be preferred. `off`: nodes that may get no copy; they
    keep what they have. `backup`: nodes for replicas; the others are primary ones.
    """

    nodes: Sequence[str]
    open: Collection[str]
    domains: Mapping[str, str] = {}
    never: Mapping[str, Collection[str]] = {}
    """By partition."""
    backup: Collection[str] = ()
    off: Mapping[str, Collection[str]] = {}
    """By partition."""
    elsewhere: OtherPolicies = OtherPolicies()

    def domain(self, node: str) -> str:
        return self.domains.get(node) or f"node {node}"


def spread(
    now: Mapping[str, Sequence[str]], copies: int, zone: PlacementZone, fixed: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each partition, the preferred one first.

    `now`: the nodes as they are. Partitions of `fixed` stay so, and count. A partition gets fewer copies where there
    are not enough nodes, and none where no node may have one.
    """
    asked = _asked({p: tuple(nodes) for p, nodes in now.items()}, copies, zone, fixed)
    return _Preferred(asked, zone, best_hosts(asked)).whole()


def _asked(
    now: dict[str, tuple[str, ...]], copies: int, zone: PlacementZone, fixed: Collection[str]
) -> PlacementProblem:
    free, open_ = [p for p in now if p not in fixed], frozenset(zone.open)
    allowed = {p: [n for n in zone.nodes if n in now[p] or (n in open_ and n not in zone.off.get(p, ()))] for p in free}
    domain = {n: zone.domain(n) for n in zone.nodes}
    apart = len(set(domain.values())) >= copies
    return PlacementProblem(
        now, free, zone.nodes, allowed, copies, domain, apart, frozenset(zone.backup), zone.elsewhere
    )


class _Preferred:
    """A partition is given its preferred node here: one of those that host it."""

    def __init__(self, asked: PlacementProblem, zone: PlacementZone, hosts: Mapping[str, Sequence[str]]) -> None:
        self._asked = asked
        self._now = asked.now
        self._backup = asked.backup
        self._zone = zone
        self._hosts = hosts
        self._lead: dict[str, str] = {}
        self._leads = dict.fromkeys(zone.nodes, 0)

    def whole(self) -> dict[str, tuple[str, ...]]:
        for p in self._now:
            if self._hosts[p]:
                first = (self._now[p] or self._hosts[p])[0]
                able = self._able(p)
                next_ = min(able, key=self._busy) if p in self._asked.allowed else able[0]
                self._lead[p] = first if first in able else next_
                self._leads[self._lead[p]] += 1
        level(self._leads, self._zone.nodes, self._asked.free, self._steps, self._move, ties=self._asked.ties.leads)
        return {p: self._ordered(p) for p in self._now}

    def _busy(self, node: str) -> tuple[int, int]:
        return self._leads[node], self._zone.elsewhere.leads.get(node, 0)

    def _able(self, p: str) -> Sequence[str]:
        never = self._zone.never.get(p, ())
        able = [n for n in self._hosts[p] if n not in never]
        return [n for n in able if n not in self._backup] or able or self._hosts[p]

    def _steps(self, p: str) -> Iterator[Step]:
        first, source = self._now[p][:1], self._lead.get(p)
        for target in self._able(p):
            if source is not None and target != source:
                yield Step(source, target, ((target,) != first) - ((source,) != first), p)

    def _move(self, step: Step) -> bool:
        able = self._lead[step.thing] == step.source
        if able:
            self._lead[step.thing] = step.target
        return able

    def _ordered(self, p: str) -> tuple[str, ...]:
        """Return the preferred node, then the others as they stood, then the new ones; primary ones before backup
        ones."""
        hosts = self._hosts[p]
        if p not in self._asked.allowed or not hosts:
            return tuple(hosts)
        lead = self._lead[p]
        stood = [n for n in self._now[p] if n in hosts and n != lead]
        new = [n for n in hosts if n not in self._now[p] and n != lead]
        return (lead, *sorted((*stood, *new), key=lambda n: n in self._backup))
