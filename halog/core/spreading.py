"""Which nodes host which partitions: evenly, in different failure domains, and as they are where that goes (P2, P5).

A copy of a partition goes to a node of a domain that has none of it, as long as there are enough domains. Copies and
preferred nodes are each spread evenly: one node has at most one more than another, unless domains, backup nodes or
nodes that may get nothing stand against it. Each partition has a copy on a primary node, if one can have it, and
prefers primary nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.leveling import Step, level


class Zone(NamedTuple):
    """Where partitions may be. `domains`: node → failure domain; a node without one is one of its own. `open`: nodes
    that may get copies; the others keep what they have. `never`: nodes that are not to be preferred. `backup`: nodes
    for replicas; the others are primary ones."""

    nodes: Sequence[str]
    open: Collection[str]
    domains: Mapping[str, str] = {}
    never: Mapping[str, Collection[str]] = {}
    """By partition."""
    backup: Collection[str] = ()

    def domain(self, node: str) -> str:
        return self.domains.get(node) or f"node {node}"


def spread(
    now: Mapping[str, Sequence[str]], copies: int, zone: Zone, fixed: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """The nodes of each partition, the preferred one first. `now`: as they are; those of `fixed` stay so, and count.
    A partition gets fewer copies where there are not nodes enough."""
    return _Spread(now, copies, zone, fixed).whole()


class _Spread:
    def __init__(self, now: Mapping[str, Sequence[str]], copies: int, zone: Zone, fixed: Collection[str]) -> None:
        self._now = {p: tuple(nodes) for p, nodes in now.items()}
        self._copies, self._zone = copies, zone
        self._free = [p for p in now if p not in fixed]
        self._hosts = {p: [n for n in nodes if n in zone.nodes] for p, nodes in now.items()}
        self._load = dict.fromkeys(zone.nodes, 0)
        for nodes in self._hosts.values():
            for n in nodes:
                self._load[n] += 1
        self._apart = len({zone.domain(n) for n in zone.nodes}) >= copies
        self._lead: dict[str, str] = {}
        self._leads = dict.fromkeys(zone.nodes, 0)

    def whole(self) -> dict[str, tuple[str, ...]]:
        for p in self._free:
            self._repair(p)
        level(self._load, self._zone.nodes, self._copy_steps, self._move_copy)
        self._choose_leads()
        return {p: self._ordered(p) for p in self._now}

    # --- copies ---

    def _repair(self, p: str) -> None:
        """As many copies as wanted, each in a domain of its own."""
        hosts = self._hosts[p]
        while (extra := self._extra(p)) is not None:
            hosts.remove(extra)
            self._load[extra] -= 1
        while len(hosts) < self._copies:
            able = self._primaries(p) or [n for n in self._zone.nodes if n in self._zone.open and n not in hosts]
            if not able:
                return
            to = min([n for n in able if self._fits(p, n)] or able, key=lambda n: self._load[n])
            hosts.append(to)
            self._load[to] += 1

    def _extra(self, p: str) -> str | None:
        """A copy too many, or one that shares its domain though another domain could have it; never that of the first
        primary node. Where no primary node has one, one that makes room for it, in the same domain if there is one."""
        hosts = self._hosts[p]
        if len(hosts) >= self._copies and (primaries := self._primaries(p)):
            domain = self._zone.domain
            beside = [n for n in hosts if self._apart and all(domain(n) == domain(m) for m in primaries)]
            return (beside or hosts)[-1]
        kept = next((n for n in hosts if n not in self._zone.backup), hosts[0] if hosts else "")
        rest = [n for n in hosts if n != kept]
        shared = [n for n in rest if not self._fits(p, n)] if self._can_part(p) else []
        surplus = rest if len(hosts) > self._copies else []
        return max(shared or surplus, key=lambda n: (self._load[n], hosts.index(n)), default=None)

    def _primaries(self, p: str) -> list[str]:
        """Those that may get a copy of a partition which has none on a primary node."""
        hosts, backup = self._hosts[p], self._zone.backup
        if any(n not in backup for n in hosts):
            return []
        return [n for n in self._zone.nodes if n in self._zone.open and n not in backup]

    def _is_only_primary(self, p: str, node: str) -> bool:
        return [n for n in self._hosts[p] if n not in self._zone.backup] == [node]

    def _can_part(self, p: str) -> bool:
        taken = {self._zone.domain(n) for n in self._hosts[p]}
        other = any(n in self._zone.open and self._zone.domain(n) not in taken for n in self._zone.nodes)
        return self._apart and (other or len(self._hosts[p]) > self._copies)

    def _fits(self, p: str, node: str, without: str = "") -> bool:
        """Is it the only one of its domain?"""
        domain = self._zone.domain
        return not any(domain(n) == domain(node) for n in self._hosts[p] if n not in (node, without))

    def _copy_steps(self, source: str) -> Iterator[Step]:
        """Those of the preferred node last: its move is a hand-over, too."""
        mine = [p for p in self._free if source in self._hosts[p]]
        for p in sorted(mine, key=lambda p: self._now[p][:1] == (source,)):
            back = source not in self._now[p]
            for target in self._zone.nodes:
                if self._may_move(p, source, target):
                    yield Step(source, target, (target not in self._now[p]) - back, p)

    def _may_move(self, p: str, source: str, target: str) -> bool:
        hosts = self._hosts[p]
        able = target in self._zone.open or target in self._now[p]
        if not able or target in hosts or source not in hosts:
            return False
        if target in self._zone.backup and self._is_only_primary(p, source):
            return False
        return self._fits(p, target, without=source) or not (self._apart and self._fits(p, source))

    def _move_copy(self, step: Step) -> Collection[str]:
        if not self._may_move(step.thing, step.source, step.target):
            return ()
        hosts = self._hosts[step.thing]
        hosts[hosts.index(step.source)] = step.target
        return (step.source, *hosts)

    # --- preferred nodes ---

    def _choose_leads(self) -> None:
        for p in self._now:
            if self._hosts[p]:
                first = self._now[p][0] if self._now[p] else ""
                able = self._able(p)
                self._lead[p] = first if first in able else min(able, key=lambda n: self._leads[n])
                self._leads[self._lead[p]] += 1
        level(self._leads, self._zone.nodes, self._lead_steps, self._move_lead)

    def _able(self, p: str) -> list[str]:
        never, backup = self._zone.never.get(p, ()), self._zone.backup
        able = [n for n in self._hosts[p] if n not in never]
        return [n for n in able if n not in backup] or able or self._hosts[p]

    def _lead_steps(self, source: str) -> Iterator[Step]:
        for p in self._free:
            if self._lead.get(p) == source:
                first = self._now[p][0] if self._now[p] else ""
                for target in self._able(p):
                    if target != source:
                        yield Step(source, target, (target != first) - (source != first), p)

    def _move_lead(self, step: Step) -> Collection[str]:
        if self._lead[step.thing] != step.source:
            return ()
        self._lead[step.thing] = step.target
        return (step.source, step.target)

    def _ordered(self, p: str) -> tuple[str, ...]:
        """The preferred node, then the others as they stood, then the new ones; primary ones before backup ones."""
        hosts = self._hosts[p]
        if p not in self._free or not hosts:
            return tuple(hosts)
        lead = self._lead[p]
        stood = [n for n in self._now[p] if n in hosts and n != lead]
        new = [n for n in hosts if n not in self._now[p] and n != lead]
        return (lead, *sorted((*stood, *new), key=lambda n: n in self._zone.backup))
